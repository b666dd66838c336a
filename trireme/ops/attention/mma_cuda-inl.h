// Attention on a GPU in bfloat16, on tensor cores. Scores and their gradients stay in registers: a warp has 16 rows of
// every product (rows are queries; for dk and dv they are keys). Rounded to bfloat16, scores are operands of the next
// product. Shared memory holds only rows of q, k, v and d_out. It holds two tiles of each tensor that a loop runs over:
// the next tile is copied during the products of this one. Head dims are padded with zeros to kDim. Source: Dao,
// FlashAttention-2 (2023).
#pragma once

#include "trireme/ops/attention/common_cuda-inl.h"
#include "trireme/ops/attention/tensor_core_cuda-inl.h"

namespace trireme::ops::cuda {
namespace {

/// What is the same for all blocks of a launch.
struct MmaCall {
  AttentionCall call;
  ScoreScale<float> scale;
  bool aligned;  ///< all rows begin at multiples of 16 bytes
  const float* delta;  ///< sum(dout * out), [B, H, Q]; backward only
};

/// Elements of a row in shared memory: 8 more than kDim, so that the 8 rows of a matrix are in different banks.
template <int kDim>
constexpr int kMmaRow = kDim + 8;

__device__ inline __nv_bfloat16* mma_shared() {
  extern __shared__ __align__(16) unsigned char shared_memory[];
  return reinterpret_cast<__nv_bfloat16*>(shared_memory);
}

/// A lane's place in operands, for load_matrices and load_transposed.
struct MmaLane {
  int lane = threadIdx.x % kWarp, g = lane / 4, t = lane % 4;
  /// The lane's offset in A [16, 16]. With load_transposed: in B [16, 16] as it is stored, both halves of 8 columns.
  template <int kRow>
  __device__ int down() const {
    return lane % 16 * kRow + lane / 16 * 8;
  }
  /// The lane's offset in the transpose of B [16, 16], both halves of 8 columns.
  template <int kRow>
  __device__ int across() const {
    return (lane / 16 * 8 + lane % 8) * kRow + lane / 8 % 2 * 8;
  }
};

/// Begins to copy `rows` rows of a head, from row `first` on, to a tile. The tile gets zeros beyond them and beyond the
/// head dim.
template <int kTile, int kDim, int kThreads>
__device__ void copy_rows(const MmaCall& m, __nv_bfloat16* tile, const void* data, AttentionStride strides, int64_t b,
                          int64_t first, int64_t head, int64_t rows) {
  constexpr int kChunks = kDim / 8;
  const int d = static_cast<int>(m.call.head_dim);
  const auto* from = static_cast<const __nv_bfloat16*>(data) + element(strides, b, first, head, d);
  const int64_t stride = strides.row;
  for (int e = threadIdx.x; e < kTile * kChunks; e += kThreads) {
    const int row = e / kChunks, column = e % kChunks * 8;
    __nv_bfloat16* const to = tile + row * kMmaRow<kDim> + column;
    if (m.aligned) {
      const bool some = row < rows && column < d;
      copy_later(to, some ? from + row * stride + column : from, some);
    } else {
      for (int j = 0; j < 8; ++j)
        to[j] = row < rows && column + j < d ? from[row * stride + column + j] : __float2bfloat16_rn(0);
    }
  }
}

/// c [16, 8 kBlocks] (+)= a [16, kDim] b^T, rows of a and b in shared memory.
template <int kDim, int kBlocks>
__device__ void mma_scores(float (&c)[kBlocks][4], const __nv_bfloat16* a, const __nv_bfloat16* b,
                           const MmaLane& lane) {
  constexpr int kRow = kMmaRow<kDim>;
#pragma unroll
  for (int n = 0; n < kBlocks; ++n) c[n][0] = c[n][1] = c[n][2] = c[n][3] = 0;
#pragma unroll
  for (int j = 0; j < kDim; j += 16) {
    uint32_t left[4];
    load_matrices(left, a + lane.down<kRow>() + j);
#pragma unroll
    for (int n = 0; n < kBlocks; n += 2) {
      uint32_t right[4];
      load_matrices(right, b + n * 8 * kRow + lane.across<kRow>() + j);
      multiply_add(c[n], left, right[0], right[1]);
      multiply_add(c[n + 1], left, right[2], right[3]);
    }
  }
}

/// sums [16, 8 kColumns] += weights [16, 8 kBlocks] b, rows of b in shared memory.
template <int kRow, int kBlocks, int kColumns>
__device__ void mma_weighted(float (&sums)[kColumns][4], const float (&weights)[kBlocks][4], const __nv_bfloat16* b,
                             const MmaLane& lane) {
#pragma unroll
  for (int j = 0; j < kBlocks; j += 2) {
    const uint32_t left[4] = {pack(weights[j][0], weights[j][1]), pack(weights[j][2], weights[j][3]),
                              pack(weights[j + 1][0], weights[j + 1][1]), pack(weights[j + 1][2], weights[j + 1][3])};
#pragma unroll
    for (int n = 0; n < kColumns; n += 2) {
      uint32_t right[4];
      load_transposed(right, b + j * 8 * kRow + lane.down<kRow>() + n * 8);
      multiply_add(sums[n], left, right[0], right[1]);
      multiply_add(sums[n + 1], left, right[2], right[3]);
    }
  }
}

/// The sum (or maximum) over the four lanes that hold a row of C.
__device__ inline float quad_sum(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}
__device__ inline float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

/// Keys [first, end) that query i sees; none if there is no such query.
struct Span {
  int first = 0, end = 0;
  __device__ Span() = default;
  __device__ Span(const AttentionCall& call, int64_t b, int64_t i) {
    if (i >= call.queries) return;
    first = static_cast<int>(first_key(call, b, i)), end = static_cast<int>(end_key(call, i));
  }
  __device__ bool has(int key) const { return key >= first && key < end; }
};

/// Emits x and y as two neighbours in a row of a gradient, from column `column` on.
__device__ inline void emit_pair(const MmaCall& m, void* gradient, int64_t row, int column, float x, float y) {
  if (m.call.causal && m.aligned) {
    if (column < m.call.head_dim)
      reinterpret_cast<uint32_t*>(static_cast<__nv_bfloat16*>(gradient) + row)[column / 2] = pack(x, y);
    return;
  }
  if (column < m.call.head_dim) emit<__nv_bfloat16>(m.call, gradient, row + column, x);
  if (column + 1 < m.call.head_dim) emit<__nv_bfloat16>(m.call, gradient, row + column + 1, y);
}

/// The forward. A block has 16 kWarps queries of one head. Up to head dim 128, a multiprocessor holds 16 warps, whose
/// threads have 128 registers.
template <int kDim, int kKeys, int kWarps>
__global__ void __launch_bounds__(kWarps* kWarp, kDim <= 128 ? 16 / kWarps : 1) mma_forward(MmaCall m) {
  constexpr int kThreads = kWarps * kWarp, kQueries = 16 * kWarps, kRow = kMmaRow<kDim>, kTile = kKeys * kRow;
  const AttentionCall& call = m.call;
  const MmaLane lane;
  const int warp = threadIdx.x / kWarp, d = static_cast<int>(call.head_dim);
  __nv_bfloat16* const q = mma_shared();
  __nv_bfloat16* const stages = q + kQueries * kRow;  // k, v; then the other k, v
  // In causal calls the last queries have the most work: they go first.
  const int64_t b = blockIdx.z, head = blockIdx.y, q0 = static_cast<int64_t>(gridDim.x - 1 - blockIdx.x) * kQueries;
  const int64_t kv_head = head / (call.num_heads / call.num_kv_heads);
  const int rows = static_cast<int>(smaller(kQueries, call.queries - q0));

  const auto copy_keys = [&](int k0, __nv_bfloat16* to) {
    const int64_t keys = smaller(kKeys, call.keys - k0);
    copy_rows<kKeys, kDim, kThreads>(m, to, call.k, call.kv_stride, b, k0, kv_head, keys);
    copy_rows<kKeys, kDim, kThreads>(m, to + kTile, call.v, call.kv_stride, b, k0, kv_head, keys);
  };
  const int keys_begin = static_cast<int>(first_key(call, b, q0) / kKeys * kKeys);
  const int keys_end = static_cast<int>(end_key(call, q0 + rows - 1));
  // Every query sees all keys of a tile within these ends.
  const int whole_begin = static_cast<int>(first_key(call, b, q0 + rows - 1));
  const int whole_end = static_cast<int>(end_key(call, q0));
  copy_rows<kQueries, kDim, kThreads>(m, q, call.q, call.q_stride, b, q0, head, rows);
  copy_keys(keys_begin, stages);

  __nv_bfloat16* const out = static_cast<__nv_bfloat16*>(call.out);
  float* const lse = static_cast<float*>(call.lse);
  float highest[2], sum[2], o[kDim / 8][4];  // sum: this lane's part
  Span seen[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int row = warp * 16 + lane.g + 8 * h;
    const int64_t i = q0 + row;
    const bool holds = !call.causal && row < rows;
    seen[h] = Span(call, b, i);
    // The state after earlier blocks, from their out and lse: as if there were one score, lse, with a sum of 1.
    const float lse2 = holds ? lse[lse_at(call, b, head, i)] * static_cast<float>(kLog2e) : kHidden;
    highest[h] = lse2 > kHidden ? lse2 : kHidden;
    sum[h] = holds && lane.t == 0 ? 1 : 0;
    const __nv_bfloat16* held = out + element(call.out_stride, b, i, head, d);
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int column = n * 8 + lane.t * 2 + e;
        o[n][2 * h + e] = holds && column < d ? to_wide(held[column]) : 0;
      }
  }

  // Keys beyond those of the warp's last query are hidden from the whole warp.
  const int warp_end = static_cast<int>(end_key(call, q0 + smaller(rows, warp * 16 + 16) - 1));
  int stage = 0;
  for (int k0 = keys_begin; k0 < keys_end; k0 += kKeys, stage ^= 1) {
    const __nv_bfloat16* const k = stages + stage * 2 * kTile;
    wait_for_copies();
    __syncthreads();  // this tile is here, and the other one has been read
    if (k0 + kKeys < keys_end) copy_keys(k0 + kKeys, stages + (stage ^ 1) * 2 * kTile);
    if (k0 >= warp_end) continue;
    float s[kKeys / 8][4];
    mma_scores<kDim>(s, q + warp * 16 * kRow, k, lane);
    const bool whole = k0 >= whole_begin && k0 + kKeys <= whole_end;
    if (m.scale.cap != 0)
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) s[n][e] = tanh_of(s[n][e] * m.scale.cap);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float top = highest[h];
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float& x = s[n][2 * h + e];
          x *= m.scale.exponent;
          if (!whole && !seen[h].has(k0 + n * 8 + lane.t * 2 + e)) x = -INFINITY;
          top = fmaxf(top, x);
        }
      top = quad_max(top);
      const float shrink = power_of_2(highest[h] - top);
      highest[h] = top;
      sum[h] *= shrink;
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float& x = s[n][2 * h + e];
          x = power_of_2(x - top);  // 0 if hidden: top is never -infinity
          sum[h] += x;
        }
#pragma unroll
      for (int n = 0; n < kDim / 8; ++n) o[n][2 * h] *= shrink, o[n][2 * h + 1] *= shrink;
    }
    mma_weighted<kRow>(o, s, k + kTile, lane);
  }

#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int row = warp * 16 + lane.g + 8 * h;
    const int64_t i = q0 + row;
    const float total = quad_sum(sum[h]), inverse = 1 / total;
    if (row >= rows) continue;
    __nv_bfloat16* const to = out + element(call.out_stride, b, i, head, d);
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n) {
      const int column = n * 8 + lane.t * 2;
      const float x = o[n][2 * h] * inverse, y = o[n][2 * h + 1] * inverse;
      if (m.aligned) {
        if (column < d) reinterpret_cast<uint32_t*>(to)[column / 2] = pack(x, y);
      } else {
        if (column < d) to[column] = __float2bfloat16_rn(x);
        if (column + 1 < d) to[column + 1] = __float2bfloat16_rn(y);
      }
    }
    if (lane.t == 0) lse[lse_at(call, b, head, i)] = (highest[h] + log_2(total)) * static_cast<float>(kLn2);
  }
}

/// Turns score and d_p of one query and key into P and dS.
__device__ inline void mma_gradients(const MmaCall& m, bool seen, float lse2, float delta, float& score, float& d_p) {
  const float capped = m.scale.cap != 0 ? tanh_of(score * m.scale.cap) : score;
  const float slope = m.scale.cap != 0 ? 1 - capped * capped : 1;
  score = seen ? power_of_2(capped * m.scale.exponent - lse2) : 0;
  d_p = seen ? score * (d_p - delta) * slope : 0;
}

/// dq of 16 kWarps queries of one head.
template <int kDim, int kKeys, int kWarps>
__global__ void __launch_bounds__(kWarps* kWarp) mma_backward_q(MmaCall m) {
  constexpr int kThreads = kWarps * kWarp, kQueries = 16 * kWarps, kRow = kMmaRow<kDim>, kTile = kKeys * kRow;
  const AttentionCall& call = m.call;
  const MmaLane lane;
  const int warp = threadIdx.x / kWarp, d = static_cast<int>(call.head_dim);
  __nv_bfloat16* const q = mma_shared();
  __nv_bfloat16* const d_out = q + kQueries * kRow;
  __nv_bfloat16* const stages = d_out + kQueries * kRow;  // k, v; then the other k, v
  const int64_t b = blockIdx.z, head = blockIdx.y, q0 = static_cast<int64_t>(gridDim.x - 1 - blockIdx.x) * kQueries;
  const int64_t kv_head = head / (call.num_heads / call.num_kv_heads);
  const int rows = static_cast<int>(smaller(kQueries, call.queries - q0));

  const auto copy_keys = [&](int k0, __nv_bfloat16* to) {
    const int64_t keys = smaller(kKeys, call.keys - k0);
    copy_rows<kKeys, kDim, kThreads>(m, to, call.k, call.kv_stride, b, k0, kv_head, keys);
    copy_rows<kKeys, kDim, kThreads>(m, to + kTile, call.v, call.kv_stride, b, k0, kv_head, keys);
  };
  const int keys_begin = static_cast<int>(first_key(call, b, q0) / kKeys * kKeys);
  const int keys_end = static_cast<int>(end_key(call, q0 + rows - 1));
  const int whole_begin = static_cast<int>(first_key(call, b, q0 + rows - 1));
  const int whole_end = static_cast<int>(end_key(call, q0));
  copy_rows<kQueries, kDim, kThreads>(m, q, call.q, call.q_stride, b, q0, head, rows);
  copy_rows<kQueries, kDim, kThreads>(m, d_out, call.d_out, call.d_out_stride, b, q0, head, rows);
  copy_keys(keys_begin, stages);

  float lse2[2] = {}, delta[2] = {}, dq[kDim / 8][4] = {};
  Span seen[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int64_t i = q0 + warp * 16 + lane.g + 8 * h;
    seen[h] = Span(call, b, i);
    if (i >= call.queries) continue;
    lse2[h] = static_cast<const float*>(call.lse)[lse_at(call, b, head, i)] * static_cast<float>(kLog2e);
    delta[h] = m.delta[delta_at(call, b, head, i)];
  }

  int stage = 0;
  for (int k0 = keys_begin; k0 < keys_end; k0 += kKeys, stage ^= 1) {
    const __nv_bfloat16* const k = stages + stage * 2 * kTile;
    wait_for_copies();
    __syncthreads();  // this tile is here, and the other one has been read
    if (k0 + kKeys < keys_end) copy_keys(k0 + kKeys, stages + (stage ^ 1) * 2 * kTile);
    float s[kKeys / 8][4], d_p[kKeys / 8][4];
    mma_scores<kDim>(s, q + warp * 16 * kRow, k, lane);
    mma_scores<kDim>(d_p, d_out + warp * 16 * kRow, k + kTile, lane);
    const bool whole = k0 >= whole_begin && k0 + kKeys <= whole_end;
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        mma_gradients(m, whole || seen[e / 2].has(k0 + n * 8 + lane.t * 2 + e % 2), lse2[e / 2], delta[e / 2], s[n][e],
                      d_p[n][e]);
    mma_weighted<kRow>(dq, d_p, k, lane);
  }

  const auto scale = static_cast<float>(call.scale);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int row = warp * 16 + lane.g + 8 * h;
    if (row >= rows) continue;
    const int64_t to = element(call.dq_stride, b, q0 + row, head, d);
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n)
      emit_pair(m, call.dq, to, n * 8 + lane.t * 2, dq[n][2 * h] * scale, dq[n][2 * h + 1] * scale);
  }
}

/// Per-query values of a tile of queries.
template <int kQueries>
struct MmaQueries {
  float lse2[kQueries], delta[kQueries];
  Span seen[kQueries];
};

template <int kDim, int kQueries, int kWarps, int kSplit>
constexpr int64_t kMmaKvBytes = (2 * (16 * kWarps / kSplit) + 4 * kQueries) * kMmaRow<kDim> * 2 +
                                2 * static_cast<int64_t>(sizeof(MmaQueries<kQueries>));

/// dk and dv of 16 kWarps / kSplit keys, over all query heads that read them. Scores are transposed: keys are rows. A
/// warp sums one of kSplit parts of the columns of dk and dv, because all columns would need too many registers.
template <int kDim, int kQueries, int kWarps, int kSplit>
__global__ void __launch_bounds__(kWarps* kWarp) mma_backward_kv(MmaCall m) {
  constexpr int kThreads = kWarps * kWarp, kKeys = 16 * kWarps / kSplit, kRow = kMmaRow<kDim>, kTile = kQueries * kRow,
                kColumns = kDim / kSplit;
  const AttentionCall& call = m.call;
  const MmaLane lane;
  const int warp = threadIdx.x / kWarp, d = static_cast<int>(call.head_dim);
  const int key_row = warp % (kWarps / kSplit) * 16, first_column = warp / (kWarps / kSplit) * kColumns;
  __nv_bfloat16* const k = mma_shared();
  __nv_bfloat16* const v = k + kKeys * kRow;
  __nv_bfloat16* const stages = v + kKeys * kRow;  // q, d_out; then the other q, d_out
  auto* const beside = reinterpret_cast<MmaQueries<kQueries>*>(stages + 4 * kTile);  // of both stages
  const int64_t b = blockIdx.z, kv_head = blockIdx.y, group = call.num_heads / call.num_kv_heads;
  const int k0 = static_cast<int>(blockIdx.x) * kKeys, keys = static_cast<int>(smaller(kKeys, call.keys - k0));

  const auto copy_queries = [&](int64_t head, int64_t q0, int to) {
    __nv_bfloat16* const rows_to = stages + to * 2 * kTile;
    const int64_t rows = smaller(kQueries, call.queries - q0);
    copy_rows<kQueries, kDim, kThreads>(m, rows_to, call.q, call.q_stride, b, q0, head, rows);
    copy_rows<kQueries, kDim, kThreads>(m, rows_to + kTile, call.d_out, call.d_out_stride, b, q0, head, rows);
    for (int row = threadIdx.x; row < kQueries; row += kThreads) {
      const int64_t i = q0 + row;
      const bool some = i < call.queries;
      beside[to].seen[row] = Span(call, b, i);
      beside[to].lse2[row] =
          some ? static_cast<const float*>(call.lse)[lse_at(call, b, head, i)] * static_cast<float>(kLog2e) : 0;
      beside[to].delta[row] = some ? m.delta[delta_at(call, b, head, i)] : 0;
    }
  };
  copy_rows<kKeys, kDim, kThreads>(m, k, call.k, call.kv_stride, b, k0, kv_head, keys);
  copy_rows<kKeys, kDim, kThreads>(m, v, call.v, call.kv_stride, b, k0, kv_head, keys);
  // Every head's first tile of queries sees some of the keys: in causal calls, query k0 does.
  const int64_t q_begin = first_query_of(call, k0) / kQueries * kQueries;
  int64_t head = kv_head * group, q0 = q_begin;
  copy_queries(head, q0, 0);

  float dk[kColumns / 8][4] = {}, dv[kColumns / 8][4] = {};
  int stage = 0;
  while (head < (kv_head + 1) * group) {
    int64_t next_head = head, next_q0 = q0 + kQueries;
    if (next_q0 >= call.queries || first_key(call, b, next_q0) >= k0 + keys) ++next_head, next_q0 = q_begin;
    wait_for_copies();
    __syncthreads();  // this tile is here, and the other one has been read
    if (next_head < (kv_head + 1) * group) copy_queries(next_head, next_q0, stage ^ 1);
    const __nv_bfloat16* const q = stages + stage * 2 * kTile;
    const __nv_bfloat16* const d_out = q + kTile;
    const MmaQueries<kQueries>& of = beside[stage];
    float s[kQueries / 8][4], d_p[kQueries / 8][4];
    mma_scores<kDim>(s, k + key_row * kRow, q, lane);
    mma_scores<kDim>(d_p, v + key_row * kRow, d_out, lane);
    // Whole if the last query, whose keys begin latest, and the first one, whose keys end earliest, see all keys.
    const bool whole =
        of.seen[kQueries - 1].first <= k0 && of.seen[kQueries - 1].end > 0 && of.seen[0].end >= k0 + kKeys;
#pragma unroll
    for (int n = 0; n < kQueries / 8; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int query = n * 8 + lane.t * 2 + e % 2, key = k0 + key_row + lane.g + e / 2 * 8;
        mma_gradients(m, whole || of.seen[query].has(key), of.lse2[query], of.delta[query], s[n][e], d_p[n][e]);
      }
    mma_weighted<kRow>(dv, s, d_out + first_column, lane);
    mma_weighted<kRow>(dk, d_p, q + first_column, lane);
    head = next_head, q0 = next_q0, stage ^= 1;
  }

  const auto scale = static_cast<float>(call.scale);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int row = key_row + lane.g + 8 * h;
    if (row >= keys) continue;
    const int64_t to = element(call.dkv_stride, b, k0 + row, kv_head, d);
#pragma unroll
    for (int n = 0; n < kColumns / 8; ++n) {
      const int column = first_column + n * 8 + lane.t * 2;
      emit_pair(m, call.dk, to, column, dk[n][2 * h] * scale, dk[n][2 * h + 1] * scale);
      emit_pair(m, call.dv, to, column, dv[n][2 * h], dv[n][2 * h + 1]);
    }
  }
}

inline bool rows_are_aligned(const void* pointer, AttentionStride stride) {
  return reinterpret_cast<uintptr_t>(pointer) % 16 == 0 && stride.batch % 8 == 0 && stride.row % 8 == 0;
}

inline MmaCall mma_call(const AttentionCall& call, const float* delta) {
  const bool written = !call.causal || delta == nullptr ||  // dq, dk and dv in bfloat16
                       (rows_are_aligned(call.dq, call.dq_stride) && rows_are_aligned(call.dk, call.dkv_stride) &&
                        rows_are_aligned(call.dv, call.dkv_stride));
  const bool aligned = call.head_dim % 8 == 0 && rows_are_aligned(call.q, call.q_stride) &&
                       rows_are_aligned(call.k, call.kv_stride) && rows_are_aligned(call.v, call.kv_stride) &&
                       rows_are_aligned(call.out, call.out_stride) && rows_are_aligned(call.d_out, call.d_out_stride) &&
                       written;
  return {call, ScoreScale<float>(call), aligned, delta};
}

template <int kDim, int kKeys, int kWarps>
void launch_mma_forward(const AttentionCall& call) {
  const dim3 grid(blocks_of(call.queries, 16 * kWarps), call.num_heads, call.batch);
  launch("attention_forward", mma_forward<kDim, kKeys, kWarps>, grid, kWarps * kWarp,
         (16 * kWarps + 4 * kKeys) * kMmaRow<kDim> * 2, mma_call(call, nullptr));
}

template <int kDim, int kKeys, int kWarps>
void launch_mma_backward_q(const MmaCall& m) {
  const dim3 grid(blocks_of(m.call.queries, 16 * kWarps), m.call.num_heads, m.call.batch);
  launch("attention_backward", mma_backward_q<kDim, kKeys, kWarps>, grid, kWarps * kWarp,
         (2 * 16 * kWarps + 4 * kKeys) * kMmaRow<kDim> * 2, m);
}

template <int kDim, int kQueries, int kWarps, int kSplit>
void launch_mma_backward_kv(const MmaCall& m) {
  const dim3 grid(blocks_of(m.call.keys, 16 * kWarps / kSplit), m.call.num_kv_heads, m.call.batch);
  launch("attention_backward", mma_backward_kv<kDim, kQueries, kWarps, kSplit>, grid, kWarps * kWarp,
         kMmaKvBytes<kDim, kQueries, kWarps, kSplit>, m);
}

/// Tiles are as large as registers allow, and as 163 KiB of shared memory allow, which a block has on an A100 or H100.
inline void mma_attention_forward(const AttentionCall& call) {
  if (call.head_dim <= 64) return launch_mma_forward<64, 64, 4>(call);
  if (call.head_dim <= 128) return launch_mma_forward<128, 64, 8>(call);
  launch_mma_forward<256, 32, 4>(call);
}

inline void mma_attention_backward(const AttentionCall& call) {
  const Scratch scratch(call.batch * call.num_heads * call.queries * static_cast<int64_t>(sizeof(float)));
  launch_delta<__nv_bfloat16>(call, scratch.as<float>());
  const MmaCall m = mma_call(call, scratch.as<float>());
  if (call.head_dim <= 64) {
    launch_mma_backward_q<64, 64, 4>(m);
    launch_mma_backward_kv<64, 64, 4, 1>(m);
  } else if (call.head_dim <= 128) {
    launch_mma_backward_q<128, 64, 4>(m);
    launch_mma_backward_kv<128, 32, 4, 1>(m);
  } else {
    launch_mma_backward_q<256, 32, 4>(m);
    launch_mma_backward_kv<256, 32, 8, 2>(m);
  }
}

}  // namespace
}  // namespace trireme::ops::cuda
