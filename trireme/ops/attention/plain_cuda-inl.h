// Attention on a GPU in the arithmetic type of its elements: tiles of rows in shared memory, products by fused
// multiply-adds. A block of 16 x 16 threads has a tile of 16 kRows queries and as many keys; thread (x, y) has the rows
// y + 16 r and the columns x + 16 c of every product. Head dims are at most 16 kCols.
#pragma once

#include "trireme/ops/attention/common_cuda-inl.h"

namespace trireme::ops::cuda {
namespace {

constexpr int kPlainThreads = 256;

/// Rows of a tile in shared memory are an odd number of elements apart, so that 16 rows are in different banks.
__host__ __device__ inline int plain_row(int64_t head_dim) { return static_cast<int>(head_dim) | 1; }

template <class A, int kRows>
int64_t plain_bytes(int64_t head_dim, int tiles, int score_tiles) {
  constexpr int kTile = 16 * kRows;
  return static_cast<int64_t>(sizeof(A)) * kTile * (tiles * plain_row(head_dim) + score_tiles * (kTile + 1));
}

template <class A>
__device__ A* plain_shared() {
  extern __shared__ __align__(16) unsigned char shared_memory[];
  return reinterpret_cast<A*>(shared_memory);
}

/// `rows` rows of a head, from row `first` on, become rows of a tile; rows beyond them become zeros.
template <int kTile, class T, class A>
__device__ void load_plain(A* tile, const AttentionCall& call, const void* data, AttentionStride stride, int64_t b,
                           int64_t first, int64_t head, int64_t rows) {
  const int d = static_cast<int>(call.head_dim);
  const T* from = static_cast<const T*>(data) + element(stride, b, first, head, d);
  for (int e = threadIdx.x; e < kTile * d; e += kPlainThreads) {
    const int row = e / d, column = e % d;
    tile[row * plain_row(d) + column] = row < rows ? to_wide(from[row * stride.row + column]) : A(0);
  }
}

/// scores[r][c] = row y + 16 r of a, times row x + 16 c of b.
template <int kRows, class A>
__device__ void plain_scores(A (&scores)[kRows][kRows], const A* a, const A* b, int d) {
  const int x = threadIdx.x % 16, y = threadIdx.x / 16, ld = plain_row(d);
#pragma unroll
  for (int r = 0; r < kRows; ++r)
#pragma unroll
    for (int c = 0; c < kRows; ++c) scores[r][c] = 0;
  for (int j = 0; j < d; ++j) {
    A left[kRows], right[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) left[r] = a[(y + 16 * r) * ld + j], right[r] = b[(x + 16 * r) * ld + j];
#pragma unroll
    for (int r = 0; r < kRows; ++r)
#pragma unroll
      for (int c = 0; c < kRows; ++c) scores[r][c] += left[r] * right[c];
  }
}

/// sums[r][c] += sum over j of weight(y + 16 r, j) times column x + 16 c of row j of b.
template <int kRows, int kCols, class A, class Weight>
__device__ void plain_weighted(A (&sums)[kRows][kCols], const A* b, int d, const Weight& weight) {
  const int x = threadIdx.x % 16, y = threadIdx.x / 16, ld = plain_row(d);
  for (int j = 0; j < 16 * kRows; ++j) {
    A left[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) left[r] = weight(y + 16 * r, j);
#pragma unroll
    for (int c = 0; c < kCols; ++c) {
      const int column = x + 16 * c;
      const A right = column < d ? b[j * ld + column] : A(0);
#pragma unroll
      for (int r = 0; r < kRows; ++r) sums[r][c] += left[r] * right;
    }
  }
}

/// A block has a tile of queries of one head.
template <class T, int kRows, int kCols>
__global__ void __launch_bounds__(kPlainThreads) plain_forward(AttentionCall call, ScoreScale<Arithmetic<T>> scale) {
  using A = Arithmetic<T>;
  constexpr int kTile = 16 * kRows;
  const int d = static_cast<int>(call.head_dim), ld = plain_row(d), x = threadIdx.x % 16, y = threadIdx.x / 16;
  A* const q = plain_shared<A>();
  A* const kv = q + kTile * ld;
  A* const p = kv + kTile * ld;  // [kTile][kTile + 1]
  // In causal calls the last queries have the most work: they go first.
  const int64_t b = blockIdx.z, head = blockIdx.y, q0 = static_cast<int64_t>(gridDim.x - 1 - blockIdx.x) * kTile;
  const int64_t kv_head = head / (call.num_heads / call.num_kv_heads), rows = smaller(kTile, call.queries - q0);
  T* const out = static_cast<T*>(call.out);
  A* const lse = static_cast<A*>(call.lse);
  load_plain<kTile, T>(q, call, call.q, call.q_stride, b, q0, head, rows);

  A highest[kRows], sum[kRows], o[kRows][kCols];
  int64_t first[kRows], end[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const int64_t row = y + 16 * r, i = q0 + row;
    const bool holds = !call.causal && row < rows;
    first[r] = row < rows ? first_key(call, b, i) : 0;
    end[r] = row < rows ? end_key(call, i) : 0;
    // The state after earlier blocks, from their out and lse: as if there were one score, lse, with a sum of 1.
    const A lse2 = holds ? lse[lse_at(call, b, head, i)] * static_cast<A>(kLog2e) : A(kHidden);
    highest[r] = lse2 > kHidden ? lse2 : A(kHidden);
    sum[r] = holds ? 1 : 0;
#pragma unroll
    for (int c = 0; c < kCols; ++c)
      o[r][c] = holds && x + 16 * c < d ? to_wide(out[element(call.out_stride, b, i, head, d) + x + 16 * c]) : A(0);
  }

  const int64_t keys_end = end_key(call, q0 + rows - 1);
  for (int64_t k0 = first_key(call, b, q0) / kTile * kTile; k0 < keys_end; k0 += kTile) {
    const int64_t keys = smaller(kTile, call.keys - k0);
    __syncthreads();  // kv and p of the last tile have been read
    load_plain<kTile, T>(kv, call, call.k, call.kv_stride, b, k0, kv_head, keys);
    __syncthreads();
    A s[kRows][kRows];
    plain_scores(s, q, kv, d);
    __syncthreads();
    load_plain<kTile, T>(kv, call, call.v, call.kv_stride, b, k0, kv_head, keys);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      A top = highest[r];
#pragma unroll
      for (int c = 0; c < kRows; ++c) {
        const int64_t key = k0 + x + 16 * c;
        if (scale.cap != 0) s[r][c] = tanh_of(s[r][c] * scale.cap);
        s[r][c] *= scale.exponent;
        if (key >= first[r] && key < end[r] && s[r][c] > top) top = s[r][c];
      }
      top = warp_max<16>(top);  // over the 16 threads of one y
      const A shrink = power_of_2(highest[r] - top);
      A part = 0;
#pragma unroll
      for (int c = 0; c < kRows; ++c) {
        const int64_t key = k0 + x + 16 * c;
        const A weight = key >= first[r] && key < end[r] ? power_of_2(s[r][c] - top) : A(0);
        p[(y + 16 * r) * (kTile + 1) + x + 16 * c] = weight;
        part += weight;
      }
      highest[r] = top;
      sum[r] = sum[r] * shrink + warp_sum<16>(part);
#pragma unroll
      for (int c = 0; c < kCols; ++c) o[r][c] *= shrink;
    }
    __syncthreads();
    plain_weighted(o, kv, d, [&](int row, int j) { return p[row * (kTile + 1) + j]; });
  }

#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const int64_t row = y + 16 * r, i = q0 + row;
    if (row >= rows) continue;
    T* const to = out + element(call.out_stride, b, i, head, d);
#pragma unroll
    for (int c = 0; c < kCols; ++c)
      if (x + 16 * c < d) to[x + 16 * c] = to_storage<T>(o[r][c] / sum[r]);
    if (x == 0) lse[lse_at(call, b, head, i)] = (highest[r] + log_2(sum[r])) * static_cast<A>(kLn2);
  }
}

/// What the backward needs to know of one query of a thread.
template <class A>
struct PlainQuery {
  int64_t first = 0, end = 0;  ///< keys that it sees; none if there is no such query
  A lse2 = 0, delta = 0;

  __device__ PlainQuery(const AttentionCall& call, int64_t b, int64_t head, int64_t i, const A* deltas) {
    if (i >= call.queries) return;
    first = first_key(call, b, i), end = end_key(call, i);
    lse2 = static_cast<const A*>(call.lse)[lse_at(call, b, head, i)] * static_cast<A>(kLog2e);
    delta = deltas[delta_at(call, b, head, i)];
  }
  /// Computes P and dS from `score` (query times key) and `d_p` (d_out times value).
  __device__ void gradients(int64_t key, const ScoreScale<A>& scale, A score, A d_p, A* p, A* d_s) const {
    *p = *d_s = 0;
    if (key < first || key >= end) return;
    const A capped = scale.cap != 0 ? tanh_of(score * scale.cap) : score;
    *p = power_of_2(capped * scale.exponent - lse2);
    *d_s = *p * (d_p - delta);
    if (scale.cap != 0) *d_s *= 1 - capped * capped;
  }
};

/// dq of a tile of queries of one head.
template <class T, int kRows, int kCols>
__global__ void __launch_bounds__(kPlainThreads)
    plain_backward_q(AttentionCall call, ScoreScale<Arithmetic<T>> scale, const Arithmetic<T>* deltas) {
  using A = Arithmetic<T>;
  constexpr int kTile = 16 * kRows;
  const int d = static_cast<int>(call.head_dim), ld = plain_row(d), x = threadIdx.x % 16, y = threadIdx.x / 16;
  A* const q = plain_shared<A>();
  A* const d_out = q + kTile * ld;
  A* const k = d_out + kTile * ld;
  A* const v = k + kTile * ld;
  A* const d_s = v + kTile * ld;  // [kTile][kTile + 1]
  const int64_t b = blockIdx.z, head = blockIdx.y, q0 = static_cast<int64_t>(gridDim.x - 1 - blockIdx.x) * kTile;
  const int64_t kv_head = head / (call.num_heads / call.num_kv_heads), rows = smaller(kTile, call.queries - q0);
  load_plain<kTile, T>(q, call, call.q, call.q_stride, b, q0, head, rows);
  load_plain<kTile, T>(d_out, call, call.d_out, call.d_out_stride, b, q0, head, rows);
  A dq[kRows][kCols] = {};
  const int64_t keys_end = end_key(call, q0 + rows - 1);
  for (int64_t k0 = first_key(call, b, q0) / kTile * kTile; k0 < keys_end; k0 += kTile) {
    const int64_t keys = smaller(kTile, call.keys - k0);
    __syncthreads();  // k and d_s of the last tile have been read
    load_plain<kTile, T>(k, call, call.k, call.kv_stride, b, k0, kv_head, keys);
    load_plain<kTile, T>(v, call, call.v, call.kv_stride, b, k0, kv_head, keys);
    __syncthreads();
    A s[kRows][kRows], d_p[kRows][kRows];
    plain_scores(s, q, k, d);
    plain_scores(d_p, d_out, v, d);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const PlainQuery<A> query(call, b, head, q0 + y + 16 * r, deltas);
#pragma unroll
      for (int c = 0; c < kRows; ++c) {
        A p;
        query.gradients(k0 + x + 16 * c, scale, s[r][c], d_p[r][c], &p, &d_s[(y + 16 * r) * (kTile + 1) + x + 16 * c]);
      }
    }
    __syncthreads();
    plain_weighted(dq, k, d, [&](int row, int j) { return d_s[row * (kTile + 1) + j]; });
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    if (y + 16 * r >= rows) continue;
    const int64_t to = element(call.dq_stride, b, q0 + y + 16 * r, head, d);
#pragma unroll
    for (int c = 0; c < kCols; ++c)
      if (x + 16 * c < d) emit<T>(call, call.dq, to + x + 16 * c, dq[r][c] * static_cast<A>(call.scale));
  }
}

/// dk and dv of a tile of keys, over all query heads that read them.
template <class T, int kRows, int kCols>
__global__ void __launch_bounds__(kPlainThreads)
    plain_backward_kv(AttentionCall call, ScoreScale<Arithmetic<T>> scale, const Arithmetic<T>* deltas) {
  using A = Arithmetic<T>;
  constexpr int kTile = 16 * kRows;
  const int d = static_cast<int>(call.head_dim), ld = plain_row(d), x = threadIdx.x % 16, y = threadIdx.x / 16;
  A* const k = plain_shared<A>();
  A* const v = k + kTile * ld;
  A* const q = v + kTile * ld;
  A* const d_out = q + kTile * ld;
  A* const p = d_out + kTile * ld;  // [kTile][kTile + 1]
  A* const d_s = p + kTile * (kTile + 1);
  const int64_t b = blockIdx.z, kv_head = blockIdx.y, k0 = static_cast<int64_t>(blockIdx.x) * kTile;
  const int64_t group = call.num_heads / call.num_kv_heads, keys = smaller(kTile, call.keys - k0);
  load_plain<kTile, T>(k, call, call.k, call.kv_stride, b, k0, kv_head, keys);
  load_plain<kTile, T>(v, call, call.v, call.kv_stride, b, k0, kv_head, keys);
  A dk[kRows][kCols] = {}, dv[kRows][kCols] = {};
  for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head)
    for (int64_t q0 = first_query_of(call, k0) / kTile * kTile; q0 < call.queries; q0 += kTile) {
      if (first_key(call, b, q0) >= k0 + keys) break;  // nor does any later query see these keys
      const int64_t rows = smaller(kTile, call.queries - q0);
      __syncthreads();  // q, d_out, p and d_s of the last tile have been read
      load_plain<kTile, T>(q, call, call.q, call.q_stride, b, q0, head, rows);
      load_plain<kTile, T>(d_out, call, call.d_out, call.d_out_stride, b, q0, head, rows);
      __syncthreads();
      A s[kRows][kRows], d_p[kRows][kRows];
      plain_scores(s, q, k, d);
      plain_scores(d_p, d_out, v, d);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const PlainQuery<A> query(call, b, head, q0 + y + 16 * r, deltas);
#pragma unroll
        for (int c = 0; c < kRows; ++c) {
          const int64_t key = k0 + x + 16 * c;
          const int to = (y + 16 * r) * (kTile + 1) + x + 16 * c;
          query.gradients(key < call.keys ? key : -1, scale, s[r][c], d_p[r][c], &p[to], &d_s[to]);
        }
      }
      __syncthreads();
      plain_weighted(dv, d_out, d, [&](int row, int j) { return p[j * (kTile + 1) + row]; });
      plain_weighted(dk, q, d, [&](int row, int j) { return d_s[j * (kTile + 1) + row]; });
    }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    if (y + 16 * r >= keys) continue;
    const int64_t to = element(call.dkv_stride, b, k0 + y + 16 * r, kv_head, d);
#pragma unroll
    for (int c = 0; c < kCols; ++c) {
      if (x + 16 * c >= d) continue;
      emit<T>(call, call.dk, to + x + 16 * c, dk[r][c] * static_cast<A>(call.scale));
      emit<T>(call, call.dv, to + x + 16 * c, dv[r][c]);
    }
  }
}

template <class T, int kRows, int kCols>
void launch_plain_forward(const AttentionCall& call) {
  using A = Arithmetic<T>;
  const dim3 grid(blocks_of(call.queries, 16 * kRows), call.num_heads, call.batch);
  launch("attention_forward", plain_forward<T, kRows, kCols>, grid, kPlainThreads,
         plain_bytes<A, kRows>(call.head_dim, 2, 1), call, ScoreScale<A>(call));
}

template <class T, int kRows, int kCols>
void launch_plain_backward(const AttentionCall& call) {
  using A = Arithmetic<T>;
  const Scratch scratch(call.batch * call.num_heads * call.queries * static_cast<int64_t>(sizeof(A)));
  A* const delta = scratch.as<A>();
  launch_delta<T>(call, delta);
  const dim3 queries(blocks_of(call.queries, 16 * kRows), call.num_heads, call.batch);
  launch("attention_backward", plain_backward_q<T, kRows, kCols>, queries, kPlainThreads,
         plain_bytes<A, kRows>(call.head_dim, 4, 1), call, ScoreScale<A>(call), delta);
  const dim3 keys(blocks_of(call.keys, 16 * kRows), call.num_kv_heads, call.batch);
  launch("attention_backward", plain_backward_kv<T, kRows, kCols>, keys, kPlainThreads,
         plain_bytes<A, kRows>(call.head_dim, 4, 2), call, ScoreScale<A>(call), delta);
}

/// Tiles are as large as registers allow, and as 163 KiB of shared memory allow, which a block has on an A100 or H100.
template <class T>
void plain_attention_forward(const AttentionCall& call) {
  constexpr int kRows = sizeof(T) == 8 ? 2 : 4;
  if (call.head_dim <= 64) return launch_plain_forward<T, kRows, 4>(call);
  if (call.head_dim <= 128) return launch_plain_forward<T, kRows, 8>(call);
  launch_plain_forward<T, kRows, 16>(call);
}
template <class T>
void plain_attention_backward(const AttentionCall& call) {
  constexpr int kRows = sizeof(T) == 8 ? 2 : 4;
  if (call.head_dim <= 64) return launch_plain_backward<T, kRows, 4>(call);
  if (call.head_dim <= 128) return launch_plain_backward<T, kRows, 8>(call);
  launch_plain_backward<T, kRows / 2, 16>(call);
}

}  // namespace
}  // namespace trireme::ops::cuda
