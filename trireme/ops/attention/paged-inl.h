// Attention of new tokens to a cache in pages, with the bits of the forward pass (forward-inl.h): the same blocks of
// keys at the same multiples, the same products and the same sums. A row's bits depend neither on the rows beside it
// nor on how a sequence was cut into runs.
//
// The rows of a task are new tokens of one sequence times the query heads of one kv head: token after token, because
// the keys that a row sees then end later from row to row. Products read a block of keys in its page. Where elements
// must be widened for many rows, or heads are no whole vectors, a block is unpacked once for all rows.
#pragma once

#include "trireme/ops/attention/forward-inl.h"
#include "trireme/ops/attention/pages-inl.h"

namespace trireme::ops {
namespace {

template <class M, class Storage>
struct Paged {
  using Acc = typename M::Acc;
  using Unit = typename M::Unit;
  using Order = PageOrder<M, Storage>;
  static constexpr int64_t kKeys = kKeyBlock<M>, kBlock = kAttentionQueryBlock;

  const PagedCall& call;
  const PagedTask& task;
  const PagedTask* const next;
  char* cursor;
  const PagedSequence& sequence = *task.sequence;
  const int64_t group = call.num_heads / call.num_kv_heads, rows = task.tokens * group, padded = round_up(rows, kTile),
                d = call.head_dim, dim = round_up(d, 16);
  const Acc c = static_cast<Acc>((call.softcap != 0 ? call.softcap : call.scale) * kLog2e),
            cap_factor = static_cast<Acc>(call.softcap != 0 ? call.scale / call.softcap : 0);
  Unit* const k_units = take<Unit>(kKeys * dim / M::kPair);
  Unit* const v_units = take<Unit>(kKeys * dim / M::kPair);
  Unit* const q_rows = take<Unit>(padded * dim / M::kPair);
  Acc* const scores = take<Acc>(kBlock * kKeys);
  Unit* const p = M::kPair == 1 ? reinterpret_cast<Unit*>(scores) : take<Unit>(kBlock * kKeys / M::kPair);
  const Running<Acc> state{take<Acc>(padded), take<Acc>(padded* M::kLanes), take<Acc>(padded* dim)};
  int64_t* const first = take<int64_t>(padded);
  int64_t* const last = take<int64_t>(padded);
  Ahead ahead{d * static_cast<int64_t>(sizeof(Storage))};
  const AttentionDrops no_drops{};
  const Drops<M> none{no_drops};

  template <class T>
  T* take(int64_t count) {
    char* at = cursor;
    cursor += round_up(count * static_cast<int64_t>(sizeof(T)), 64);
    return reinterpret_cast<T*>(at);
  }

  int64_t token(int64_t row) const { return task.first_token + row / group; }
  int64_t head(int64_t row) const { return task.kv_head * group + row % group; }
  int64_t position(int64_t row) const { return sequence.length - sequence.tokens + token(row); }
  /// The block of keys or values from `key` on.
  const Storage* cached(const void* pages, const PagedTask& of, int64_t key) const {
    const int64_t page = of.sequence->pages[key / kAttentionPage] * call.num_kv_heads + of.kv_head;
    return static_cast<const Storage*>(pages) + page * kAttentionPage * d + Order::block(key % kAttentionPage, d);
  }
  const Storage* cached(const void* pages, int64_t key) const { return cached(pages, task, key); }

  void pack_queries() const {
    for (int64_t r = 0; r < padded; ++r) {
      const bool is_row = r < rows;
      const Storage* from = static_cast<const Storage*>(call.q);
      if (is_row) from += (sequence.first_row + token(r)) * call.q_stride + head(r) * d;
      pack_rows<M>(q_rows + r * dim / M::kPair, from, 0, is_row ? 1 : 0, 1, d, dim);
    }
  }

  /// The first key that any row of a task sees.
  int64_t first_key_of(const PagedTask& of) const {
    const int64_t at = of.sequence->length - of.sequence->tokens + of.first_token;
    return call.window > 0 ? larger(0, at - call.window + 1) : 0;
  }

  /// Rows beyond the last see what the last row sees.
  void find_keys() const {
    for (int64_t r = 0; r < padded; ++r) {
      const int64_t at = position(smaller(r, rows - 1));
      last[r] = at + 1;
      first[r] = call.window > 0 ? larger(0, at - call.window + 1) : 0;
    }
  }

  template <class Right>
  struct Block {
    const Right *k, *v;
  };
  template <class Right>
  Block<Right> in_pages(int64_t k0) const {
    return {reinterpret_cast<const Right*>(cached(call.k, k0)), reinterpret_cast<const Right*>(cached(call.v, k0))};
  }

  /// A cache is read once, in blocks that are too short for the processor's own prefetching alone. So a thread's next
  /// blocks are fetched beside what it multiplies. Blocks [begin, end) of a task; a short last one comes with the one
  /// before it, which has more time for what follows.
  struct Span {
    const PagedTask* of;
    int64_t begin, end;
  };
  static int64_t last_key_of(const PagedTask& of) {
    return of.sequence->length - of.sequence->tokens + of.first_token + of.tokens;
  }
  static Span span_at(const PagedTask& of, int64_t key) {
    const int64_t last = last_key_of(of);
    return {&of, key, last - key <= kKeys + kKeys / 2 ? last : key + kKeys};
  }
  Span after(const Span& span) const {
    if (span.end < last_key_of(*span.of)) return span_at(*span.of, span.end);
    return next == nullptr ? Span{nullptr, 0, 0} : span_at(*next, first_key_of(*next) / kKeys * kKeys);
  }
  /// The vectors that products read of a span, and its parts of the cache.
  int64_t vectors(const Span& span) const {
    int64_t sum = 0;
    for (int64_t k0 = span.begin; k0 < span.end; k0 += kKeys) {
      const int64_t keys = smaller(kKeys, span.end - k0);
      sum += dim / M::kPair * ((keys + M::kLanes - 1) / M::kLanes) + (keys + M::kPair - 1) / M::kPair * dim / M::kLanes;
    }
    return sum;
  }
  void add_parts(Later& later, const Span& span) const {
    constexpr int64_t kUnit = M::kPair * static_cast<int64_t>(sizeof(Storage));
    for (int64_t k0 = span.begin; k0 < span.end; k0 += kKeys) {
      const int64_t keys = smaller(kKeys, span.end - k0), row = round_up(keys * kUnit, 64);
      if (row >= kKeys * kUnit)
        later.add(cached(call.k, *span.of, k0), dim / M::kPair * kKeys * kUnit, 0, 1);
      else
        later.add(cached(call.k, *span.of, k0), row, kKeys * kUnit, dim / M::kPair);
      later.add(cached(call.v, *span.of, k0), (keys + M::kPair - 1) / M::kPair * dim * kUnit, 0, 1);
    }
  }

  Block<Unit> unpacked(int64_t k0, int64_t end) const {
    const int64_t keys = smaller(kKeys, sequence.length - k0), later = k0 + kKeys;
    Order::unpack_keys(k_units, cached(call.k, k0), d, dim, later < end ? cached(call.k, later) : nullptr);
    Order::unpack_values(v_units, cached(call.v, k0), keys, d, dim, later < end ? cached(call.v, later) : nullptr);
    return {k_units, v_units};
  }

  /// The rows [r0, r0 + count), in tiles of kRows, and the block of keys from k0 on.
  template <int kRows, class Right, class Fetch>
  void attend(int64_t r0, int64_t count, int64_t k0, const Block<Right>& block, Fetch& fetch) {
    const bool begins = k0 == first_block(r0);
    const int64_t* const starts = call.window > 0 && first[r0 + count - 1] > k0 ? first + r0 : nullptr;
    const Visible visible{last[r0] - 1 - k0, starts, k0, last + r0};
    const Running<Acc> at{state.highest + r0, state.sums + r0 * M::kLanes, state.o + r0 * dim};
    constexpr WholeBlock<M> width;
    const int64_t multiplied = kRows == 1 ? 1 : count;
    score_block<M, kRows>(scores, q_rows + r0 * dim / M::kPair, block.k, multiplied, dim, visible, width, ahead, fetch);
    if (cap_factor != 0) cap_block<M>(scores, cap_factor, count, visible, width);
    if (visible.all(kKeys))
      softmax_block<M, false, false>(scores, p, c, count, visible, width, dim, begins, at, none);
    else
      softmax_block<M, true, false>(scores, p, c, count, visible, width, dim, begins, at, none);
    weighted_rows<M, kRows>(at.o, p, block.v, multiplied, dim, visible, width, !begins, ahead, fetch);
  }

  int64_t first_block(int64_t r0) const { return first[r0] / kKeys * kKeys; }

  /// Few rows, which wait for the memory.
  template <class Right>
  void attend_few() {
    if (rows == 1) {  // the second is none: softmax computes it, and products leave it out
      for (int64_t key = 0; key < kKeys; ++key) scores[kKeys + key] = 0;
      for (int64_t j = 0; j < dim; ++j) state.o[dim + j] = 0;
    }
    for (Span span = span_at(task, first_block(0)); span.of == &task; span = after(span)) {
      Later later;
      if (const Span then = after(span); then.of != nullptr) add_parts(later, then);
      Beside beside(later, vectors(span));
      for (int64_t k0 = span.begin; k0 < span.end; k0 += kKeys) {
        if (rows == 1)
          attend<1>(0, 2, k0, in_pages<Right>(k0), beside);
        else if (rows == 2)
          attend<2>(0, 2, k0, in_pages<Right>(k0), beside);
        else
          attend<kTile>(0, kTile, k0, in_pages<Right>(k0), beside);
      }
      beside.finish();
    }
  }

  /// Many, which wait for the arithmetic.
  template <class Right>
  void attend_block(int64_t k0, const Block<Right>& block) {
    Alone alone;
    for (int64_t r0 = 0; r0 < padded; r0 += kBlock) {
      const int64_t count = smaller(kBlock, padded - r0);
      if (k0 >= first_block(r0) && k0 < last[r0 + count - 1]) attend<kTile>(r0, count, k0, block, alone);
    }
  }

  void run() {
    pack_queries();
    find_keys();
    if (d == dim && rows <= kTile) {
      if constexpr (Order::kHoldsUnits)
        attend_few<Unit>();
      else
        attend_few<Storage>();
    } else {
      const int64_t end = last[rows - 1];
      for (int64_t k0 = first_block(0); k0 < end; k0 += kKeys) {
        if constexpr (Order::kHoldsUnits)
          if (d == dim) {
            attend_block(k0, in_pages<Unit>(k0));
            continue;
          }
        attend_block(k0, unpacked(k0, end));
      }
    }
    for (int64_t r = 0; r < rows; ++r) {
      const Acc sum = M::total(M::load(state.sums + r * M::kLanes));
      Storage* to = static_cast<Storage*>(call.out) + (sequence.first_row + token(r)) * call.out_stride + head(r) * d;
      scale_row<M>(to, state.o + r * dim, 1 / sum, d);
    }
  }
};

template <class M, class Storage>
void paged_task(const PagedCall& call, const PagedTask& task, const PagedTask* next, void* scratch) {
  Paged<M, Storage>{call, task, next, static_cast<char*>(scratch)}.run();
}

}  // namespace
}  // namespace trireme::ops
