// Products of bfloat16 or 8 bits by cuBLASLt, with the fastest of the algorithms that have the same bits.
#pragma once

#include <compare>
#include <cstdint>

namespace trireme::ops::cuda {

/// c = a b, or addend + a b, of matrices that are stored by columns: a [m, k], b [k, n], c [m, n]. Sums are float.
struct Product {
  int64_t m, n, k;
  bool a_transposed, b_transposed;
  bool wide;  ///< c is float32 instead of bfloat16
  bool accumulate;  ///< there is an addend, of c's dtype and stride
  int64_t a_ld, b_ld, c_ld;
  /// What a and b consist of. Of 8 bits, a is transposed and b is not, and sums of two e4m3 may be less exact.
  enum class Format : uint8_t { bfloat16, e4m3, e5m2 } a_format = Format::bfloat16, b_format = Format::bfloat16;
  auto operator<=>(const Product&) const = default;
};

/// Factors of a and b on the device; null: 1.
struct Scales {
  const float *a = nullptr, *b = nullptr;
};

/// Runs the product on the current stream, with c itself as the addend or another matrix; false if cuBLASLt has no
/// algorithm for it, and then nothing has run.
///
/// The first product of its sizes that is large tries the algorithms that cuBLASLt proposes and keeps the fastest of
/// those whose results have the bits of the first proposal. So the choice, which depends on time, changes no bit.
/// Cost      the first call: about 40 times the product, and twice the memory of c for a moment; without that memory
/// the
///           first proposal runs
bool tuned_product(const Product& product, const void* a, const void* b, const void* addend, void* c,
                   const Scales& scales = {});

}  // namespace trireme::ops::cuda
