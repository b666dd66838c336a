// Blocked causal attention, forward and backward, over the product of attention_product-inl.h.
//
// A job is one key/value head of one batch row. Its K and V are packed once and shared by the query heads of the
// group; 64 queries x 128 keys of scores live in cache at a time; blocks above the diagonal are skipped, and inside
// a block on the diagonal every product is trimmed to the triangle, 4 rows at a time. Only the log-sum-exp of each
// row is kept between forward and backward (Dao, FlashAttention-2, 2023).
//
// Included once per instruction set, in an anonymous namespace: no symbol leaves its file.
#pragma once

#include "trireme/ops/attention_product-inl.h"

namespace trireme::ops {
namespace {

/// Where things are, for one job.
template <class M, class Storage>
struct Job {
  static constexpr int64_t kQueries = kAttentionQueryBlock, kKeys = kAttentionKeyBlock;
  const AttentionCall& call;
  const int64_t b, kv, group, s, d, dim, keys, row, out_row;
  char* cursor;

  Job(const AttentionCall& call_, int64_t job, void* scratch)
      : call(call_),
        b(job / call.num_kv_heads),
        kv(job % call.num_kv_heads),
        group(call.num_heads / call.num_kv_heads),
        s(call.sequence),
        d(call.head_dim),
        dim(round_up(d, 16)),
        keys(round_up(s, kKeys)),
        row((call.num_heads + 2 * call.num_kv_heads) * d),
        out_row(call.num_heads * d),
        cursor(static_cast<char*>(scratch)) {}

  int64_t q_at(int64_t head, int64_t position) const { return (b * s + position) * row + head * d; }
  int64_t k_at(int64_t position) const { return q_at(call.num_heads + kv, position); }
  int64_t v_at(int64_t position) const { return q_at(call.num_heads + call.num_kv_heads + kv, position); }
  int64_t out_at(int64_t head, int64_t position) const { return (b * s + position) * out_row + head * d; }
  const Storage* qkv() const { return static_cast<const Storage*>(call.qkv); }
  typename M::Acc* lse(int64_t head, int64_t position) const {
    return static_cast<typename M::Acc*>(call.lse) + (b * call.num_heads + head) * s + position;
  }
  template <class T>
  T* take(int64_t count) {
    char* p = cursor;
    cursor += round_up(count * static_cast<int64_t>(sizeof(T)), 64);
    return reinterpret_cast<T*>(p);
  }
};

/// Scores [rows, kKeys] = left [rows, dim] right, of which row r needs the first r + offset + 1 columns.
template <class M>
void score_block(typename M::Acc* scores, const typename M::Unit* left, const typename M::Unit* right, int64_t rows,
                 int64_t dim, int64_t offset) {
  constexpr int64_t kKeys = kAttentionKeyBlock, kVectors = kKeys / M::kLanes;
  multiply<M>(rows, kVectors, left, dim / M::kPair, 1, right, kKeys, scores, kKeys, false, [&](int64_t r) {
    const int64_t columns = smaller(kKeys, r + kTile + offset);
    return Trim{0, dim / M::kPair, (columns + M::kLanes - 1) / M::kLanes};
  });
}

/// C [rows, dim] (+)= P [rows, keys of the block] B, P row-major, trimmed to the triangle.
template <class M>
void weighted_rows(typename M::Acc* c, const typename M::Unit* p, const typename M::Unit* b, int64_t rows, int64_t dim,
                   int64_t offset, bool accumulate) {
  constexpr int64_t kKeys = kAttentionKeyBlock;
  const int64_t vectors = dim / M::kLanes;
  multiply<M>(rows, vectors, p, kKeys / M::kPair, 1, b, dim, c, dim, accumulate,
              [&](int64_t r) { return Trim{0, smaller(kKeys, r + kTile + offset) / M::kPair, vectors}; });
}

/// C [keys of the block, dim] (+)= P^T B [rows, dim], P in pairs down the column, trimmed to the triangle.
template <class M>
void weighted_columns(typename M::Acc* c, const typename M::Unit* p, const typename M::Unit* b, int64_t rows,
                      int64_t dim, int64_t offset, bool accumulate) {
  constexpr int64_t kKeys = kAttentionKeyBlock;
  const int64_t vectors = dim / M::kLanes;
  // Keys that these rows do not reach have an empty sum: zero where this call is the first to write.
  const int64_t reached = accumulate ? smaller(kKeys, rows + offset) : kKeys;
  multiply<M>(reached, vectors, p, 1, kKeys, b, dim, c, dim, accumulate,
              [&](int64_t key) { return Trim{larger(0, key - offset) / M::kPair, rows / M::kPair, vectors}; });
}

/// Turns scores into P = 2^(scores * c - highest), and carries `highest`, `sums` (per lane) and `o` along.
template <class M, bool kMasked>
void softmax_block(typename M::Acc* scores, typename M::Unit* p, typename M::Acc c, int64_t rows, int64_t offset,
                   int64_t dim, bool first, typename M::Acc* highest, typename M::Acc* sums, typename M::Acc* o) {
  using Vec = typename M::Vec;
  using Acc = typename M::Acc;
  constexpr int64_t kKeys = kAttentionKeyBlock, kLanes = M::kLanes;
  const Vec cv = M::splat(c);
  for (int64_t r = 0; r < rows; r += 2) {
    const int64_t columns = kMasked ? columns_of_row<M>(r, offset) : kKeys;
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

template <class M, class Storage>
void forward_job(const AttentionCall& call, int64_t job, void* scratch) {
  using J = Job<M, Storage>;
  using Acc = typename M::Acc;
  using Unit = typename M::Unit;
  constexpr int64_t kQueries = J::kQueries, kKeys = J::kKeys;
  J at(call, job, scratch);
  const int64_t s = at.s, d = at.d, dim = at.dim;
  Unit* k_transposed = at.template take<Unit>(at.keys * dim / M::kPair);
  Unit* v_columns = at.template take<Unit>(at.keys * dim / M::kPair);
  Unit* q_rows = at.template take<Unit>(kQueries * dim / M::kPair);
  Acc* scores = at.template take<Acc>(kQueries * kKeys);
  Unit* p = M::kPair == 1 ? reinterpret_cast<Unit*>(scores) : at.template take<Unit>(kQueries * kKeys / M::kPair);
  Acc* o = at.template take<Acc>(kQueries * dim);
  Acc* highest = at.template take<Acc>(kQueries);
  Acc* sums = at.template take<Acc>(kQueries * M::kLanes);

  pack_transposed<M>(k_transposed, at.qkv() + at.k_at(0), at.row, s, d, dim);
  pack_columns<M>(v_columns, at.qkv() + at.v_at(0), at.row, s, at.keys, d, dim);
  const Acc c = static_cast<Acc>(call.scale * kLog2e);
  for (int64_t head = at.kv * at.group; head < (at.kv + 1) * at.group; ++head) {
    for (int64_t q0 = 0; q0 < s; q0 += kQueries) {
      const int64_t queries = smaller(kQueries, s - q0), rows = round_up(queries, kTile);
      pack_rows<M>(q_rows, at.qkv() + at.q_at(head, q0), at.row, queries, rows, d, dim);
      for (int64_t k0 = 0; k0 < q0 + rows; k0 += kKeys) {
        const int64_t offset = q0 - k0;
        score_block<M>(scores, q_rows, k_transposed + k0 * dim / M::kPair, rows, dim, offset);
        if (offset + 1 < kKeys)
          softmax_block<M, true>(scores, p, c, rows, offset, dim, k0 == 0, highest, sums, o);
        else
          softmax_block<M, false>(scores, p, c, rows, offset, dim, k0 == 0, highest, sums, o);
        weighted_rows<M>(o, p, v_columns + k0 * dim / M::kPair, rows, dim, offset, k0 != 0);
      }
      for (int64_t r = 0; r < queries; ++r) {
        const Acc sum = M::total(M::load(sums + r * M::kLanes)), inverse = 1 / sum;
        Storage* y = static_cast<Storage*>(call.out) + at.out_at(head, q0 + r);
        for (int64_t j = 0; j < d; ++j) narrow(o[r * dim + j] * inverse, y[j]);
        *at.lse(head, q0 + r) = static_cast<Acc>((highest[r] + __builtin_log2(static_cast<double>(sum))) * kLn2);
      }
    }
  }
}

/// scores -> P = exp(scores * scale - lse), and d_p -> dS = P (dP - D): P in pairs down the column, dS both ways.
template <class M, bool kMasked>
void gradient_block(const typename M::Acc* scores, const typename M::Acc* d_p, typename M::Unit* p_columns,
                    typename M::Unit* ds_rows, typename M::Unit* ds_columns, typename M::Acc c, int64_t rows,
                    int64_t offset, const typename M::Acc* lse2, const typename M::Acc* delta) {
  using Vec = typename M::Vec;
  constexpr int64_t kKeys = kAttentionKeyBlock, kLanes = M::kLanes;
  const Vec cv = M::splat(c);
  for (int64_t r = 0; r < rows; r += 2) {
    const int64_t columns = kMasked ? columns_of_row<M>(r, offset) : kKeys;
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

template <class M, class Storage>
void backward_job(const AttentionCall& call, int64_t job, void* scratch) {
  using J = Job<M, Storage>;
  using Acc = typename M::Acc;
  using Unit = typename M::Unit;
  constexpr int64_t kQueries = J::kQueries, kKeys = J::kKeys, kPair = M::kPair;
  J at(call, job, scratch);
  const int64_t s = at.s, d = at.d, dim = at.dim;
  Unit* k_transposed = at.template take<Unit>(at.keys * dim / kPair);
  Unit* v_transposed = at.template take<Unit>(at.keys * dim / kPair);
  Unit* k_columns = at.template take<Unit>(at.keys * dim / kPair);
  Acc* dk = at.template take<Acc>(at.keys * dim);
  Acc* dv = at.template take<Acc>(at.keys * dim);
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

  pack_transposed<M>(k_transposed, at.qkv() + at.k_at(0), at.row, s, d, dim);
  pack_transposed<M>(v_transposed, at.qkv() + at.v_at(0), at.row, s, d, dim);
  pack_columns<M>(k_columns, at.qkv() + at.k_at(0), at.row, s, at.keys, d, dim);
  const Acc c = static_cast<Acc>(call.scale * kLog2e), scale = static_cast<Acc>(call.scale);
  Storage* const dqkv = static_cast<Storage*>(call.dqkv);
  const int64_t first_head = at.kv * at.group;
  for (int64_t head = first_head; head < first_head + at.group; ++head) {
    for (int64_t q0 = 0; q0 < s; q0 += kQueries) {
      const int64_t queries = smaller(kQueries, s - q0), rows = round_up(queries, kTile);
      const Storage* q = at.qkv() + at.q_at(head, q0);
      const Storage* d_out = static_cast<const Storage*>(call.d_out) + at.out_at(head, q0);
      const Storage* out = static_cast<const Storage*>(call.out) + at.out_at(head, q0);
      pack_rows<M>(q_rows, q, at.row, queries, rows, d, dim);
      pack_rows<M>(d_out_rows, d_out, at.out_row, queries, rows, d, dim);
      if constexpr (kPair != 1) {
        pack_columns<M>(q_columns, q, at.row, queries, rows, d, dim);
        pack_columns<M>(d_out_columns, d_out, at.out_row, queries, rows, d, dim);
      }
      for (int64_t r = 0; r < rows; ++r) {
        // Rows beyond the sequence have dO = Q = 0: whatever P they get adds nothing.
        Acc sum = 0;
        for (int64_t j = 0; r < queries && j < d; ++j)
          sum += widen(d_out[r * at.out_row + j]) * widen(out[r * at.out_row + j]);
        delta[r] = sum;
        lse2[r] = r < queries ? static_cast<Acc>(*at.lse(head, q0 + r) * kLog2e) : static_cast<Acc>(1e30f);
      }
      for (int64_t k0 = 0; k0 < q0 + rows; k0 += kKeys) {
        const int64_t offset = q0 - k0, block = k0 * dim / kPair;
        score_block<M>(scores, q_rows, k_transposed + block, rows, dim, offset);
        score_block<M>(d_p, d_out_rows, v_transposed + block, rows, dim, offset);
        if (offset + 1 < kKeys)
          gradient_block<M, true>(scores, d_p, p_columns, ds_rows, ds_columns, c, rows, offset, lse2, delta);
        else
          gradient_block<M, false>(scores, d_p, p_columns, ds_rows, ds_columns, c, rows, offset, lse2, delta);
        weighted_rows<M>(dq, ds_rows, k_columns + block, rows, dim, offset, k0 != 0);
        const bool add = head != first_head || offset != 0;
        weighted_columns<M>(dv + k0 * dim, p_columns, d_out_columns, rows, dim, offset, add);
        weighted_columns<M>(dk + k0 * dim, ds_columns, q_columns, rows, dim, offset, add);
      }
      for (int64_t r = 0; r < queries; ++r)
        for (int64_t j = 0; j < d; ++j) narrow(dq[r * dim + j] * scale, dqkv[at.q_at(head, q0 + r) + j]);
    }
  }
  for (int64_t r = 0; r < s; ++r) {
    for (int64_t j = 0; j < d; ++j) narrow(dk[r * dim + j] * scale, dqkv[at.k_at(r) + j]);
    for (int64_t j = 0; j < d; ++j) narrow(dv[r * dim + j], dqkv[at.v_at(r) + j]);
  }
}

}  // namespace
}  // namespace trireme::ops
