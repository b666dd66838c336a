// What every kernel needs in addition to Highway: loads and stores that convert between storage (double, float,
// bfloat16, float16) and the arithmetic type. Loops over a row are in simd/loops-inl.h, functions in simd/math-inl.h.
//
// Included once per instruction set (Highway's foreach_target). A row's tail is padded with zeros and goes through the
// same vector instructions as its body: an element's bits do not depend on its place in the row. Rows are taken two
// vectors at a time. For bfloat16 these are the even and the odd elements of one load, separated by a shift and a mask:
// widening neighbours costs twice as much. Rows of one length are summed in one order. This file rounds bfloat16 to
// nearest even itself, because Highway 1.0.3 truncates and does not support AVX512-BF16.
#if defined(TRIREME_OPS_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TRIREME_OPS_SIMD_INL_H_
#undef TRIREME_OPS_SIMD_INL_H_
#else
#define TRIREME_OPS_SIMD_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <cstring>
#include <type_traits>

#include "trireme/ops/storage.h"

// In namespace trireme::ops, under HWY_ONCE: defines <name>_rows(arguments, first, last), which calls <name> compiled
// for this processor.
#ifndef TRIREME_DISPATCH_ROWS
#define TRIREME_DISPATCH_ROWS(name, Arguments)                                \
  HWY_EXPORT(name);                                                           \
  void name##_rows(const Arguments& arguments, int64_t first, int64_t last) { \
    HWY_DYNAMIC_DISPATCH(name)(arguments, first, last);                       \
  }
#endif

#undef TRIREME_OPS_AVX512
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
#define TRIREME_OPS_AVX512 1
#else
#define TRIREME_OPS_AVX512 0
#endif

HWY_BEFORE_NAMESPACE();
namespace trireme::ops::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class T>
using WideTag = hn::ScalableTag<Wide<T>>;

/// How much of a vector an access covers.
struct Full {};
struct Part {
  size_t count;  ///< 1 .. lanes
};

/// 2 * lanes elements in two vectors: neighbours, or for bfloat16 the even and the odd elements.
template <class V>
struct Pair {
  V first, second;
};

// ---- loads ----
template <class D>
HWY_INLINE hn::Vec<D> load(D d, const hn::TFromD<D>* from, Full) {
  return hn::LoadU(d, from);
}

template <class D>
HWY_INLINE hn::Vec<D> load(D d, const bfloat16* from, Full) {
  const hn::Rebind<uint16_t, D> d16;
  const hn::Rebind<uint32_t, D> d32;
  const auto bits = hn::PromoteTo(d32, hn::LoadU(d16, reinterpret_cast<const uint16_t*>(from)));
  return hn::BitCast(d, hn::ShiftLeft<16>(bits));
}

/// The portable target converts one element at a time: Highway 1.0.3 does not round there.
#if HWY_TARGET == HWY_EMU128 || HWY_TARGET == HWY_SCALAR
template <class D>
HWY_INLINE hn::Vec<D> load(D d, const float16* from, Full) {
  alignas(64) float wide[hn::MaxLanes(D())];
  for (size_t i = 0; i < hn::Lanes(d); ++i) wide[i] = widen(from[i]);
  return hn::Load(d, wide);
}
#else
template <class D>
HWY_INLINE hn::Vec<D> load(D d, const float16* from, Full) {
  const hn::Rebind<hwy::float16_t, D> d16;
  return hn::PromoteTo(d, hn::LoadU(d16, reinterpret_cast<const hwy::float16_t*>(from)));
}
#endif

template <class D, class T>
HWY_INLINE hn::Vec<D> load(D d, const T* from, Part part) {
  alignas(64) T padded[hn::MaxLanes(D())] = {};
  std::memcpy(padded, from, part.count * sizeof(T));
  return load(d, padded, Full{});
}

/// load_line loads a pair as it is in memory; split makes the pair. Many lines can be loaded before the first is split.
template <class D>
HWY_INLINE Pair<hn::Vec<D>> load_line(D d, const hn::TFromD<D>* from) {
  return {hn::LoadU(d, from), hn::LoadU(d, from + hn::Lanes(d))};
}
template <class D, class D32 = hn::Rebind<uint32_t, D>>
HWY_INLINE hn::Vec<D32> load_line(D, const bfloat16* from) {
  return hn::LoadU(D32(), reinterpret_cast<const uint32_t*>(from));
}
template <class D>
HWY_INLINE Pair<hn::Vec<D>> load_line(D d, const float16* from) {
  return {load(d, from, Full{}), load(d, from + hn::Lanes(d), Full{})};
}
template <class D>
HWY_INLINE Pair<hn::Vec<D>> split(D, Pair<hn::Vec<D>> line) {
  return line;
}
template <class D, class D32 = hn::Rebind<uint32_t, D>>
HWY_INLINE Pair<hn::Vec<D>> split(D d, hn::Vec<D32> line) {
  return {hn::BitCast(d, hn::ShiftLeft<16>(line)), hn::BitCast(d, hn::And(line, hn::Set(D32(), 0xFFFF0000)))};
}

template <class D, class T>
HWY_INLINE Pair<hn::Vec<D>> load_pair(D d, const T* from) {
  return split(d, load_line(d, from));
}

// ---- stores ----
template <class D>
HWY_INLINE void store(D d, hn::Vec<D> value, hn::TFromD<D>* to, Full) {
  hn::StoreU(value, d, to);
}

/// Upper halves: `value` rounded to nearest even; NaN stays NaN. Lower halves: undefined.
template <class D, class D32 = hn::Rebind<uint32_t, D>>
HWY_INLINE hn::Vec<D32> rounded_bits(D d, hn::Vec<D> value) {
  const D32 d32;
  const auto bits = hn::BitCast(d32, value);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d32, 1));
  const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(d32, 0x7FFF)));
  const auto quiet_nan = hn::Or(bits, hn::Set(d32, 0x400000));
  return hn::IfThenElse(hn::RebindMask(d32, hn::Ne(value, value)), quiet_nan, rounded);
}

template <class D>
HWY_INLINE void store(D d, hn::Vec<D> value, bfloat16* to, Full) {
  const hn::Rebind<uint16_t, D> d16;
  hn::StoreU(hn::TruncateTo(d16, hn::ShiftRight<16>(rounded_bits(d, value))), d16, reinterpret_cast<uint16_t*>(to));
}

/// kPastCaches does not fetch a line before it overwrites it, and needs addresses that are multiples of 64. The
/// portable target has no such stores: there both ways are the same, so that its slow-to-compile kernels are compiled
/// once.
enum class Way { kCached, kPastCaches = HWY_TARGET == HWY_EMU128 ? kCached : kCached + 1 };

/// How a kernel stores what it need not keep in the caches. float64 is for tests and halves cannot be stored so, so
/// that a second way would only take time to compile.
template <class T>
constexpr Way kPastWay = sizeof(T) == 8 || std::is_same_v<T, float16> ? Way::kCached : Way::kPastCaches;

template <Way kWay, class D, class V, class T>
HWY_INLINE void put_line(D d, V line, T* to) {
  if constexpr (kWay != Way::kCached)
    hn::Stream(line, d, to);
  else
    hn::StoreU(line, d, to);
}

/// At the end of a kernel: makes stores past the caches visible to other threads.
template <Way kWay>
HWY_INLINE void after() {
  if constexpr (kWay != Way::kCached) hwy::FlushStream();
}

template <Way kWay = Way::kCached, class D>
HWY_INLINE void store_pair(D d, Pair<hn::Vec<D>> pair, hn::TFromD<D>* to) {
  put_line<kWay>(d, pair.first, to);
  put_line<kWay>(d, pair.second, to + hn::Lanes(d));
}

template <Way kWay = Way::kCached, class D>
HWY_INLINE void store_pair(D d, Pair<hn::Vec<D>> pair, bfloat16* to) {
#if HWY_TARGET == HWY_SCALAR  // a vector is one element, and two of them cannot be one
  store(d, pair.first, to, Full{});
  store(d, pair.second, to + 1, Full{});
#else
  const hn::Repartition<uint16_t, D> d16;
  const auto even = hn::BitCast(d16, hn::ShiftRight<16>(rounded_bits(d, pair.first)));
  const auto odd = hn::BitCast(d16, rounded_bits(d, pair.second));
  put_line<kWay>(d16, hn::OddEven(odd, even), reinterpret_cast<uint16_t*>(to));
#endif
}

#if HWY_TARGET == HWY_EMU128 || HWY_TARGET == HWY_SCALAR
template <class D>
HWY_INLINE void store(D d, hn::Vec<D> value, float16* to, Full) {
  alignas(64) float wide[hn::MaxLanes(D())];
  hn::Store(value, d, wide);
  for (size_t i = 0; i < hn::Lanes(d); ++i) to[i] = narrow<float16>(wide[i]);
}
#else
template <class D>
HWY_INLINE void store(D d, hn::Vec<D> value, float16* to, Full) {
  const hn::Rebind<hwy::float16_t, D> d16;
  hn::StoreU(hn::DemoteTo(d16, value), d16, reinterpret_cast<hwy::float16_t*>(to));
}
#endif

/// Two halves of a line: past the caches they would be stores of less than a line, so they stay cached.
template <Way kWay = Way::kCached, class D>
HWY_INLINE void store_pair(D d, Pair<hn::Vec<D>> pair, float16* to) {
  store(d, pair.first, to, Full{});
  store(d, pair.second, to + hn::Lanes(d), Full{});
}

#if TRIREME_OPS_AVX512
// In assembly, so that the file needs only AVX-512's flags. The type native_bfloat16 selects this store at run time.
template <class D>
HWY_INLINE void store(D, hn::Vec<D> value, native_bfloat16* to, Full) {
  __m256i bits;
  asm("vcvtneps2bf16 %1, %0" : "=v"(bits) : "v"(value.raw));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), bits);
}

template <Way kWay = Way::kCached, class D>
HWY_INLINE void store_pair(D, Pair<hn::Vec<D>> pair, native_bfloat16* to) {
  const hn::Repartition<uint16_t, D> d16;
  alignas(64) static constexpr uint16_t kInterleave[] = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                                         8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  __m512i halves;
  asm("vcvtne2ps2bf16 %1, %2, %0" : "=v"(halves) : "v"(pair.first.raw), "v"(pair.second.raw));
  const hn::Vec<decltype(d16)> line{_mm512_permutexvar_epi16(_mm512_load_si512(kInterleave), halves)};
  put_line<kWay>(d16, line, reinterpret_cast<uint16_t*>(to));
}
#endif

template <class D, class T>
HWY_INLINE void store(D d, hn::Vec<D> value, T* to, Part part) {
  alignas(64) T padded[hn::MaxLanes(D())];
  store(d, value, padded, Full{});
  std::memcpy(to, padded, part.count * sizeof(T));
}

// ---- order of pairs ----
/// A pair in T's order, from values of the wide type in natural order.
template <class T, class D>
HWY_INLINE Pair<hn::Vec<D>> load_natural(D d, const hn::TFromD<D>* from) {
  if constexpr (!kIsBfloat16<T>) return load_pair(d, from);
  Pair<hn::Vec<D>> pair;
  hn::LoadInterleaved2(d, from, pair.first, pair.second);
  return pair;
}

/// The opposite: stores a pair in T's order as values in natural order.
template <class T, class D>
HWY_INLINE void store_natural(D d, Pair<hn::Vec<D>> pair, hn::TFromD<D>* to) {
  if constexpr (kIsBfloat16<T>)
    hn::StoreInterleaved2(pair.first, pair.second, d, to);
  else
    store_pair(d, pair, to);
}

/// Puts sums [n], which map() has collected beside elements of type T, from the order of pairs into natural order, or
/// back.
template <class T, class D>
HWY_INLINE void to_natural_order(D d, hn::TFromD<D>* sums, int64_t n) {
  if constexpr (!kIsBfloat16<T>) return;
  const int64_t step = 2 * static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i + step <= n; i += step) {
    const auto pair = load_pair(d, sums + i);
    hn::StoreInterleaved2(pair.first, pair.second, d, sums + i);
  }
}
template <class T, class D>
HWY_INLINE void to_pair_order(D d, hn::TFromD<D>* sums, int64_t n) {
  if constexpr (!kIsBfloat16<T>) return;
  const int64_t step = 2 * static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i + step <= n; i += step) store_pair(d, load_natural<T>(d, sums + i), sums + i);
}

/// Calls Kernel<T>::rows(arguments, first, last) for the storage type that arguments.dtype names.
template <template <class> class Kernel, class Arguments>
HWY_INLINE void run(const Arguments& arguments, int64_t first, int64_t last) {
  switch (arguments.dtype) {
    case Storage::kFloat64:
      return Kernel<double>::rows(arguments, first, last);
    case Storage::kFloat32:
      return Kernel<float>::rows(arguments, first, last);
    case Storage::kBfloat16:
#if TRIREME_OPS_AVX512
      if (has_native_bfloat16()) return Kernel<native_bfloat16>::rows(arguments, first, last);
#endif
      return Kernel<bfloat16>::rows(arguments, first, last);
    case Storage::kFloat16:
      return Kernel<float16>::rows(arguments, first, last);
  }
}

}  // namespace trireme::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
