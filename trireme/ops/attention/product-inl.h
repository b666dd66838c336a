// The matrix product of all passes of attention, blocked in registers and trimmed to what the mask leaves. P and dS are
// written twice: as pairs along the row (for P V and dS K) and as pairs down the column (for P^T dO and dS^T Q). So
// nothing is transposed.
#pragma once

#include "trireme/ops/attention/math-inl.h"

namespace trireme::ops {
namespace {

/// A vector of the right operand: units as they are packed, or elements that are widened now.
template <class M, class Right>
inline typename M::UnitVec load_right(const Right* b) {
  if constexpr (__is_same(Right, typename M::Unit))
    return M::load_unit(b);
  else
    return M::widen_load(b);
}

/// What is fetched beside vectors of the right operand: nothing.
struct Alone {
  template <int kVectors>
  void fetch() const {}
};
/// What is read next, into the level-2 cache: a little beside each vector, in the order of addresses, so that the
/// processor's own prefetching helps.
class Later {
 public:
  /// Bytes that follow each other.
  struct Run {
    const char *at, *end;
  };

  void add(const void* first, int64_t row_bytes, int64_t stride_bytes, int64_t rows) {
    if (rows > 0) parts_[count_++] = {static_cast<const char*>(first), row_bytes, stride_bytes, rows};
  }
  int64_t bytes() const {
    int64_t sum = 0;
    for (int64_t i = 0; i < count_; ++i) sum += parts_[i].row_bytes * parts_[i].left;
    return sum;
  }
  Run next_run() {
    while (now_ < count_ && parts_[now_].left == 0) ++now_;
    if (now_ == count_) return {nullptr, nullptr};
    Rows& rows = parts_[now_];
    const Run run{rows.next, rows.next + rows.row_bytes};
    rows.next += rows.stride_bytes, --rows.left;
    return run;
  }

 private:
  struct Rows {
    const char* next;
    int64_t row_bytes, stride_bytes, left;
  };
  int64_t count_ = 0, now_ = 0;
  Rows parts_[4];  // the first count_ are set
};
class Beside {
 public:
  /// All of `later`, divided evenly between `vectors` vectors; finish() fetches the little that does not fit.
  Beside(Later& later, int64_t vectors) : later_(&later) {
    const int64_t each = (later.bytes() + vectors - 1) / larger(1, vectors);
    lines_ = larger(1, (each + 47) / 64), step_ = smaller(64, round_up(each, 16));
    if (each > 0)
      run_ = later.next_run();
    else
      end();
  }
  /// The share of kVectors vectors.
  template <int kVectors>
  __attribute__((always_inline)) void fetch() {
    if (lines_ == 1 && run_.end - run_.at > (kVectors - 1) * step_) [[likely]] {
#pragma GCC unroll 8
      for (int64_t i = 0; i < kVectors; ++i) __builtin_prefetch(run_.at + i * step_, 0, 2);
      run_.at += kVectors * step_;
    } else {
      *this = slowly(*this, kVectors);
    }
  }
  void finish() {
    while (step_ > 0) *this = slowly(*this, 16);
  }

 private:
  /// The same across the ends of runs. By value, so that its caller has the members in registers.
  __attribute__((noinline)) static Beside slowly(Beside beside, int64_t vectors) {
    for (int64_t i = 0; i < beside.lines_ * vectors; ++i) {
      if (beside.run_.at >= beside.run_.end) beside.run_ = beside.later_->next_run();
      if (beside.run_.at == nullptr) {
        beside.end();
        return beside;
      }
      __builtin_prefetch(beside.run_.at, 0, 2);
      beside.run_.at += beside.step_;
    }
    return beside;
  }
  /// Nothing is left. A line that is there already costs less than a jump.
  void end() {
    static const char line[64] = {};
    run_ = {line, line + 64}, step_ = 0, lines_ = 1;
  }

  Later* later_;
  Later::Run run_ = {nullptr, nullptr};
  int64_t step_, lines_;
};

/// C [kRows, NV vectors] (+)= sum over p of A(i, p) B(p, :), where A(i, p) = a[i * row + p * step] is broadcast.
template <class M, int kRows, int NV, class Right, class Fetch>
inline __attribute__((always_inline)) void multiply_tile(int64_t count, const typename M::Unit* a, int64_t row,
                                                         int64_t step, const Right* b, int64_t ldb, typename M::Acc* c,
                                                         int64_t ldc, bool accumulate, Fetch& fetch) {
  Fetch beside = fetch;  // in registers
  typename M::Vec sum[kRows][NV];
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 8
    for (int j = 0; j < NV; ++j) sum[i][j] = accumulate ? M::load(c + i * ldc + j * M::kLanes) : M::splat(0);
  for (int64_t p = 0; p < count; ++p) {
    beside.template fetch<NV>();
    typename M::UnitVec right[NV];
#pragma GCC unroll 8
    for (int j = 0; j < NV; ++j) right[j] = load_right<M>(b + j * M::kLanes);
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      const typename M::UnitVec left = M::splat_unit(a[i * row]);
#pragma GCC unroll 8
      for (int j = 0; j < NV; ++j) sum[i][j] = M::multiply_add(sum[i][j], left, right[j]);
    }
    a += step, b += ldb;
  }
#pragma GCC unroll 8
  for (int i = 0; i < kRows; ++i)
#pragma GCC unroll 8
    for (int j = 0; j < NV; ++j) M::store(c + i * ldc + j * M::kLanes, sum[i][j]);
  fetch = beside;
}

/// multiply_tile of `vectors` vectors, 1 to kMost.
template <class M, int kRows, int kMost, class Right, class Fetch>
inline __attribute__((always_inline)) void multiply_vectors(int64_t vectors, int64_t count, const typename M::Unit* a,
                                                            int64_t row, int64_t step, const Right* b, int64_t ldb,
                                                            typename M::Acc* c, int64_t ldc, bool accumulate,
                                                            Fetch& fetch) {
  if (vectors == kMost) return multiply_tile<M, kRows, kMost>(count, a, row, step, b, ldb, c, ldc, accumulate, fetch);
  if constexpr (kMost > 1)
    multiply_vectors<M, kRows, kMost - 1>(vectors, count, a, row, step, b, ldb, c, ldc, accumulate, fetch);
}

/// Prefetches rows that will soon be read or written, a few at a time, between register tiles. The rows are too far
/// apart for the processor's own prefetching. Prefetching all at once would stall just as reading them does.
struct Ahead {
  struct Rows {
    const char* next;
    int64_t stride_bytes, left;
  };
  int64_t row_bytes;
  int64_t num_waiting = 0;
  Rows waiting[4] = {};

  template <class T>
  void add(const T* first, int64_t stride, int64_t rows) {
    const auto element = static_cast<int64_t>(sizeof(T));
    waiting[num_waiting++] = {reinterpret_cast<const char*>(first), stride * element, rows};
  }
  void step() {
    for (int64_t row = 0; row < 2 && num_waiting > 0; ++row) {
      Rows& rows = waiting[num_waiting - 1];
      for (int64_t i = 0; i < row_bytes; i += 64) __builtin_prefetch(rows.next + i, 0, 3);
      rows.next += rows.stride_bytes;
      if (--rows.left == 0) --num_waiting;
    }
  }
};

/// What a mask leaves of one row tile: the units [begin, end) of the sum (none if end <= begin), and the vectors
/// [first, vectors) of the columns.
struct Trim {
  int64_t begin, end, first, vectors;
};

/// Vectors of a register tile. Few rows leave registers for more: sums, right operands and one left.
template <class M, int kRows>
constexpr int64_t panel_of() {
  constexpr int64_t kRegisters = sizeof(typename M::Vec) == 64 ? 32 : 16;
  return kRows == kTile ? M::kPanel : smaller(8, (kRegisters - 1) / (kRows + 1));
}

/// C [rows, vectors] (+)= A B, each tile of kRows rows trimmed by trim(first row); `ahead` takes a step per tile.
template <class M, int kRows = kTile, class Right, class TrimOf, class Fetch = Alone>
void multiply(int64_t rows, int64_t vectors, const typename M::Unit* a, int64_t row, int64_t step, const Right* b,
              int64_t ldb, typename M::Acc* c, int64_t ldc, bool accumulate, Ahead& ahead, TrimOf trim,
              Fetch&& fetch = {}) {
  constexpr int64_t kPanel = panel_of<M, kRows>();
  const int64_t panels = (vectors + kPanel - 1) / kPanel, width = (vectors + panels - 1) / panels;
  for (int64_t j = 0; j < vectors; j += width) {
    for (int64_t i = 0; i < rows; i += kRows) {
      const Trim t = trim(i);
      const int64_t n = smaller(smaller(width, vectors - j), t.vectors - j), count = larger(0, t.end - t.begin);
      if (t.first >= j + width || (accumulate && count == 0)) continue;
      ahead.step();
      const auto* at = a + i * row + t.begin * step;
      const auto* bt = b + t.begin * ldb + j * M::kLanes;
      auto* ct = c + i * ldc + j * M::kLanes;
      multiply_vectors<M, kRows, kPanel>(n, count, at, row, step, bt, ldb, ct, ldc, accumulate, fetch);
    }
  }
}

}  // namespace
}  // namespace trireme::ops
