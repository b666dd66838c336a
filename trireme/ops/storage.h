// The element types of kernels: how a value is stored, and the type of arithmetic on it.
#pragma once

#include <c10/core/ScalarType.h>

#include <atomic>
#include <bit>
#include <cstdint>
#include <type_traits>

#include "trireme/base/processor.h"

namespace trireme::ops {

/// A bfloat16 in memory. Kernels convert it, so it has no arithmetic of its own.
struct bfloat16 {
  uint16_t bits;
};

/// The same in memory. Kernels use it on processors with AVX512-BF16, which round to bfloat16 by one instruction. That
/// instruction turns values below 2^-126 into 0 of the same sign, although bfloat16 can represent them.
struct native_bfloat16 : bfloat16 {};

template <class T>
constexpr bool kIsBfloat16 = std::is_base_of_v<bfloat16, T>;

/// An IEEE half (float16) in memory, likewise. Its 11 bits need the accuracy of float32's functions, not the coarse
/// ones that suffice for bfloat16.
struct float16 {
  uint16_t bits;
};

/// Types of two bytes, which kernels widen to float.
template <class T>
constexpr bool kIsNarrow = kIsBfloat16<T> || std::is_same_v<T, float16>;

/// The arithmetic (and statistics) type of a storage type.
template <class T>
using Wide = std::conditional_t<kIsNarrow<T>, float, T>;

/// Rounds one value to storage, to nearest even; a NaN stays a NaN. The scalar twin of store() in simd-inl.h.
template <class T>
inline T narrow(Wide<T> value) {
  return value;
}
template <>
inline bfloat16 narrow<bfloat16>(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if (value != value) return {static_cast<uint16_t>(bits >> 16 | 0x40)};
  return {static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16)};
}
template <>
inline native_bfloat16 narrow<native_bfloat16>(float value) {
  return {narrow<bfloat16>(value)};
}

template <>
inline float16 narrow<float16>(float value) {
  constexpr uint32_t kInfinity = 0x7F800000, kLeastInfinite = 0x477FF000;  // 65520, half a step above the largest
  constexpr uint32_t kLeastNormal = 0x38800000, kRebias = 0x38000000;      // 2^-14; exponents differ by 112
  const auto bits = std::bit_cast<uint32_t>(value), size = bits & 0x7FFFFFFF;
  const uint32_t sign = bits >> 16 & 0x8000;
  if (size > kInfinity) return {static_cast<uint16_t>(sign | 0x7E00 | (size >> 13 & 0x3FF))};
  if (size >= kLeastInfinite) return {static_cast<uint16_t>(sign | 0x7C00)};
  // The last bit of numbers near 1/2 is 2^-24, as that of halves below 2^-14: the addition rounds.
  if (size < kLeastNormal)
    return {static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(std::bit_cast<float>(size) + 0.5f) - 0x3F000000))};
  return {static_cast<uint16_t>(sign | ((size - kRebias + 0xFFF + (size >> 13 & 1)) >> 13))};
}

inline double widen(double value) { return value; }
inline float widen(float value) { return value; }
inline float widen(bfloat16 value) { return std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16); }
inline float widen(float16 value) {
  const uint32_t size = static_cast<uint32_t>(value.bits & 0x7FFF) << 13;
  const uint32_t sign = static_cast<uint32_t>(value.bits & 0x8000) << 16;
  if (size >= 0x0F800000) return std::bit_cast<float>(sign | size | 0x7F800000);  // infinity or NaN
  if (size >= 0x00800000) return std::bit_cast<float>(sign | (size + 0x38000000));
  const float least = static_cast<float>(size >> 13) * 0x1p-24f;  // below 2^-14
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(least));
}

enum class Storage { kFloat64, kFloat32, kBfloat16, kFloat16 };

/// Whether kernels use AVX512-BF16 if the processor has it; tests switch it off to run the other kernels.
inline std::atomic<bool> native_bfloat16_allowed = true;

inline bool has_native_bfloat16() {
  return base::processor().avx512_bf16 && native_bfloat16_allowed.load(std::memory_order_relaxed);
}

/// The storage type of `dtype`, which has passed compute_dtype().
inline Storage storage_of(at::ScalarType dtype) {
  return dtype == at::kDouble  ? Storage::kFloat64
         : dtype == at::kFloat ? Storage::kFloat32
         : dtype == at::kHalf  ? Storage::kFloat16
                               : Storage::kBfloat16;
}

/// Calls body.template operator()<T>() for the storage type T of `storage`.
template <class Body>
void with_storage(Storage storage, const Body& body) {
  switch (storage) {
    case Storage::kFloat64:
      return body.template operator()<double>();
    case Storage::kFloat32:
      return body.template operator()<float>();
    case Storage::kBfloat16:
      return body.template operator()<bfloat16>();
    case Storage::kFloat16:
      return body.template operator()<float16>();
  }
}

}  // namespace trireme::ops
