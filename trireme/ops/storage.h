// The element types kernels see: how a value is stored, and in which type arithmetic on it is done.
#pragma once

#include <c10/core/ScalarType.h>

#include <bit>
#include <cstdint>

namespace trireme::ops {

/// 16 bits of a bfloat16 in memory; kernels convert, so it has no arithmetic of its own.
struct bfloat16 {
  uint16_t bits;
};

template <class T>
struct WideOf {
  using Type = T;
};
template <>
struct WideOf<bfloat16> {
  using Type = float;
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

inline double widen(double value) { return value; }
inline float widen(float value) { return value; }
inline float widen(bfloat16 value) { return std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16); }

enum class Storage { kFloat64, kFloat32, kBfloat16 };

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
