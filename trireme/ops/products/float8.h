// Matrix products of numbers with 8 bits. An operand is divided by a power of two, so that its largest number just fits
// into the format, and is rounded there; the scale is found anew at every call. Sums are float.
#pragma once

#include <ATen/core/Tensor.h>

#include <bit>
#include <cstdint>

namespace trireme::ops {

/// Formats of the Open Compute Project: e4m3 has 4 bits of exponent and 3 of mantissa, and ends at 448; e5m2 ends at
/// 57344.
enum class Float8 : uint8_t { e4m3, e5m2 };

struct Float8Traits {
  int mantissa_bits;
  int least_exponent;  ///< of numbers with all bits
  int largest_exponent;  ///< of 1.75 2^largest_exponent, the largest number
};
constexpr Float8Traits traits_of(Float8 format) {
  return format == Float8::e4m3 ? Float8Traits{3, -6, 8} : Float8Traits{2, -14, 15};
}

/// The scale of numbers up to `largest`: the least power of two by which they can be divided to fit. 1 if `largest` is
/// 0 or not finite; at least 2^-100.
constexpr float float8_scale(float largest, int largest_exponent) {
  const auto bits = std::bit_cast<uint32_t>(largest);
  if (bits == 0 || bits >= 0x7F800000) return 1;
  const int above = (bits & 0x7FFFFF) > 0x600000 ? 1 : 0;  // 1.75
  const int exponent = static_cast<int>(bits >> 23) - 127 - largest_exponent + above;
  return std::bit_cast<float>(static_cast<uint32_t>((exponent < -100 ? -100 : exponent) + 127) << 23);
}

struct Float8Operand {
  const at::Tensor& matrix;  ///< bfloat16; its rows, or those of its transpose, are contiguous
  Float8 format;
};

/// Bytes of a GPU's scratch before the operands: their largest numbers and scales.
constexpr int64_t kFloat8Figures = 64;

/// Bytes of scratch of a product [M,K] x [K,N]. On a GPU an operand takes one byte an element. The processor has no
/// such products: there the rounded numbers lie in bfloat16, which represents them, and are multiplied as bfloat16.
int64_t float8_scratch_bytes(int64_t m, int64_t n, int64_t k, bool on_gpu);

/// c = a b, or addend + a b, of operands that are rounded to 8 bits.
///
/// Shapes    a [M,K], b [K,N], c and addend [M,N], contiguous. On a GPU M, N and K are multiples of 16
/// dtypes    c bfloat16 or float32; addend as c, and it may be the tensor c if that is float32
/// Scratch   bytes, at least float8_scratch_bytes(); it begins at a multiple of 16
/// Cost      2 M N K operations; each operand is read twice and written once. A GPU of compute capability 8.9 or later
///           multiplies 8 bits twice as fast as 16
/// Numerics  a number is rounded once to its format, to nearest even; one that is not finite becomes NaN. Processor:
/// bits
///           do not depend on threads. GPU: sums of a forward product (two e4m3) may lose more than float32's last bits
/// Errors    ShapeError naming the tensor; Error if the GPU has no such products
/// Source    Micikevicius et al., FP8 Formats for Deep Learning (2022)
void multiply_float8(const at::Tensor& c, const Float8Operand& a, const Float8Operand& b, const at::Tensor& scratch,
                     const at::Tensor& addend = {});

}  // namespace trireme::ops
