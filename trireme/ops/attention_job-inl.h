// Where one job of attention finds its rows, and which part of a block of scores it works on.
//
// Included once per instruction set, in an anonymous namespace: no symbol leaves its file.
#pragma once

#include "trireme/ops/attention_product-inl.h"

namespace trireme::ops {
namespace {

/// A whole block's width as a type, so that loops over it have a constant length; the last block's is an int64_t.
struct WholeBlock {
  constexpr operator int64_t() const { return kAttentionKeyBlock; }
};

/// body(width of a block), as a constant where it can be one.
template <class Body>
inline __attribute__((always_inline)) void with_width(int64_t width, const Body& body) {
  if (width == kAttentionKeyBlock)
    body(WholeBlock{});
  else
    body(width);
}

/// Where things are, for one job.
template <class M, class Storage>
struct Job {
  static constexpr int64_t kQueries = kAttentionQueryBlock, kKeys = kAttentionKeyBlock;
  const AttentionCall& call;
  const int64_t b, kv, group, queries, keys, d, dim, padded_keys;
  char* cursor;

  Job(const AttentionCall& call_, int64_t job, void* scratch)
      : call(call_),
        b(job / call.num_kv_heads),
        kv(job % call.num_kv_heads),
        group(call.num_heads / call.num_kv_heads),
        queries(call.queries),
        keys(call.keys),
        d(call.head_dim),
        dim(round_up(d, 16)),
        padded_keys(round_up(keys, kKeys)),
        cursor(static_cast<char*>(scratch)) {}

  int64_t element(AttentionStride stride, int64_t head, int64_t position) const {
    return b * stride.batch + position * stride.row + head * d;
  }
  const Storage* q(int64_t head, int64_t position) const {
    return static_cast<const Storage*>(call.q) + element(call.q_stride, head, position);
  }
  const Storage* k() const { return static_cast<const Storage*>(call.k) + element(call.kv_stride, kv, 0); }
  const Storage* v() const { return static_cast<const Storage*>(call.v) + element(call.kv_stride, kv, 0); }
  Storage* out(int64_t head, int64_t position) const {
    return static_cast<Storage*>(call.out) + element(call.out_stride, head, position);
  }
  const Storage* d_out(int64_t head, int64_t position) const {
    return static_cast<const Storage*>(call.d_out) + element(call.d_out_stride, head, position);
  }
  typename M::Acc* lse(int64_t head, int64_t position) const {
    return static_cast<typename M::Acc*>(call.lse) + b * call.lse_batch + head * call.lse_head + position;
  }
  /// Keys that a block of `rows` queries from q0 on can see.
  int64_t reach(int64_t q0, int64_t rows) const { return call.causal ? q0 + rows : keys; }
  /// Row r of the block (q0, k0) sees its first r + offset + 1 columns.
  int64_t offset(int64_t q0, int64_t k0) const { return call.causal ? q0 - k0 : kKeys; }
  /// Columns of a block that are worked on. Under the triangle all of them: padding lies beyond the diagonal.
  int64_t columns(int64_t k0) const {
    return call.causal ? kKeys : smaller(kKeys, round_up(keys - k0, larger(kTile, M::kLanes)));
  }
  template <class T>
  T* take(int64_t count) {
    char* p = cursor;
    cursor += round_up(count * static_cast<int64_t>(sizeof(T)), 64);
    return reinterpret_cast<T*>(p);
  }
};

}  // namespace
}  // namespace trireme::ops
