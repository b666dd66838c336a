// The element types kernels see: how a value is stored, and in which type arithmetic on it is done.
#pragma once

#include <c10/core/ScalarType.h>

#include <atomic>
#include <bit>
#include <cstdint>
#include <type_traits>

#include "trireme/base/processor.h"

namespace trireme::ops {

/// 16 bits of a bfloat16 in memory; kernels convert, so it has no arithmetic of its own.
struct bfloat16 {
  uint16_t bits;
};

/// The same in memory, in kernels compiled for processors that round to it by one instruction (AVX512-BF16). That
/// instruction takes values below 2^-126, which bfloat16 has a few of, for 0 of the same sign.
struct native_bfloat16 : bfloat16 {};

template <class T>
constexpr bool kIsBfloat16 = std::is_base_of_v<bfloat16, T>;

template <class T>
struct WideOf {
  using Type = std::conditional_t<kIsBfloat16<T>, float, T>;
};
/// The arithmetic (and statistics) type of a storage type.
template <class T>
using Wide = typename WideOf<T>::Type;

/// Rounds one value to storage, to nearest even; a NaN stays one. The scalar twin of store() in simd-inl.h.
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

inline double widen(double value) { return value; }
inline float widen(float value) { return value; }
inline float widen(bfloat16 value) { return std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16); }

enum class Storage { kFloat64, kFloat32, kBfloat16 };

/// Whether kernels use AVX512-BF16 where the processor has it; a test switches it off to see the others run.
inline std::atomic<bool> native_bfloat16_allowed = true;

inline bool has_native_bfloat16() {
  return base::processor().avx512_bf16 && native_bfloat16_allowed.load(std::memory_order_relaxed);
}

/// `dtype` has passed compute_dtype().
inline Storage storage_of(at::ScalarType dtype) {
  return dtype == at::kDouble ? Storage::kFloat64 : dtype == at::kFloat ? Storage::kFloat32 : Storage::kBfloat16;
}

/// body.template operator()<T>() for the storage type T of `storage`.
template <class Body>
void with_storage(Storage storage, const Body& body) {
  switch (storage) {
    case Storage::kFloat64:
      return body.template operator()<double>();
    case Storage::kFloat32:
      return body.template operator()<float>();
    case Storage::kBfloat16:
      return body.template operator()<bfloat16>();
  }
}

}  // namespace trireme::ops
