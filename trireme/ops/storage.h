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

/// The arithmetic (and statistics) type of a storage type.
template <class T>
using Wide = std::conditional_t<kIsBfloat16<T>, float, T>;

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

inline double widen(double value) { return value; }
inline float widen(float value) { return value; }
inline float widen(bfloat16 value) { return std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16); }

enum class Storage { kFloat64, kFloat32, kBfloat16 };

/// Whether kernels use AVX512-BF16 if the processor has it; tests switch it off to run the other kernels.
inline std::atomic<bool> native_bfloat16_allowed = true;

inline bool has_native_bfloat16() {
  return base::processor().avx512_bf16 && native_bfloat16_allowed.load(std::memory_order_relaxed);
}

/// The storage type of `dtype`, which has passed compute_dtype().
inline Storage storage_of(at::ScalarType dtype) {
  return dtype == at::kDouble ? Storage::kFloat64 : dtype == at::kFloat ? Storage::kFloat32 : Storage::kBfloat16;
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
  }
}

}  // namespace trireme::ops
