#include "trireme/ops/elementwise/elementwise_kernels.h"

#include <cstring>
#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "trireme/ops/elementwise/elementwise_kernels.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes before every header that is compiled per target.
#include "trireme/ops/simd/loops-inl.h"
#include "trireme/ops/simd/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace trireme::ops::HWY_NAMESPACE {
namespace {

template <class T>
struct Add {
  static void rows(const AddArguments& args, int64_t first, int64_t last) {
    args.past_caches ? rows<kPastWay<T>>(args, first, last) : rows<Way::kCached>(args, first, last);
  }

  template <Way kWay>
  static void rows(const AddArguments& args, int64_t first, int64_t last) {
    const WideTag<T> d;
    for (int64_t t = first; t < last; ++t) {
      const T* a = static_cast<const T*>(args.a) + t * args.width;
      const T* b = static_cast<const T*>(args.b) + t * args.b_stride;
      map(
          d, args.width, outputs<kWay>(static_cast<T*>(args.y) + t * args.width),
          [](auto va, auto vb) HWY_ATTR { return values(hn::Add(va, vb)); }, a, b);
    }
    after<kWay>();
  }
};

template <class T>
struct Accumulate {
  static void rows(const AccumulateArguments& args, int64_t first, int64_t last) {
    const WideTag<T> d;
    for (int64_t t = first; t < last; ++t) {
      auto* sum = static_cast<Wide<T>*>(args.sum) + t * args.width;
      const T* x = static_cast<const T*>(args.x) + t * args.width;
      const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
      int64_t i = 0;  // vector by vector, because sums are in natural order
      for (; i + lanes <= args.width; i += lanes)
        store(d, hn::Add(load(d, sum + i, Full{}), load(d, x + i, Full{})), sum + i, Full{});
      if (i == args.width) continue;
      const Part rest{static_cast<size_t>(args.width - i)};
      store(d, hn::Add(load(d, sum + i, rest), load(d, x + i, rest)), sum + i, rest);
    }
  }
};

template <class T>
struct SumColumns {
  static void rows(const ColumnSum& args, int64_t first, int64_t last) {
    const WideTag<T> d;
    const int64_t width = args.width;
    auto* sum = static_cast<Wide<T>*>(args.sum);
    to_pair_order<T>(d, sum, width);
    for (int64_t t = first; t < last; ++t)
      map(
          d, width, outputs(sum), [](auto s, auto x) HWY_ATTR { return values(hn::Add(s, x)); }, sum,
          static_cast<const T*>(args.x) + t * width);
    to_natural_order<T>(d, sum, width);
  }
};

// The processor cannot predict rows in random order. So each row is prefetched during earlier ones, a few lines at a
// time: a whole row at once would delay the current work (Cascade Lake: a fifth slower).
constexpr int64_t kAheadRows = 12;

template <class T>
HWY_INLINE void fetch_row(const T* row, int64_t width) {
  constexpr int64_t kLine = 64 / sizeof(T);
  for (int64_t i = 0; i < width; i += kLine) fetch(row + i);
}

template <class T>
struct SumGathered {
  using D = WideTag<T>;
  static constexpr int64_t kLanes = hn::MaxLanes(D());
  static constexpr int64_t kPairs = kLanes == 16 ? 8 : 4;  // half of the registers

  static void rows(const GatherSum& args, int64_t first, int64_t last) {
    args.wide ? rows_to<Wide<T>>(args, first, last) : rows_to<T>(args, first, last);
  }

  template <class Out>
  static void rows_to(const GatherSum& args, int64_t first, int64_t last) {
    for (int64_t v = first; v < last; ++v) {
      Out* out = static_cast<Out*>(args.out) + v * args.width;
      if (args.first[v] == args.first[v + 1]) {
        if (!args.accumulate) std::memset(out, 0, args.width * sizeof(Out));
        continue;
      }
      int64_t i = 0;
      for (; i + 2 * kPairs * kLanes <= args.width; i += 2 * kPairs * kLanes) wide_piece(args, v, i, out + i);
      for (; i < args.width; i += kLanes)
        piece(args, v, i, Part{static_cast<size_t>(std::min(kLanes, args.width - i))}, out + i);
    }
  }

  template <class Out>
  static HWY_INLINE void wide_piece(const GatherSum& args, int64_t v, int64_t column, Out* out) {
    const D d;
    const T* from = static_cast<const T*>(args.rows) + column;
    Pair<hn::Vec<D>> sums[kPairs];
    for (auto& sum : sums) sum = {hn::Zero(d), hn::Zero(d)};
    for (int64_t k = args.first[v]; k < args.first[v + 1]; ++k) {
      const T* row = from + args.order[k] * args.width;
      const T* later = from + args.order[std::min(k + kAheadRows, args.count - 1)] * args.width;
      for (int64_t p = 0; p < kPairs; ++p) {
        fetch_row(later + 2 * p * kLanes, 2 * kLanes);
        const auto pair = load_pair(d, row + 2 * p * kLanes);
        sums[p] = {hn::Add(sums[p].first, pair.first), hn::Add(sums[p].second, pair.second)};
      }
    }
    const auto scale = hn::Set(d, Wide<T>(args.scale));
    for (int64_t p = 0; p < kPairs; ++p) {
      Out* to = out + 2 * p * kLanes;
      Pair<hn::Vec<D>> sum{hn::Mul(sums[p].first, scale), hn::Mul(sums[p].second, scale)};
      if constexpr (std::is_same_v<Out, T>) {
        if (args.accumulate) sum = added(sum, load_pair(d, to));
        store_pair(d, sum, to);
      } else {
        if (args.accumulate) sum = added(sum, load_natural<T>(d, to));
        store_natural<T>(d, sum, to);
      }
    }
  }

  static HWY_INLINE Pair<hn::Vec<D>> added(Pair<hn::Vec<D>> a, Pair<hn::Vec<D>> b) {
    return {hn::Add(a.first, b.first), hn::Add(a.second, b.second)};
  }

  template <class Out>
  static HWY_INLINE void piece(const GatherSum& args, int64_t v, int64_t column, Part part, Out* out) {
    const D d;
    auto sum = hn::Zero(d);
    for (int64_t k = args.first[v]; k < args.first[v + 1]; ++k)
      sum = hn::Add(sum, load(d, static_cast<const T*>(args.rows) + args.order[k] * args.width + column, part));
    sum = hn::Mul(sum, hn::Set(d, Wide<T>(args.scale)));
    store(d, args.accumulate ? hn::Add(sum, load(d, out, part)) : sum, out, part);
  }
};

// Stores y through the caches: beside the loads of the table, fetching lines of y takes less time than stores past the
// caches (Cascade Lake: 32 instead of 39 ms).
template <class T>
struct GatherRows {
  static void rows(const Gather& args, int64_t first, int64_t last) {
    const WideTag<T> d;
    const int64_t width = args.width;
    const T *table = static_cast<const T*>(args.table), *addends = static_cast<const T*>(args.addends);
    const auto scale = hn::Set(d, Wide<T>(args.scale));
    const auto same = [](auto v) HWY_ATTR { return values(v); };
    const auto scaled = [=](auto v) HWY_ATTR { return values(hn::Mul(v, scale)); };
    const auto sum = [=](auto v, auto a) HWY_ATTR { return values(hn::MulAdd(v, scale, a)); };
    constexpr int64_t kPiece = 8 * hn::MaxLanes(WideTag<T>());  // a burst, as map() asks for
    for (int64_t t = first; t < last; ++t) {
      T* y = static_cast<T*>(args.y) + t * width;
      const T* from = args.ids[t] < 0 ? nullptr : table + args.ids[t] * width;
      const T* addend = addends == nullptr ? nullptr : addends + place(args, t) * width;
      const int64_t after = std::min(t + kAheadRows, last - 1);
      const T *later = table + std::max<int64_t>(0, args.ids[after]) * width, *y_later = y + (after - t) * width;
      for (int64_t i = 0; i < width; i += kPiece) {
        const int64_t n = std::min(kPiece, width - i);
        fetch_row(later + i, n), fetch_row(y_later + i, n);
        if (from != nullptr && addend != nullptr)
          map(d, n, outputs(y + i), sum, from + i, addend + i);
        else if (from != nullptr)
          map(d, n, outputs(y + i), scaled, from + i);
        else if (addend != nullptr)
          map(d, n, outputs(y + i), same, addend + i);
        else
          std::memset(y + i, 0, n * sizeof(T));
      }
    }
  }

  static int64_t place(const Gather& args, int64_t t) {
    return args.places != nullptr ? args.places[t] : t % args.sequence;
  }
};

/// Half-split pairs: (x_i, x_{i + d/2}) -> (x_i c - x_{i+d/2} s, x_{i+d/2} c + x_i s) for each rotated head.
template <class T>
struct Rotate {
  using D = WideTag<T>;
  using V = hn::Vec<D>;

  static void rows(const RotaryArguments& args, int64_t first, int64_t last) {
    const D d;
    const int64_t half = args.half_dim, lanes = static_cast<int64_t>(hn::Lanes(d));
    for (int64_t t = first; t < last; ++t) {
      const int64_t position = args.positions != nullptr ? args.positions[t] : t % args.sequence;
      const auto* cosine = static_cast<const Wide<T>*>(args.cosine) + position * half;
      const auto* sine = static_cast<const Wide<T>*>(args.sine) + position * half;
      T* row = static_cast<T*>(args.qkv) + t * args.row_width;
      T* end = row + args.num_rotated_heads * args.head_dim;
      int64_t i = 0;
      for (; i + 2 * lanes <= half; i += 2 * lanes) {
        const auto c = load_natural<T>(d, cosine + i), s = signed_sine(args, load_natural<T>(d, sine + i));
        T* low = row + i;
        for (; low + args.head_dim < end; low += 2 * args.head_dim) rotate_heads<2>(args, low, c, s);
        if (low < end) rotate_heads<1>(args, low, c, s);
      }
      for (; i < half; i += lanes) {
        const Part part{static_cast<size_t>(std::min(lanes, half - i))};
        const V c = load(d, cosine + i, part), s = signed_sine(args, {load(d, sine + i, part), hn::Zero(d)}).first;
        for (T* low = row + i; low < end; low += args.head_dim) {
          const V a = load(d, low, part), b = load(d, low + half, part);
          store(d, hn::NegMulAdd(b, s, hn::Mul(a, c)), low, part);
          store(d, hn::MulAdd(a, s, hn::Mul(b, c)), low + half, part);
        }
      }
      touch(end, row + args.row_width);
    }
  }

  static HWY_INLINE Pair<V> signed_sine(const RotaryArguments& args, Pair<V> sine) {
    const V sign = hn::Set(D(), args.inverse ? -1 : 1);
    return {hn::Mul(sign, sine.first), hn::Mul(sign, sine.second)};
  }

  /// A pair of each half of kHeads heads, whose lines are loaded at once.
  template <int kHeads>
  static HWY_INLINE void rotate_heads(const RotaryArguments& args, T* low, Pair<V> c, Pair<V> s) {
    const D d;
    const int64_t half = args.half_dim;
    Pair<V> a[kHeads], b[kHeads];
    for (int h = 0; h < kHeads; ++h) {
      T* head = low + h * args.head_dim;
      a[h] = load_pair(d, head), b[h] = load_pair(d, head + half);
    }
    for (int h = 0; h < kHeads; ++h) {
      T* head = low + h * args.head_dim;
      store_pair(
          d, {turned(a[h].first, b[h].first, c.first, s.first), turned(a[h].second, b[h].second, c.second, s.second)},
          head);
      store_pair(d,
                 {hn::MulAdd(a[h].first, s.first, hn::Mul(b[h].first, c.first)),
                  hn::MulAdd(a[h].second, s.second, hn::Mul(b[h].second, c.second))},
                 head + half);
    }
  }
  static HWY_INLINE V turned(V a, V b, V c, V s) { return hn::NegMulAdd(b, s, hn::Mul(a, c)); }
};

void add(const AddArguments& a, int64_t first, int64_t last) { run<Add>(a, first, last); }
void accumulate(const AccumulateArguments& a, int64_t first, int64_t last) { run<Accumulate>(a, first, last); }
void column_sum(const ColumnSum& a, int64_t first, int64_t last) { run<SumColumns>(a, first, last); }
void gather_sum(const GatherSum& a, int64_t first, int64_t last) { run<SumGathered>(a, first, last); }
void gather(const Gather& a, int64_t first, int64_t last) { run<GatherRows>(a, first, last); }
void rotary(const RotaryArguments& a, int64_t first, int64_t last) { run<Rotate>(a, first, last); }

}  // namespace
}  // namespace trireme::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trireme::ops {

TRIREME_DISPATCH_ROWS(add, AddArguments)
TRIREME_DISPATCH_ROWS(accumulate, AccumulateArguments)
TRIREME_DISPATCH_ROWS(column_sum, ColumnSum)
TRIREME_DISPATCH_ROWS(gather_sum, GatherSum)
TRIREME_DISPATCH_ROWS(gather, Gather)
TRIREME_DISPATCH_ROWS(rotary, RotaryArguments)

}  // namespace trireme::ops
#endif  // HWY_ONCE
