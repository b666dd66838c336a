// Blocked attention, backward (see attention/kernels-inl.h).
#pragma once

#include "trireme/ops/attention/drops-inl.h"
#include "trireme/ops/attention/pack-inl.h"
#include "trireme/ops/attention/scores-inl.h"

namespace trireme::ops {
namespace {

/// Turns scores into P = exp(scores * scale - lse), and d_p into dS = P (dP - D). Stores P in pairs down the column,
/// and dS in both orders. Capped scores are a tanh: its derivative 1 - scores^2 is a factor of dS. With a mask of
/// dropout m, dP is m d_p, and m P is stored.
template <class M, bool kMasked, bool kCapped, bool kDropped, class Width>
void gradient_block(const typename M::Acc* scores, const typename M::Acc* d_p, typename M::Unit* p_columns,
                    typename M::Unit* ds_rows, typename M::Unit* ds_columns, typename M::Acc c, int64_t rows,
                    const Visible& visible, Width width, const typename M::Acc* lse2, const typename M::Acc* delta,
                    const Drops<M>& drops) {
  using Vec = typename M::Vec;
  constexpr int64_t kKeys = kKeyBlock<M>, kLanes = M::kLanes;
  const Vec cv = M::splat(c);
  for (int64_t r = 0; r < rows; r += 2) {
    Columns columns = kMasked ? columns_of_row<M>(visible, r) : Columns{0, width};
    if constexpr (kDropped) columns.end = smaller(columns.end, width);
    const int64_t begin0 = kMasked ? visible.begin(r) : 0, begin1 = kMasked ? visible.begin(r + 1) : 0;
    const int64_t end0 = kMasked ? visible.end(r) : 0, end1 = kMasked ? visible.end(r + 1) : 0;
    const Vec lse0 = M::splat(lse2[r]), lse1 = M::splat(lse2[r + 1]);
    const Vec delta0 = M::splat(delta[r]), delta1 = M::splat(delta[r + 1]);
    for (int64_t j = columns.first; j < columns.end; j += kLanes) {
      const int64_t at0 = r * kKeys + j, at1 = at0 + kKeys;
      const Vec x0 = M::load(scores + at0), x1 = M::load(scores + at1);
      Vec p0 = M::exp2(x0 * cv - lse0), p1 = M::exp2(x1 * cv - lse1);
      if (kMasked && (j + kLanes > end0 || j < begin1)) {
        p0 = M::keep(p0, begin0 - j, end0 - j, 0);
        p1 = M::keep(p1, begin1 - j, end1 - j, 0);
      }
      Vec ds0, ds1;
      if constexpr (kDropped) {
        const Vec kept0 = drops.kept(r, j), kept1 = drops.kept(r + 1, j);
        ds0 = p0 * (M::load(d_p + at0) * kept0 - delta0), ds1 = p1 * (M::load(d_p + at1) * kept1 - delta1);
        p0 *= kept0, p1 *= kept1;
      } else {
        ds0 = p0 * (M::load(d_p + at0) - delta0), ds1 = p1 * (M::load(d_p + at1) - delta1);
      }
      if constexpr (kCapped) {  // hidden columns have huge numbers instead of a tanh
        ds0 *= M::maximum(M::splat(0), M::splat(1) - x0 * x0);
        ds1 *= M::maximum(M::splat(0), M::splat(1) - x1 * x1);
      }
      if constexpr (M::kPair == 1) M::store_rows(p_columns + at0, p_columns + at1, p0, p1);
      M::store_columns(p_columns + r / 2 * kKeys + j, p0, p1);
      M::store_rows(ds_rows + at0 / M::kPair, ds_rows + at1 / M::kPair, ds0, ds1);
      M::store_columns(ds_columns + r / 2 * kKeys + j, ds0, ds1);
    }
  }
}

/// Multiplies finished sums by `scale`. Writes them, rounded, to the rows of a gradient at `first` + r * stride, or
/// adds them there.
template <class M, class Storage>
void emit_rows(const AttentionCall& call, void* gradient, int64_t first, int64_t stride, const typename M::Acc* sums,
               int64_t dim, int64_t rows, typename M::Acc scale) {
  using Acc = typename M::Acc;
  if (call.causal) {
    Storage* to = static_cast<Storage*>(gradient) + first;
    for (int64_t r = 0; r < rows; ++r) scale_row<M>(to + r * stride, sums + r * dim, scale, call.head_dim);
  } else {
    Acc* to = static_cast<Acc*>(gradient) + first;
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t j = 0; j < call.head_dim; ++j) to[r * stride + j] += sums[r * dim + j] * scale;
  }
}

template <class M, class Storage>
struct Backward {
  using J = Job<M, Storage>;
  using Acc = typename M::Acc;
  using Unit = typename M::Unit;
  static constexpr int64_t kQueries = J::kQueries, kKeys = J::kKeys, kPair = M::kPair;

  J at;
  const int64_t dim = at.dim;
  const Acc c = static_cast<Acc>(exponent_scale(at.call)), cap_factor = static_cast<Acc>(cap_scale(at.call));
  const Acc scale = static_cast<Acc>(at.call.scale);
  Unit* const k_transposed = at.template take<Unit>(at.padded_keys * dim / kPair);
  Unit* const v_transposed = at.template take<Unit>(at.padded_keys * dim / kPair);
  Unit* const k_columns = at.template take<Unit>(at.padded_keys * dim / kPair);
  Acc* const dk = at.template take<Acc>(at.padded_keys * dim);
  Acc* const dv = at.template take<Acc>(at.padded_keys * dim);
  Unit* const q_rows = at.template take<Unit>(kQueries * dim / kPair);
  Unit* const d_out_rows = at.template take<Unit>(kQueries * dim / kPair);
  Unit* const q_columns = kPair == 1 ? q_rows : at.template take<Unit>(kQueries * dim / kPair);
  Unit* const d_out_columns = kPair == 1 ? d_out_rows : at.template take<Unit>(kQueries * dim / kPair);
  Acc* const dq = at.template take<Acc>(kQueries * dim);
  Acc* const scores = at.template take<Acc>(kQueries * kKeys);
  Acc* const d_p = at.template take<Acc>(kQueries * kKeys);
  // If a unit is one element, P overwrites the scores, and dS overwrites dP.
  Unit* const p_columns =
      kPair == 1 ? reinterpret_cast<Unit*>(scores) : at.template take<Unit>(kQueries * kKeys / kPair);
  Unit* const ds_rows = kPair == 1 ? reinterpret_cast<Unit*>(d_p) : at.template take<Unit>(kQueries * kKeys / kPair);
  Unit* const ds_columns = kPair == 1 ? ds_rows : at.template take<Unit>(kQueries * kKeys / kPair);
  Acc* const lse2 = at.template take<Acc>(kQueries);
  Acc* const delta = at.template take<Acc>(kQueries);
  int64_t* const first = at.template take<int64_t>(kQueries);
  int64_t* const last = at.template take<int64_t>(kQueries);
  Ahead ahead{at.d * static_cast<int64_t>(sizeof(Storage))};
  Drops<M> drops{at.call.drops};
  int64_t packed = 0;  ///< keys packed so far

  Backward(const AttentionCall& call, int64_t job, void* scratch) : at(call, job, scratch) {}

  /// Packs those of the first `end` keys that are not yet packed.
  void pack_keys(int64_t end) {
    for (const int64_t row = at.call.kv_stride.row; packed < end; packed += kKeys) {
      const int64_t keys = at.keys_of_block(packed), block = packed * dim / kPair;
      pack_transposed<M>(k_transposed + block, at.k(packed), row, keys, at.d, dim);
      pack_transposed<M>(v_transposed + block, at.v(packed), row, keys, at.d, dim);
      pack_columns<M>(k_columns + block, at.k(packed), row, keys, kKeys, at.d, dim);
    }
  }

  /// Packs a block of queries and its d_out, and computes its lse and D = sum(d_out * out). Returns the packed rows.
  int64_t load_queries(int64_t head, int64_t q0) {
    const int64_t queries = at.queries_of_block(q0), rows = round_up(queries, kTile);
    const int64_t q_row = at.call.q_stride.row, d_out_row = at.call.d_out_stride.row;
    const Storage *q = at.q(head, q0), *d_out = at.d_out(head, q0);
    pack_rows<M>(q_rows, q, q_row, queries, rows, at.d, dim);
    pack_rows<M>(d_out_rows, d_out, d_out_row, queries, rows, at.d, dim);
    if constexpr (kPair != 1) {
      pack_columns<M>(q_columns, q, q_row, queries, rows, at.d, dim);
      pack_columns<M>(d_out_columns, d_out, d_out_row, queries, rows, at.d, dim);
    }
    // Rows beyond the sequence have dO = Q = 0, and so add nothing.
    for (int64_t r = 0; r < rows; ++r) {
      delta[r] = r < queries ? dot<M>(d_out + r * d_out_row, at.out(head, q0 + r), at.d) : 0;
      lse2[r] = r < queries ? static_cast<Acc>(*at.lse(head, q0 + r) * kLog2e) : static_cast<Acc>(1e30f);
    }
    at.key_ranges(q0, rows, first, last);
    if (drops.active()) drops.take_rows(at, head, q0, queries);
    return rows;
  }

  template <bool kCapped, class Width>
  auto gradients_of(const Visible& visible, Width) const {
    return drops.active()              ? gradient_block<M, true, kCapped, true, Width>
           : visible.all(kKeyBlock<M>) ? gradient_block<M, false, kCapped, false, Width>
                                       : gradient_block<M, true, kCapped, false, Width>;
  }

  /// Computes one block of scores, and adds its part to dq, dk and dv, as far as they are wanted. The first part is
  /// written, not added.
  template <bool kWantQ, bool kWantKV>
  void attend(int64_t q0, int64_t k0, int64_t rows, bool begins_q, bool begins_kv) {
    const Visible visible = at.visible(q0, k0, rows, first, last);
    const int64_t block = k0 * dim / kPair;
    with_width<M>(at.columns(k0), [&](auto width) {
      score_block<M>(scores, q_rows, k_transposed + block, rows, dim, visible, width, ahead);
      score_block<M>(d_p, d_out_rows, v_transposed + block, rows, dim, visible, width, ahead);
      if (cap_factor != 0) cap_block<M>(scores, cap_factor, rows, visible, width);
      if (!at.call.causal) hide_columns<M>(scores, rows, at.keys - k0, width, c);
      const auto gradients = cap_factor != 0 ? gradients_of<true>(visible, width) : gradients_of<false>(visible, width);
      if (drops.active()) drops.take_columns(k0);
      gradients(scores, d_p, p_columns, ds_rows, ds_columns, c, rows, visible, width, lse2, delta, drops);
      if constexpr (kWantQ)
        weighted_rows<M>(dq, ds_rows, k_columns + block, rows, dim, visible, width, !begins_q, ahead);
      if constexpr (kWantKV) {
        weighted_columns<M>(dv + k0 * dim, p_columns, d_out_columns, rows, dim, visible, width, !begins_kv, ahead);
        weighted_columns<M>(dk + k0 * dim, ds_columns, q_columns, rows, dim, visible, width, !begins_kv, ahead);
      }
    });
  }

  /// Whether this is the first block of queries that adds to dk and dv of the block of keys.
  bool begins_keys(int64_t head, int64_t q0, int64_t k0) const {
    return head == at.first_head() && q0 == at.first_queries(k0);
  }

  /// Prefetches what the end of this block of queries and the start of the next one will use.
  void look_ahead(int64_t head, int64_t q0) {
    ahead.num_waiting = 0;
    if (at.call.causal)
      ahead.add(static_cast<const Storage*>(at.call.dq) + at.element(at.call.dq_stride, head, q0),
                at.call.dq_stride.row, at.queries_of_block(q0));
    at.next_queries(ahead, head, q0, at.call.out_stride, [this](int64_t h, int64_t i) { return at.out(h, i); });
    at.next_queries(ahead, head, q0, at.call.d_out_stride, [this](int64_t h, int64_t i) { return at.d_out(h, i); });
    at.next_queries(ahead, head, q0, at.call.q_stride, [this](int64_t h, int64_t i) { return at.q(h, i); });
  }

  /// Everything that one block of queries adds.
  template <bool kWantKV>
  void run_queries(int64_t head, int64_t q0) {
    const int64_t rows = load_queries(head, q0), begin = at.first_block(q0), end = at.reach(q0, rows);
    pack_keys(end);
    for (int64_t k0 = begin; k0 < end; k0 += kKeys) {
      if (k0 + kKeys >= end) look_ahead(head, q0);
      attend<true, kWantKV>(q0, k0, rows, k0 == begin, begins_keys(head, q0, k0));
    }
    emit_rows<M, Storage>(at.call, at.call.dq, at.element(at.call.dq_stride, head, q0), at.call.dq_stride.row, dq, dim,
                          at.queries_of_block(q0), scale);
  }

  /// dk and dv of one block of keys, summed in the same order as in run_queries.
  void run_keys(int64_t k0) {
    pack_keys(smaller(k0 + kKeys, at.keys));
    for (int64_t head = at.first_head(); head < at.first_head() + at.group; ++head)
      for (int64_t q0 = at.first_queries(k0); q0 < at.queries && at.first_block(q0) <= k0; q0 += kQueries)
        attend<false, true>(q0, k0, load_queries(head, q0), false, begins_keys(head, q0, k0));
  }

  /// Writes dk and dv of the keys [k0, k0 + count).
  void emit_keys(int64_t k0, int64_t count) const {
    const int64_t to = at.element(at.call.dkv_stride, at.kv, k0), row = at.call.dkv_stride.row;
    emit_rows<M, Storage>(at.call, at.call.dk, to, row, dk + k0 * dim, dim, count, scale);
    emit_rows<M, Storage>(at.call, at.call.dv, to, row, dv + k0 * dim, dim, count, Acc{1});
  }
};

/// A job in one part computes every block of scores once. If a job is in several parts, threads would have to add to
/// the same sums. Instead every block is computed twice: for dq of a thread's queries, and for dk and dv of a thread's
/// keys (7 products instead of 5). Both ways add in the same order, so that the bits are equal.
template <class M, class Storage>
void backward_task(const AttentionCall& call, const AttentionTask& task, void* scratch) {
  Backward<M, Storage> backward(call, task.job, scratch);
  const bool whole = task.parts == 1;
  int64_t item = 0;
  for (int64_t h = 0; h < backward.at.group; ++h)
    for (int64_t q0 = 0; q0 < call.queries; q0 += backward.kQueries) {
      if (!is_mine(item++, task)) continue;
      if (whole)
        backward.template run_queries<true>(backward.at.first_head() + h, q0);
      else
        backward.template run_queries<false>(backward.at.first_head() + h, q0);
    }
  if (whole) return backward.emit_keys(0, call.keys);
  item = 0;
  for (int64_t k0 = 0; k0 < call.keys; k0 += backward.kKeys)
    if (is_mine(item++, task)) backward.run_keys(k0), backward.emit_keys(k0, backward.at.keys_of_block(k0));
}

}  // namespace
}  // namespace trireme::ops
