// Attention of a few new tokens to a cache of keys and values. Nothing is packed: for so few queries, reading the cache
// is most of the work.
#pragma once

#include "trireme/ops/attention/scores-inl.h"

namespace trireme::ops {
namespace {

/// scores[0 .. count) = q . key, four keys at a time; rows of k are `stride` apart.
template <class M, class Storage>
void score_row(typename M::Acc* scores, const typename M::Acc* q, const Storage* k, int64_t stride, int64_t count,
               int64_t d) {
  constexpr int64_t kAtOnce = 4;
  for (int64_t t = 0; t < count; t += kAtOnce) {
    const Storage* key[kAtOnce];
    typename M::Vec sums[kAtOnce];
    for (int64_t i = 0; i < kAtOnce; ++i) key[i] = k + smaller(t + i, count - 1) * stride, sums[i] = M::splat(0);
    int64_t j = 0;
    for (; j + M::kLanes <= d; j += M::kLanes) {
      const auto x = M::load(q + j);
#pragma GCC unroll 4
      for (int64_t i = 0; i < kAtOnce; ++i) sums[i] += x * M::widen_load(key[i] + j);
    }
    for (int64_t i = 0; i < smaller(kAtOnce, count - t); ++i) {
      typename M::Acc sum = M::total(sums[i]);
      for (int64_t rest = j; rest < d; ++rest) sum += q[rest] * widen(key[i][rest]);
      scores[t + i] = sum;
    }
  }
}

/// o += sum over t of p[t] v[t], NV vectors of the head.
template <class M, int NV, class Storage>
void add_values(typename M::Acc* o, const typename M::Acc* p, const Storage* v, int64_t stride, int64_t count) {
  typename M::Vec sums[NV];
#pragma GCC unroll 8
  for (int n = 0; n < NV; ++n) sums[n] = M::load(o + n * M::kLanes);
  for (int64_t t = 0; t < count; ++t) {
    const auto weight = M::splat(p[t]);
#pragma GCC unroll 8
    for (int n = 0; n < NV; ++n) sums[n] += weight * M::widen_load(v + t * stride + n * M::kLanes);
  }
#pragma GCC unroll 8
  for (int n = 0; n < NV; ++n) M::store(o + n * M::kLanes, sums[n]);
}

/// The job of one kv head of one batch row: all new tokens of the query heads that share it.
template <class M, class Storage>
struct Decode {
  using Acc = typename M::Acc;
  static constexpr int64_t kKeys = kKeyBlock<M>;

  Job<M, Storage> at;
  const int64_t rows = at.group * at.call.queries, dim = at.dim;
  const Acc c = static_cast<Acc>(exponent_scale(at.call)), cap_factor = static_cast<Acc>(cap_scale(at.call));
  Acc* const q = at.template take<Acc>(rows * dim);
  Acc* const o = at.template take<Acc>(rows * dim);
  Acc* const highest = at.template take<Acc>(rows);
  Acc* const sums = at.template take<Acc>(rows);
  Acc* const scores = at.template take<Acc>(kKeys);

  Decode(const AttentionCall& call, int64_t job, void* scratch) : at(call, job, scratch) {}

  int64_t head(int64_t r) const { return at.first_head() + r / at.call.queries; }
  int64_t query(int64_t r) const { return r % at.call.queries + at.skip; }

  void begin() {
    for (int64_t r = 0; r < rows; ++r) {
      const Storage* from = at.q(head(r), query(r));
      for (int64_t j = 0; j < at.d; ++j) q[r * dim + j] = widen(from[j]);
      for (int64_t j = 0; j < dim; ++j) o[r * dim + j] = 0;
      highest[r] = -1e30f, sums[r] = 0;
    }
  }

  /// Turns scores into powers of 2 relative to the row's highest score so far. If that rises, the row's sums are
  /// rescaled.
  void softmax(int64_t r, int64_t count) const {
    auto top = M::splat(highest[r]);
    for (int64_t j = count; j % M::kLanes != 0; ++j) scores[j] = 0;
    for (int64_t j = 0; j < count; j += M::kLanes) {
      auto x = M::load(scores + j);
      if (cap_factor != 0) x = M::tanh(x * M::splat(cap_factor));
      x = M::keep(x * M::splat(c), 0, count - j, -1e30f);
      M::store(scores + j, x);
      top = M::maximum(top, x);
    }
    const Acc now = M::highest(top);
    if (now > highest[r]) {
      const auto shrink = M::exp2(M::splat(highest[r] - now));
      for (Acc *y = o + r * dim, *end = y + dim; y < end; y += M::kLanes) M::store(y, M::load(y) * shrink);
      Acc first[M::kLanes];
      M::store(first, shrink);
      highest[r] = now, sums[r] *= first[0];
    }
    auto sum = M::splat(0);
    for (int64_t j = 0; j < count; j += M::kLanes) {
      const auto p = M::exp2(M::load(scores + j) - M::splat(now));
      sum += p;
      M::store(scores + j, p);
    }
    sums[r] += M::total(sum);
  }

  void attend(int64_t r, int64_t first, int64_t count) const {
    const int64_t stride = at.call.kv_stride.row;
    score_row<M>(scores, q + r * dim, at.k(first), stride, count, at.d);
    softmax(r, count);
    const Storage* v = at.v(first);
    Acc* const to = o + r * dim;
    int64_t j = 0;
    for (; j + 4 * M::kLanes <= at.d; j += 4 * M::kLanes) add_values<M, 4>(to + j, scores, v + j, stride, count);
    for (; j + M::kLanes <= at.d; j += M::kLanes) add_values<M, 1>(to + j, scores, v + j, stride, count);
    for (; j < at.d; ++j)
      for (int64_t t = 0; t < count; ++t) to[j] += scores[t] * widen(v[t * stride + j]);
  }

  void run() {
    begin();
    // Block by block of the cache, so that all heads of the group read a block while it is in the processor's caches.
    for (int64_t k0 = larger(0, at.first_key(at.skip)); k0 < at.keys; k0 += kKeys)
      for (int64_t r = 0; r < rows; ++r) {
        const int64_t first = larger(k0, at.first_key(query(r)));
        const int64_t end = smaller(k0 + kKeys, at.position(query(r)) + 1);
        if (first < end) attend(r, first, end - first);
      }
    for (int64_t r = 0; r < rows; ++r) scale_row<M>(at.out(head(r), query(r)), o + r * dim, 1 / sums[r], at.d);
  }
};

template <class M, class Storage>
void decode_task(const AttentionCall& call, const AttentionTask& task, void* scratch) {
  Decode<M, Storage>(call, task.job, scratch).run();
}

}  // namespace
}  // namespace trireme::ops
