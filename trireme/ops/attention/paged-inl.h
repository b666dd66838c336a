// Attention of new tokens to a cache in pages, with the bits of the forward pass (forward-inl.h): the same blocks of
// keys at the same multiples, the same products and the same sums. A row's bits depend neither on the rows beside it
// nor on how a sequence was cut into runs.
//
// The rows of a task are new tokens of one sequence times the query heads of one kv head: token after token, because
// the keys that a row sees then end later from row to row. A block of keys is packed once for all rows.
#pragma once

#include "trireme/ops/attention/forward-inl.h"

namespace trireme::ops {
namespace {

template <class M, class Storage>
struct Paged {
  using Acc = typename M::Acc;
  using Unit = typename M::Unit;
  static constexpr int64_t kKeys = kKeyBlock<M>, kBlock = kAttentionQueryBlock;
  static_assert(kAttentionPage % kKeys == 0);

  const PagedCall& call;
  const PagedTask& task;
  char* cursor;
  const PagedSequence& sequence = *task.sequence;
  const int64_t group = call.num_heads / call.num_kv_heads, rows = task.tokens * group, padded = round_up(rows, kTile),
                d = call.head_dim, dim = round_up(d, 16);
  const Acc c = static_cast<Acc>((call.softcap != 0 ? call.softcap : call.scale) * kLog2e),
            cap_factor = static_cast<Acc>(call.softcap != 0 ? call.scale / call.softcap : 0);
  Unit* const k_transposed = take<Unit>(kKeys * dim / M::kPair);
  Unit* const v_columns = take<Unit>(kKeys * dim / M::kPair);
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
  const Storage* cached(const void* pages, int64_t key) const {
    const int64_t page = sequence.pages[key / kAttentionPage] * call.num_kv_heads + task.kv_head;
    return static_cast<const Storage*>(pages) + (page * kAttentionPage + key % kAttentionPage) * d;
  }

  void pack_queries() const {
    for (int64_t r = 0; r < padded; ++r) {
      const bool is_row = r < rows;
      const Storage* from = static_cast<const Storage*>(call.q);
      if (is_row) from += (sequence.first_row + token(r)) * call.q_stride + head(r) * d;
      pack_rows<M>(q_rows + r * dim / M::kPair, from, 0, is_row ? 1 : 0, 1, d, dim);
    }
  }

  /// Rows beyond the last see what the last row sees.
  void find_keys() const {
    for (int64_t r = 0; r < padded; ++r) {
      const int64_t at = position(smaller(r, rows - 1));
      last[r] = at + 1;
      first[r] = call.window > 0 ? larger(0, at - call.window + 1) : 0;
    }
  }

  /// Packs a block of keys and values, and fetches the next one: a cache is read once, and its blocks are too short for
  /// the processor's own prefetching.
  void pack_keys(int64_t k0, int64_t end) const {
    const int64_t keys = smaller(kKeys, sequence.length - k0), later = k0 + kKeys;
    pack_transposed<M>(k_transposed, cached(call.k, k0), d, keys, d, dim,
                       later < end ? cached(call.k, later) : nullptr);
    pack_columns<M>(v_columns, cached(call.v, k0), d, keys, kKeys, d, dim,
                    later < end ? cached(call.v, later) : nullptr);
  }

  /// The rows [r0, r0 + count) and the block of keys from k0 on; `begins`: no block came before.
  void attend(int64_t r0, int64_t count, int64_t k0, bool begins) {
    const int64_t* const starts = call.window > 0 && first[r0 + count - 1] > k0 ? first + r0 : nullptr;
    const Visible visible{last[r0] - 1 - k0, starts, k0, last + r0};
    const Running<Acc> at{state.highest + r0, state.sums + r0 * M::kLanes, state.o + r0 * dim};
    constexpr WholeBlock<M> width;
    score_block<M>(scores, q_rows + r0 * dim / M::kPair, k_transposed, count, dim, visible, width, ahead);
    if (cap_factor != 0) cap_block<M>(scores, cap_factor, count, visible, width);
    if (visible.all(kKeys))
      softmax_block<M, false, false>(scores, p, c, count, visible, width, dim, begins, at, none);
    else
      softmax_block<M, true, false>(scores, p, c, count, visible, width, dim, begins, at, none);
    weighted_rows<M>(at.o, p, v_columns, count, dim, visible, width, !begins, ahead);
  }

  int64_t first_block(int64_t r0) const { return first[r0] / kKeys * kKeys; }

  void run() {
    pack_queries();
    find_keys();
    const int64_t end = last[rows - 1];
    for (int64_t k0 = first_block(0); k0 < end; k0 += kKeys) {
      pack_keys(k0, end);
      for (int64_t r0 = 0; r0 < padded; r0 += kBlock) {
        const int64_t count = smaller(kBlock, padded - r0);
        if (k0 >= first_block(r0) && k0 < last[r0 + count - 1]) attend(r0, count, k0, k0 == first_block(r0));
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
void paged_task(const PagedCall& call, const PagedTask& task, void* scratch) {
  Paged<M, Storage>{call, task, static_cast<char*>(scratch)}.run();
}

}  // namespace
}  // namespace trireme::ops
