// Blocked attention, forward (see attention/kernels-inl.h).
#pragma once

#include "trireme/ops/attention/drops-inl.h"
#include "trireme/ops/attention/pack-inl.h"
#include "trireme/ops/attention/scores-inl.h"

namespace trireme::ops {
namespace {

/// What a block of queries keeps from one block of keys to the next.
template <class Acc>
struct Running {
  Acc* highest;  ///< [rows]: the highest score so far, as an exponent of 2
  Acc* sums;  ///< [rows, lanes]: sums of P
  Acc* o;  ///< [rows, dim]: sums of P V
};

/// Rescales row `r`, whose highest score in this block is `now`, to its new maximum.
template <class M>
inline void raise_highest(const Running<typename M::Acc>& state, int64_t r, int64_t dim, typename M::Acc now,
                          bool first) {
  using Acc = typename M::Acc;
  Acc* const sums = state.sums + r * M::kLanes;
  if (first) {
    state.highest[r] = now;
    M::store(sums, M::splat(0));
  } else if (now > state.highest[r]) {
    const auto shrink = M::exp2(M::splat(state.highest[r] - now));
    state.highest[r] = now;
    M::store(sums, M::load(sums) * shrink);
    for (Acc *y = state.o + r * dim, *end = y + dim; y < end; y += M::kLanes) M::store(y, M::load(y) * shrink);
  }
}

/// Turns scores into P = 2^(scores * c - highest), and updates `state`. Weights are dropped from P, not from its sums.
template <class M, bool kMasked, bool kDropped, class Width>
void softmax_block(typename M::Acc* scores, typename M::Unit* p, typename M::Acc c, int64_t rows,
                   const Visible& visible, Width width, int64_t dim, bool first, const Running<typename M::Acc>& state,
                   const Drops<M>& drops) {
  using Vec = typename M::Vec;
  using Acc = typename M::Acc;
  constexpr int64_t kKeys = kKeyBlock<M>, kLanes = M::kLanes;
  const Vec cv = M::splat(c);
  for (int64_t r = 0; r < rows; r += 2) {
    Columns columns = kMasked ? columns_of_row<M>(visible, r) : Columns{0, width};
    if constexpr (kDropped) columns.end = smaller(columns.end, width);
    const int64_t begin[2] = {kMasked ? visible.begin(r) : 0, kMasked ? visible.begin(r + 1) : 0};
    const int64_t end[2] = {kMasked ? visible.end(r) : 0, kMasked ? visible.end(r + 1) : 0};
    for (int64_t h = 0; h < 2; ++h) {
      const Acc* x = scores + (r + h) * kKeys;
      Vec top = M::splat(-1e30f);
      for (int64_t j = columns.first; j < columns.end; j += kLanes) {
        Vec v = M::load(x + j) * cv;
        if (kMasked && (j + kLanes > end[0] || j < begin[1])) v = M::keep(v, begin[h] - j, end[h] - j, -1e30f);
        top = M::maximum(top, v);
      }
      raise_highest<M>(state, r + h, dim, M::highest(top), first);
    }
    const Acc *x0 = scores + r * kKeys, *x1 = x0 + kKeys;
    const Vec top0 = M::splat(state.highest[r]), top1 = M::splat(state.highest[r + 1]);
    Vec sum0 = M::load(state.sums + r * kLanes), sum1 = M::load(state.sums + (r + 1) * kLanes);
    for (int64_t j = columns.first; j < columns.end; j += kLanes) {
      Vec p0 = M::exp2(M::load(x0 + j) * cv - top0), p1 = M::exp2(M::load(x1 + j) * cv - top1);
      if (kMasked && (j + kLanes > end[0] || j < begin[1])) {
        p0 = M::keep(p0, begin[0] - j, end[0] - j, 0);
        p1 = M::keep(p1, begin[1] - j, end[1] - j, 0);
      }
      sum0 += p0, sum1 += p1;
      if constexpr (kDropped) p0 *= drops.kept(r, j), p1 *= drops.kept(r + 1, j);
      M::store_rows(p + (r * kKeys + j) / M::kPair, p + ((r + 1) * kKeys + j) / M::kPair, p0, p1);
    }
    M::store(state.sums + r * kLanes, sum0), M::store(state.sums + (r + 1) * kLanes, sum1);
  }
}

template <class M, class Storage>
struct Forward {
  using J = Job<M, Storage>;
  using Acc = typename M::Acc;
  using Unit = typename M::Unit;
  static constexpr int64_t kQueries = J::kQueries, kKeys = J::kKeys, kElement = sizeof(Storage);

  J at;
  const int64_t dim = at.dim;
  const Acc c = static_cast<Acc>(exponent_scale(at.call)), cap_factor = static_cast<Acc>(cap_scale(at.call));
  Unit* const k_transposed = at.template take<Unit>(at.padded_keys * dim / M::kPair);
  Unit* const v_columns = at.template take<Unit>(at.padded_keys * dim / M::kPair);
  Unit* const q_rows = at.template take<Unit>(kQueries * dim / M::kPair);
  Acc* const scores = at.template take<Acc>(kQueries * kKeys);
  Unit* const p = M::kPair == 1 ? reinterpret_cast<Unit*>(scores) : at.template take<Unit>(kQueries * kKeys / M::kPair);
  const Running<Acc> state{at.template take<Acc>(kQueries), at.template take<Acc>(kQueries* M::kLanes),
                           at.template take<Acc>(kQueries* dim)};
  int64_t* const first = at.template take<int64_t>(kQueries);
  int64_t* const last = at.template take<int64_t>(kQueries);
  Ahead ahead{at.d * kElement};
  Drops<M> drops{at.call.drops};
  int64_t packed = 0;  ///< keys packed so far

  Forward(const AttentionCall& call, int64_t job, void* scratch) : at(call, job, scratch) {}

  /// Packs those of the first `end` keys that are not yet packed.
  void pack_keys(int64_t end) {
    for (const int64_t row = at.call.kv_stride.row; packed < end; packed += kKeys) {
      const int64_t keys = at.keys_of_block(packed), block = packed * dim / M::kPair;
      pack_transposed<M>(k_transposed + block, at.k(packed), row, keys, at.d, dim);
      pack_columns<M>(v_columns + block, at.v(packed), row, keys, kKeys, at.d, dim);
    }
  }

  /// Restores the state after earlier blocks from their out and lse: as if there were one score, lse, with a sum of 1.
  void resume_rows(int64_t head, int64_t q0, int64_t queries, int64_t rows) const {
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t lane = 0; lane < M::kLanes; ++lane) state.sums[r * M::kLanes + lane] = lane == 0 ? 1 : 0;
      for (int64_t j = 0; j < dim; ++j) state.o[r * dim + j] = 0;
      state.highest[r] = 0;
      if (r >= queries) continue;
      const Acc lse2 = static_cast<Acc>(*at.lse(head, q0 + r) * kLog2e);
      state.highest[r] = lse2 > -1e30f ? lse2 : -1e30f;  // -inf (no earlier block) must not become NaN
      const Storage* out = at.out(head, q0 + r);
      for (int64_t j = 0; j < at.d; ++j) state.o[r * dim + j] = widen(out[j]);
    }
  }

  void attend(int64_t q0, int64_t k0, int64_t rows, bool begins) {
    const Visible visible = at.visible(q0, k0, rows, first, last);
    const int64_t block = k0 * dim / M::kPair;
    with_width<M>(at.columns(k0), [&](auto width) {
      score_block<M>(scores, q_rows, k_transposed + block, rows, dim, visible, width, ahead);
      if (cap_factor != 0) cap_block<M>(scores, cap_factor, rows, visible, width);
      if (!at.call.causal) hide_columns<M>(scores, rows, at.keys - k0, width, c);
      if (drops.active())
        softmax_block<M, true, true>(scores, p, c, rows, visible, width, dim, begins, state, drops);
      else if (visible.all(kKeyBlock<M>))
        softmax_block<M, false, false>(scores, p, c, rows, visible, width, dim, begins, state, drops);
      else
        softmax_block<M, true, false>(scores, p, c, rows, visible, width, dim, begins, state, drops);
      weighted_rows<M>(state.o, p, v_columns + block, rows, dim, visible, width, !begins, ahead);
    });
  }

  int64_t empty_rows(int64_t q0) const { return q0 == 0 ? at.skip : 0; }

  void pack_queries(int64_t head, int64_t q0, int64_t queries, int64_t rows) const {
    const int64_t skip = empty_rows(q0), units = skip * dim / M::kPair;
    for (int64_t u = 0; u < units; ++u) q_rows[u] = 0;
    pack_rows<M>(q_rows + units, at.q(head, q0 + skip), at.call.q_stride.row, queries - skip, rows - skip, at.d, dim);
  }

  void finish(int64_t head, int64_t q0, int64_t queries) const {
    for (int64_t r = empty_rows(q0); r < queries; ++r) {
      const Acc sum = M::total(M::load(state.sums + r * M::kLanes));
      scale_row<M>(at.out(head, q0 + r), state.o + r * dim, 1 / sum, at.d);
      *at.lse(head, q0 + r) = static_cast<Acc>((state.highest[r] + log2_of(sum)) * kLn2);
    }
  }

  void look_ahead(int64_t head, int64_t q0) {
    ahead.num_waiting = 0;
    at.next_queries(ahead, head, q0, at.call.q_stride, [this](int64_t h, int64_t i) { return at.q(h, i); });
    ahead.add(at.out(head, q0), at.call.out_stride.row, at.queries_of_block(q0));
  }

  void run(int64_t head, int64_t q0) {
    const int64_t queries = at.queries_of_block(q0), rows = round_up(queries, kTile);
    const int64_t begin = at.first_block(q0), end = at.reach(q0, rows);
    pack_keys(end);
    pack_queries(head, q0, queries, rows);
    at.key_ranges(q0, rows, first, last);
    if (drops.active()) drops.take_rows(at, head, q0, queries);
    if (!at.call.causal) resume_rows(head, q0, queries, rows);
    for (int64_t k0 = begin; k0 < end; k0 += kKeys) {
      if (k0 == begin || k0 + kKeys >= end) look_ahead(head, q0);
      if (drops.active()) drops.take_columns(k0);
      attend(q0, k0, rows, at.call.causal && k0 == begin);
    }
    finish(head, q0, queries);
  }
};

template <class M, class Storage>
void forward_task(const AttentionCall& call, const AttentionTask& task, void* scratch) {
  Forward<M, Storage> forward(call, task.job, scratch);
  int64_t item = 0;
  for (int64_t h = 0; h < forward.at.group; ++h)
    for (int64_t q0 = 0; q0 < forward.at.queries; q0 += forward.kQueries)
      if (is_mine(item++, task)) forward.run(forward.at.first_head() + h, q0);
}

}  // namespace
}  // namespace trireme::ops
