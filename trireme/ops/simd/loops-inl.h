// Loops over a row: map(), sum_of() and row_maximum(), on the loads and stores of simd-inl.h. Included once per
// instruction set, as that.
#if defined(TRIREME_OPS_SIMD_LOOPS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TRIREME_OPS_SIMD_LOOPS_INL_H_
#undef TRIREME_OPS_SIMD_LOOPS_INL_H_
#else
#define TRIREME_OPS_SIMD_LOOPS_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <tuple>
#include <utility>

#include "trireme/ops/simd/simd-inl.h"
#include "trireme/ops/storage.h"

HWY_BEFORE_NAMESPACE();
namespace trireme::ops::HWY_NAMESPACE {

/// The result of a function of map(), one value for each output, or of sum_of(), one for each sum.
template <class V, size_t kCount>
struct Values {
  V v[kCount];
};
template <class V, class... Rest>
HWY_INLINE Values<V, 1 + sizeof...(Rest)> values(V first, Rest... rest) {
  return {{first, rest...}};
}

/// Where map() stores its results. The first kAside outputs are stored as kWay says. The others are sums to which the
/// next row adds: they stay in the caches.
template <Way kWay, size_t kAside, class... T>
struct Outputs {
  static constexpr std::index_sequence_for<T...> kIndices{};
  std::tuple<T*...> to;

  template <class D, class Result, size_t... k>
  HWY_INLINE void put_pair(D d, Result first, Result second, int64_t i, std::index_sequence<k...>) const {
    (store_pair<(k < kAside ? kWay : Way::kCached)>(d, Pair<hn::Vec<D>>{first.v[k], second.v[k]}, std::get<k>(to) + i),
     ...);
  }
  template <class D, class Result, class Count, size_t... k>
  HWY_INLINE void put(D d, Result result, int64_t i, Count count, std::index_sequence<k...>) const {
    (store(d, result.v[k], std::get<k>(to) + i, count), ...);
  }
};
template <Way kWay = Way::kCached, size_t kAside = SIZE_MAX, class... T>
HWY_INLINE Outputs<kWay, kAside, T...> outputs(T*... to) {
  return {{to...}};
}
/// How many cache lines of each input are loaded at once if there are `inputs` of them. A core waits for few lines at a
/// time. Bursts let it recognise a row and prefetch it (Zen 4: 27 instead of 16 GB/s).
constexpr size_t burst_lines(size_t inputs) { return HWY_TARGET == HWY_EMU128 || inputs > 3 ? 1 : inputs == 3 ? 2 : 4; }

template <class Line, size_t kLines>
struct Lines {
  Line line[kLines];
};
template <class D, class T, size_t... k>
HWY_INLINE auto load_lines(D d, const T* from, std::index_sequence<k...>) {
  const int64_t step = 2 * static_cast<int64_t>(hn::Lanes(d));
  return Lines<decltype(load_line(d, from)), sizeof...(k)>{{load_line(d, from + static_cast<int64_t>(k) * step)...}};
}

template <size_t k, class D, class Body, class... L>
HWY_INLINE void one_line(D d, int64_t i, const Body& body, const L&... lines) {
  const int64_t step = 2 * static_cast<int64_t>(hn::Lanes(d));
  body(i + static_cast<int64_t>(k) * step, std::integral_constant<size_t, k>{}, split(d, lines.line[k])...);
}
template <class D, class Body, size_t... k, class... L>
HWY_INLINE void all_lines(D d, int64_t i, const Body& body, std::index_sequence<k...>, const L&... lines) {
  (one_line<k>(d, i, body, lines...), ...);
}

/// How many elements a loop covers, and how far it prefetches. If arithmetic takes longer than memory, elements are
/// prefetched `ahead` elements before their use. Otherwise `ahead` is 0, because prefetching would only cost time.
struct Extent {
  int64_t n;
  int64_t ahead;
  Extent(int64_t num, int64_t further = 0) : n(num), ahead(further) {}
};

/// Prefetches into the second-level cache. The first level can wait for few lines at once, and the loads need those.
template <class T>
HWY_INLINE void fetch(const T* from) {
  __builtin_prefetch(from, 0, 2);
}
template <class T>
HWY_INLINE void fetch_line(int64_t ahead, const T* from) {
  if (ahead != 0) fetch(from + ahead);
}

/// Reads the unused part of a row between the parts that a kernel uses. The processor prefetches no rows with gaps
/// between them: this would halve the speed in memory (Zen 4: 20 instead of 48 GB/s).
template <class T>
HWY_INLINE void touch(const T* from, const T* end) {
  constexpr int64_t kLine = 64 / sizeof(T);
  for (; from < end; from += kLine) static_cast<void>(*reinterpret_cast<const volatile char*>(from));
}

/// Calls body(i, k, pairs...) for each pair of vectors of the inputs; k counts the lines of a burst. Returns the number
/// of elements done.
template <class D, class Body, size_t... k, class... From>
HWY_INLINE int64_t each_pair(D d, Extent extent, const Body& body, std::index_sequence<k...> burst,
                             const From*... from) {
  const int64_t n = extent.n;
  const int64_t step = 2 * static_cast<int64_t>(hn::Lanes(d));
  constexpr int64_t kLines = sizeof...(k);
  int64_t i = 0;
  for (; i + kLines * step <= n; i += kLines * step) {
    (fetch_line(extent.ahead, from + i), ...);
    if constexpr (kLines > 1) (fetch_line(extent.ahead, from + i + step), ...);
    if constexpr (kLines > 2) (fetch_line(extent.ahead, from + i + 2 * step), ...);
    if constexpr (kLines > 2) (fetch_line(extent.ahead, from + i + 3 * step), ...);
    all_lines(d, i, body, burst, load_lines(d, from + i, burst)...);
  }
  for (; i + step <= n; i += step) body(i, std::integral_constant<size_t, 0>{}, load_pair(d, from + i)...);
  return i;
}

/// to[i]... = f(from[i]...) for n elements. Inputs are read before outputs are written, so an output may be the memory
/// of an input. Arrays of the wide type beside bfloat16 arrays must be in the order of pairs (simd-inl.h).
template <class D, class F, class To, class... From>
HWY_INLINE void map(D d, Extent extent, To to, const F& f, const From*... from) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t n = extent.n;
  const auto both = [&](int64_t i, auto, auto... pair)
                        HWY_ATTR { to.put_pair(d, f(pair.first...), f(pair.second...), i, To::kIndices); };
  int64_t i = each_pair(d, extent, both, std::make_index_sequence<burst_lines(sizeof...(From))>{}, from...);
  for (; i < n; i += lanes) {
    const Part part{static_cast<size_t>(std::min(lanes, n - i))};
    to.put(d, f(load(d, from + i, part)...), i, part, To::kIndices);
  }
}

/// As map() with one output, but with two lines of each input at a time: f(x, others...) gets arrays of vectors and
/// writes its results to x. f should do each step for all vectors before the next step. The processor looks 64
/// operations ahead (Zen 4), and then finds more to do at once.
template <Way kWay = Way::kCached, class D, class T, class F, class... From>
HWY_INLINE void map_batches(D d, Extent extent, T* to, const F& f, const From*... from) {
  using V = hn::Vec<D>;
  const int64_t step = 2 * static_cast<int64_t>(hn::Lanes(d));
  const auto batch = [&](int64_t i, auto&& x, auto&&... others) HWY_ATTR {
    f(x.v, others.v...);
    store_pair<kWay>(d, Pair<V>{x.v[0], x.v[1]}, to + i);
    store_pair<kWay>(d, Pair<V>{x.v[2], x.v[3]}, to + i + step);
  };
  const auto two_lines = [&](const auto* at) HWY_ATTR {
    const auto lines = load_lines(d, at, std::make_index_sequence<2>{});
    const auto first = split(d, lines.line[0]), second = split(d, lines.line[1]);
    return values(first.first, first.second, second.first, second.second);
  };
  int64_t i = 0;
  for (; i + 2 * step <= extent.n; i += 2 * step) {
    (fetch_line(extent.ahead, from + i), ...);
    (fetch_line(extent.ahead, from + i + step), ...);
    batch(i, two_lines(from + i)...);
  }
  const auto one = [&](V x, auto... others) HWY_ATTR {
    V result[] = {x};
    f(result, {others}...);
    return values(result[0]);
  };
  map(d, Extent(extent.n - i, extent.ahead), outputs<kWay>(to + i), one, (from + i)...);
}

/// kSums sums over n elements, in an order that depends on n alone. f(sums, from[i]...) returns the sums with one more
/// element added. If the element is a product, f adds it by a multiply-add.
template <size_t kSums, class D, class F, class... From>
HWY_INLINE auto sum_of(D d, Extent extent, const F& f, const From*... from) {
  using V = hn::Vec<D>;
  const int64_t n = extent.n, lanes = static_cast<int64_t>(hn::Lanes(d));
  Values<V, kSums> sums[4];
  for (auto& chain : sums)
    for (auto& sum : chain.v) sum = hn::Zero(d);
  const auto both = [&](int64_t, auto line, auto... pair) HWY_ATTR {
    constexpr size_t kChain = 2 * (line() % 2);
    sums[kChain] = f(sums[kChain], pair.first...);
    sums[kChain + 1] = f(sums[kChain + 1], pair.second...);
  };
  int64_t i = each_pair(d, extent, both, std::make_index_sequence<burst_lines(sizeof...(From))>{}, from...);
  for (; i < n; i += lanes) {
    const Part part{static_cast<size_t>(std::min(lanes, n - i))};
    const auto added = f(sums[1], load(d, from + i, part)...);
    for (size_t k = 0; k < kSums; ++k)
      sums[1].v[k] = hn::IfThenElse(hn::FirstN(d, part.count), added.v[k], sums[1].v[k]);
  }
  std::array<hn::TFromD<D>, kSums> totals;
  for (size_t k = 0; k < kSums; ++k)
    totals[k] = hn::GetLane(
        hn::SumOfLanes(d, hn::Add(hn::Add(sums[0].v[k], sums[1].v[k]), hn::Add(sums[2].v[k], sums[3].v[k]))));
  return totals;
}

/// The largest of n >= 1 elements. A NaN may be ignored.
template <class T, class D = WideTag<T>>
HWY_INLINE Wide<T> row_maximum(const T* x, int64_t n) {
  const D d;
  const int64_t step = 2 * static_cast<int64_t>(hn::Lanes(d));
  Wide<T> largest = widen(x[0]);
  if (n < step) {
    for (int64_t i = 1; i < n; ++i) largest = std::max(largest, widen(x[i]));
    return largest;
  }
  auto m0 = load_pair(d, x), m1 = m0;
  const auto keep_larger = [](auto& m, auto pair)
                               HWY_ATTR { m = {hn::Max(m.first, pair.first), hn::Max(m.second, pair.second)}; };
  const auto keep = [&](int64_t, auto line, auto pair) HWY_ATTR { keep_larger(line() % 2 == 0 ? m0 : m1, pair); };
  each_pair(d, n, keep, std::make_index_sequence<burst_lines(1)>{}, x);
  // The last vectors may overlap earlier ones: that does not change a maximum.
  keep_larger(m1, load_pair(d, x + n - step));
  keep_larger(m0, m1);
  return hn::GetLane(hn::MaxOfLanes(d, hn::Max(m0.first, m0.second)));
}

}  // namespace trireme::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
