// Blocked attention, forward and backward, over the product of attention_product-inl.h.
//
// A job is one key/value head of one batch row. Its K and V are packed once and shared by the query heads of the
// group; 64 queries x 128 keys of scores live in cache at a time; blocks above the diagonal are skipped, and inside
// a block on the diagonal every product is trimmed to the triangle, 4 rows at a time. Only the log-sum-exp of each
// row is kept between forward and backward (Dao, FlashAttention-2, 2023).
//
// Without a mask (ring attention) the same code runs with an `offset` that lies right of every block, and starts from
// the maximum, sum and weighted sum that the out and lse of earlier blocks stand for.
//
// Included once per instruction set, in an anonymous namespace: no symbol leaves its file.
#pragma once

#include "trireme/ops/attention_job-inl.h"
#include "trireme/ops/attention_product-inl.h"

namespace trireme::ops {
namespace {

/// Scores [rows, kKeys] = left [rows, dim] right, of which row r needs the first r + offset + 1 columns.
template <class M, class Width>
void score_block(typename M::Acc* scores, const typename M::Unit* left, const typename M::Unit* right, int64_t rows,
                 int64_t dim, int64_t offset, Width width) {
  constexpr int64_t kKeys = kAttentionKeyBlock;
  multiply<M>(rows, width / M::kLanes, left, dim / M::kPair, 1, right, kKeys, scores, kKeys, false, [&](int64_t r) {
    const int64_t columns = smaller(width, r + kTile + offset);
    return Trim{0, dim / M::kPair, (columns + M::kLanes - 1) / M::kLanes};
  });
}

/// Without a triangle, columns of the last block beyond the last key: a score that has no weight beside any other.
template <class M>
void hide_columns(typename M::Acc* scores, int64_t rows, int64_t first, int64_t width, typename M::Acc c) {
  const typename M::Acc hidden = c < 0 ? 1e30f : -1e30f;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t j = first; j < width; ++j) scores[r * kAttentionKeyBlock + j] = hidden;
}

/// C [rows, dim] (+)= P [rows, keys of the block] B, P row-major, trimmed to the triangle.
template <class M, class Width>
void weighted_rows(typename M::Acc* c, const typename M::Unit* p, const typename M::Unit* b, int64_t rows, int64_t dim,
                   int64_t offset, Width width, bool accumulate) {
  constexpr int64_t kKeys = kAttentionKeyBlock;
  const int64_t vectors = dim / M::kLanes;
  multiply<M>(rows, vectors, p, kKeys / M::kPair, 1, b, dim, c, dim, accumulate,
              [&](int64_t r) { return Trim{0, smaller(width, r + kTile + offset) / M::kPair, vectors}; });
}

/// C [keys of the block, dim] (+)= P^T B [rows, dim], P in pairs down the column, trimmed to the triangle.
template <class M, class Width>
void weighted_columns(typename M::Acc* c, const typename M::Unit* p, const typename M::Unit* b, int64_t rows,
                      int64_t dim, int64_t offset, Width width, bool accumulate) {
  constexpr int64_t kKeys = kAttentionKeyBlock;
  const int64_t vectors = dim / M::kLanes;
  // Keys that these rows do not reach have an empty sum: zero where this call is the first to write.
  const int64_t reached = accumulate ? smaller(width, rows + offset) : width;
  multiply<M>(reached, vectors, p, 1, kKeys, b, dim, c, dim, accumulate,
              [&](int64_t key) { return Trim{larger(0, key - offset) / M::kPair, rows / M::kPair, vectors}; });
}

/// Turns scores into P = 2^(scores * c - highest), and carries `highest`, `sums` (per lane) and `o` along.
template <class M, bool kMasked, class Width>
void softmax_block(typename M::Acc* scores, typename M::Unit* p, typename M::Acc c, int64_t rows, int64_t offset,
                   Width width, int64_t dim, bool first, typename M::Acc* highest, typename M::Acc* sums,
                   typename M::Acc* o) {
  using Vec = typename M::Vec;
  using Acc = typename M::Acc;
  constexpr int64_t kKeys = kAttentionKeyBlock, kLanes = M::kLanes;
  const Vec cv = M::splat(c);
  for (int64_t r = 0; r < rows; r += 2) {
    const int64_t columns = kMasked ? columns_of_row<M>(r, offset) : width;
    for (int64_t h = 0; h < 2; ++h) {
      const Acc* x = scores + (r + h) * kKeys;
      Vec top = M::splat(-1e30f);
      for (int64_t j = 0; j < columns; j += kLanes) {
        Vec v = M::load(x + j) * cv;
        if (kMasked && j + kLanes > r + h + offset + 1) v = M::keep_first(v, r + h + offset + 1 - j, -1e30f);
        top = M::maximum(top, v);
      }
      const Acc before = first ? -1e30f : highest[r + h], now = M::highest(top);
      if (first) {
        highest[r + h] = now;
        M::store(sums + (r + h) * kLanes, M::splat(0));
      } else if (now > before) {
        highest[r + h] = now;
        const Vec shrink = M::exp2(M::splat(before - now));
        M::store(sums + (r + h) * kLanes, M::load(sums + (r + h) * kLanes) * shrink);
        for (Acc *y = o + (r + h) * dim, *end = y + dim; y < end; y += kLanes) M::store(y, M::load(y) * shrink);
      }
    }
    const Acc *x0 = scores + r * kKeys, *x1 = x0 + kKeys;
    const Vec top0 = M::splat(highest[r]), top1 = M::splat(highest[r + 1]);
    Vec sum0 = M::load(sums + r * kLanes), sum1 = M::load(sums + (r + 1) * kLanes);
    for (int64_t j = 0; j < columns; j += kLanes) {
      Vec p0 = M::exp2(M::load(x0 + j) * cv - top0), p1 = M::exp2(M::load(x1 + j) * cv - top1);
      if (kMasked && j + kLanes > r + offset + 1) {
        p0 = M::keep_first(p0, r + offset + 1 - j, 0);
        p1 = M::keep_first(p1, r + offset + 2 - j, 0);
      }
      sum0 += p0, sum1 += p1;
      M::store_rows(p + (r * kKeys + j) / M::kPair, p + ((r + 1) * kKeys + j) / M::kPair, p0, p1);
    }
    M::store(sums + r * kLanes, sum0), M::store(sums + (r + 1) * kLanes, sum1);
  }
}

/// The state of the forward pass that out and lse of earlier blocks stand for: sum 1 at the highest score lse.
template <class M, class Storage>
void resume_rows(const Job<M, Storage>& at, int64_t head, int64_t q0, int64_t queries, int64_t rows,
                 typename M::Acc* highest, typename M::Acc* sums, typename M::Acc* o) {
  using Acc = typename M::Acc;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t lane = 0; lane < M::kLanes; ++lane) sums[r * M::kLanes + lane] = lane == 0 ? 1 : 0;
    for (int64_t j = 0; j < at.dim; ++j) o[r * at.dim + j] = 0;
    highest[r] = 0;
    if (r >= queries) continue;
    const Acc lse2 = static_cast<Acc>(*at.lse(head, q0 + r) * kLog2e);
    highest[r] = lse2 > -1e30f ? lse2 : -1e30f;  // -inf, nothing held, must leave no NaN
    const Storage* out = at.out(head, q0 + r);
    for (int64_t j = 0; j < at.d; ++j) o[r * at.dim + j] = widen(out[j]);
  }
}

template <class M, class Storage>
void forward_job(const AttentionCall& call, int64_t job, void* scratch) {
  using J = Job<M, Storage>;
  using Acc = typename M::Acc;
  using Unit = typename M::Unit;
  constexpr int64_t kQueries = J::kQueries, kKeys = J::kKeys;
  J at(call, job, scratch);
  const int64_t d = at.d, dim = at.dim;
  Unit* k_transposed = at.template take<Unit>(at.padded_keys * dim / M::kPair);
  Unit* v_columns = at.template take<Unit>(at.padded_keys * dim / M::kPair);
  Unit* q_rows = at.template take<Unit>(kQueries * dim / M::kPair);
  Acc* scores = at.template take<Acc>(kQueries * kKeys);
  Unit* p = M::kPair == 1 ? reinterpret_cast<Unit*>(scores) : at.template take<Unit>(kQueries * kKeys / M::kPair);
  Acc* o = at.template take<Acc>(kQueries * dim);
  Acc* highest = at.template take<Acc>(kQueries);
  Acc* sums = at.template take<Acc>(kQueries * M::kLanes);

  pack_transposed<M>(k_transposed, at.k(), call.kv_stride.row, at.keys, d, dim);
  pack_columns<M>(v_columns, at.v(), call.kv_stride.row, at.keys, at.padded_keys, d, dim);
  const Acc c = static_cast<Acc>(call.scale * kLog2e);
  for (int64_t head = at.kv * at.group; head < (at.kv + 1) * at.group; ++head) {
    for (int64_t q0 = 0; q0 < at.queries; q0 += kQueries) {
      const int64_t queries = smaller(kQueries, at.queries - q0), rows = round_up(queries, kTile);
      pack_rows<M>(q_rows, at.q(head, q0), call.q_stride.row, queries, rows, d, dim);
      if (!call.causal) resume_rows<M>(at, head, q0, queries, rows, highest, sums, o);
      for (int64_t k0 = 0; k0 < at.reach(q0, rows); k0 += kKeys) {
        const int64_t offset = at.offset(q0, k0);
        const bool first = call.causal && k0 == 0;
        with_width(at.columns(k0), [&](auto width) {
          score_block<M>(scores, q_rows, k_transposed + k0 * dim / M::kPair, rows, dim, offset, width);
          if (!call.causal) hide_columns<M>(scores, rows, at.keys - k0, width, c);
          if (offset + 1 < kKeys)
            softmax_block<M, true>(scores, p, c, rows, offset, width, dim, first, highest, sums, o);
          else
            softmax_block<M, false>(scores, p, c, rows, offset, width, dim, first, highest, sums, o);
          weighted_rows<M>(o, p, v_columns + k0 * dim / M::kPair, rows, dim, offset, width, !first);
        });
      }
      for (int64_t r = 0; r < queries; ++r) {
        const Acc sum = M::total(M::load(sums + r * M::kLanes)), inverse = 1 / sum;
        Storage* y = at.out(head, q0 + r);
        for (int64_t j = 0; j < d; ++j) narrow(o[r * dim + j] * inverse, y[j]);
        *at.lse(head, q0 + r) = static_cast<Acc>((highest[r] + __builtin_log2(static_cast<double>(sum))) * kLn2);
      }
    }
  }
}

/// scores -> P = exp(scores * scale - lse), and d_p -> dS = P (dP - D): P in pairs down the column, dS both ways.
template <class M, bool kMasked, class Width>
void gradient_block(const typename M::Acc* scores, const typename M::Acc* d_p, typename M::Unit* p_columns,
                    typename M::Unit* ds_rows, typename M::Unit* ds_columns, typename M::Acc c, int64_t rows,
                    int64_t offset, Width width, const typename M::Acc* lse2, const typename M::Acc* delta) {
  using Vec = typename M::Vec;
  constexpr int64_t kKeys = kAttentionKeyBlock, kLanes = M::kLanes;
  const Vec cv = M::splat(c);
  for (int64_t r = 0; r < rows; r += 2) {
    const int64_t columns = kMasked ? columns_of_row<M>(r, offset) : width;
    const Vec lse0 = M::splat(lse2[r]), lse1 = M::splat(lse2[r + 1]);
    const Vec delta0 = M::splat(delta[r]), delta1 = M::splat(delta[r + 1]);
    for (int64_t j = 0; j < columns; j += kLanes) {
      const int64_t at0 = r * kKeys + j, at1 = at0 + kKeys;
      Vec p0 = M::exp2(M::load(scores + at0) * cv - lse0), p1 = M::exp2(M::load(scores + at1) * cv - lse1);
      if (kMasked && j + kLanes > r + offset + 1) {
        p0 = M::keep_first(p0, r + offset + 1 - j, 0);
        p1 = M::keep_first(p1, r + offset + 2 - j, 0);
      }
      const Vec ds0 = p0 * (M::load(d_p + at0) - delta0), ds1 = p1 * (M::load(d_p + at1) - delta1);
      if constexpr (M::kPair == 1) M::store_rows(p_columns + at0, p_columns + at1, p0, p1);
      M::store_columns(p_columns + r / 2 * kKeys + j, p0, p1);
      M::store_rows(ds_rows + at0 / M::kPair, ds_rows + at1 / M::kPair, ds0, ds1);
      M::store_columns(ds_columns + r / 2 * kKeys + j, ds0, ds1);
    }
  }
}

/// Finished sums times `scale`, to `first` + r * stride of a gradient: written and rounded, or added.
template <class Storage, class Acc>
void emit_rows(const AttentionCall& call, void* gradient, int64_t first, int64_t stride, const Acc* sums, int64_t dim,
               int64_t rows, Acc scale) {
  const int64_t d = call.head_dim;
  if (call.causal) {
    Storage* to = static_cast<Storage*>(gradient) + first;
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t j = 0; j < d; ++j) narrow(sums[r * dim + j] * scale, to[r * stride + j]);
  } else {
    Acc* to = static_cast<Acc*>(gradient) + first;
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t j = 0; j < d; ++j) to[r * stride + j] += sums[r * dim + j] * scale;
  }
}

template <class M, class Storage>
void backward_job(const AttentionCall& call, int64_t job, void* scratch) {
  using J = Job<M, Storage>;
  using Acc = typename M::Acc;
  using Unit = typename M::Unit;
  constexpr int64_t kQueries = J::kQueries, kKeys = J::kKeys, kPair = M::kPair;
  J at(call, job, scratch);
  const int64_t d = at.d, dim = at.dim;
  Unit* k_transposed = at.template take<Unit>(at.padded_keys * dim / kPair);
  Unit* v_transposed = at.template take<Unit>(at.padded_keys * dim / kPair);
  Unit* k_columns = at.template take<Unit>(at.padded_keys * dim / kPair);
  Acc* dk = at.template take<Acc>(at.padded_keys * dim);
  Acc* dv = at.template take<Acc>(at.padded_keys * dim);
  Unit* q_rows = at.template take<Unit>(kQueries * dim / kPair);
  Unit* d_out_rows = at.template take<Unit>(kQueries * dim / kPair);
  Unit* q_columns = kPair == 1 ? q_rows : at.template take<Unit>(kQueries * dim / kPair);
  Unit* d_out_columns = kPair == 1 ? d_out_rows : at.template take<Unit>(kQueries * dim / kPair);
  Acc* dq = at.template take<Acc>(kQueries * dim);
  Acc* scores = at.template take<Acc>(kQueries * kKeys);
  Acc* d_p = at.template take<Acc>(kQueries * kKeys);
  // With single elements P takes the place of the scores, and dS that of dP.
  Unit* p_columns = kPair == 1 ? reinterpret_cast<Unit*>(scores) : at.template take<Unit>(kQueries * kKeys / kPair);
  Unit* ds_rows = kPair == 1 ? reinterpret_cast<Unit*>(d_p) : at.template take<Unit>(kQueries * kKeys / kPair);
  Unit* ds_columns = kPair == 1 ? ds_rows : at.template take<Unit>(kQueries * kKeys / kPair);
  Acc* lse2 = at.template take<Acc>(kQueries);
  Acc* delta = at.template take<Acc>(kQueries);

  pack_transposed<M>(k_transposed, at.k(), call.kv_stride.row, at.keys, d, dim);
  pack_transposed<M>(v_transposed, at.v(), call.kv_stride.row, at.keys, d, dim);
  pack_columns<M>(k_columns, at.k(), call.kv_stride.row, at.keys, at.padded_keys, d, dim);
  const Acc c = static_cast<Acc>(call.scale * kLog2e), scale = static_cast<Acc>(call.scale);
  const int64_t first_head = at.kv * at.group;
  for (int64_t head = first_head; head < first_head + at.group; ++head) {
    for (int64_t q0 = 0; q0 < at.queries; q0 += kQueries) {
      const int64_t queries = smaller(kQueries, at.queries - q0), rows = round_up(queries, kTile);
      const Storage *q = at.q(head, q0), *d_out = at.d_out(head, q0);
      pack_rows<M>(q_rows, q, call.q_stride.row, queries, rows, d, dim);
      pack_rows<M>(d_out_rows, d_out, call.d_out_stride.row, queries, rows, d, dim);
      if constexpr (kPair != 1) {
        pack_columns<M>(q_columns, q, call.q_stride.row, queries, rows, d, dim);
        pack_columns<M>(d_out_columns, d_out, call.d_out_stride.row, queries, rows, d, dim);
      }
      for (int64_t r = 0; r < rows; ++r) {
        // Rows beyond the sequence have dO = Q = 0: whatever P they get adds nothing.
        const Storage *dy = d_out + r * call.d_out_stride.row, *y = at.out(head, q0 + r);
        Acc sum = 0;
        for (int64_t j = 0; r < queries && j < d; ++j) sum += widen(dy[j]) * widen(y[j]);
        delta[r] = sum;
        lse2[r] = r < queries ? static_cast<Acc>(*at.lse(head, q0 + r) * kLog2e) : static_cast<Acc>(1e30f);
      }
      for (int64_t k0 = 0; k0 < at.reach(q0, rows); k0 += kKeys) {
        const int64_t offset = at.offset(q0, k0), block = k0 * dim / kPair;
        // The first query block that reaches these keys writes their sums.
        const bool add = head != first_head || (call.causal ? offset : q0) != 0;
        with_width(at.columns(k0), [&](auto width) {
          score_block<M>(scores, q_rows, k_transposed + block, rows, dim, offset, width);
          score_block<M>(d_p, d_out_rows, v_transposed + block, rows, dim, offset, width);
          if (!call.causal) hide_columns<M>(scores, rows, at.keys - k0, width, c);
          if (offset + 1 < kKeys)
            gradient_block<M, true>(scores, d_p, p_columns, ds_rows, ds_columns, c, rows, offset, width, lse2, delta);
          else
            gradient_block<M, false>(scores, d_p, p_columns, ds_rows, ds_columns, c, rows, offset, width, lse2, delta);
          weighted_rows<M>(dq, ds_rows, k_columns + block, rows, dim, offset, width, k0 != 0);
          weighted_columns<M>(dv + k0 * dim, p_columns, d_out_columns, rows, dim, offset, width, add);
          weighted_columns<M>(dk + k0 * dim, ds_columns, q_columns, rows, dim, offset, width, add);
        });
      }
      emit_rows<Storage>(call, call.dq, at.element(call.dq_stride, head, q0), call.dq_stride.row, dq, dim, queries,
                         scale);
    }
  }
  const int64_t first_key = at.element(call.dkv_stride, at.kv, 0), row = call.dkv_stride.row;
  emit_rows<Storage>(call, call.dk, first_key, row, dk, dim, at.keys, scale);
  emit_rows<Storage>(call, call.dv, first_key, row, dv, dim, at.keys, Acc{1});
}

}  // namespace
}  // namespace trireme::ops
