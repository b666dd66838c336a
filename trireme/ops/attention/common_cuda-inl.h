// The common part of our attention kernels on a GPU: visible keys, addresses of rows, launches with much shared memory.
#pragma once

#include "trireme/ops/attention/kernels.h"
#include "trireme/ops/cuda/device-inl.h"

namespace trireme::ops::cuda {
namespace {

constexpr double kLog2e = 1.44269504088896340736, kLn2 = 0.69314718055994530942;
/// The score of a hidden key, and the highest score before any key: finite, so that differences are finite.
constexpr float kHidden = -1e30f;

/// Factors of a score: `exponent` in the exponent of 2, and `cap` inside the tanh (0: no cap).
template <class A>
struct ScoreScale {
  A exponent, cap;
  explicit ScoreScale(const AttentionCall& call)
      : exponent(static_cast<A>((call.softcap != 0 ? call.softcap : call.scale) * kLog2e)),
        cap(static_cast<A>(call.softcap != 0 ? call.scale / call.softcap : 0)) {}
};

__device__ inline int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }
__device__ inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/// The first key that query i of batch row b sees; never falls along the row.
__device__ inline int64_t first_key(const AttentionCall& call, int64_t b, int64_t i) {
  if (!call.causal) return 0;
  const int64_t start = call.starts == nullptr ? 0 : call.starts[b * call.queries + i];
  return call.window > 0 ? larger(start, call.first_query + i - call.window + 1) : start;
}
/// One beyond the last key that query i sees.
__device__ inline int64_t end_key(const AttentionCall& call, int64_t i) {
  return call.causal ? call.first_query + i + 1 : call.keys;
}
/// The first query that sees key k, in a row without window and documents.
__device__ inline int64_t first_query_of(const AttentionCall& call, int64_t k) {
  return call.causal ? larger(0, k - call.first_query) : 0;
}

__device__ inline int64_t element(AttentionStride stride, int64_t b, int64_t row, int64_t head, int64_t head_dim) {
  return b * stride.batch + row * stride.row + head * head_dim;
}
__device__ inline int64_t lse_at(const AttentionCall& call, int64_t b, int64_t head, int64_t i) {
  return b * call.lse_batch + head * call.lse_head + i;
}
/// The place of a query's value in D = sum(dout * out), [B, H, Q].
__device__ inline int64_t delta_at(const AttentionCall& call, int64_t b, int64_t head, int64_t i) {
  return (b * call.num_heads + head) * call.queries + i;
}

__device__ inline float power_of_2(float x) { return exp2f(x); }
__device__ inline double power_of_2(double x) { return exp2(x); }
__device__ inline float log_2(float x) { return log2f(x); }
__device__ inline double log_2(double x) { return log2(x); }
__device__ inline float tanh_of(float x) { return tanhf(x); }
__device__ inline double tanh_of(double x) { return tanh(x); }

/// Writes x, rounded, to element `at` of a gradient, or adds x to it (see AttentionCall::causal).
template <class T>
__device__ void emit(const AttentionCall& call, void* gradient, int64_t at, Arithmetic<T> x) {
  if (call.causal)
    static_cast<T*>(gradient)[at] = to_storage<T>(x);
  else
    static_cast<Arithmetic<T>*>(gradient)[at] += x;
}

/// Computes D = sum(dout * out) of every query and head, each with one warp.
template <class T>
__global__ void attention_delta(AttentionCall call, Arithmetic<T>* delta) {
  const int64_t warp = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / kWarp;
  if (warp >= call.batch * call.queries * call.num_heads) return;
  const int64_t head = warp % call.num_heads, i = warp / call.num_heads % call.queries;
  const int64_t b = warp / call.num_heads / call.queries, d = call.head_dim;
  const T* out = static_cast<const T*>(call.out) + element(call.out_stride, b, i, head, d);
  const T* d_out = static_cast<const T*>(call.d_out) + element(call.d_out_stride, b, i, head, d);
  Arithmetic<T> sum = 0;
  for (int64_t j = threadIdx.x % kWarp; j < d; j += kWarp) sum += to_wide(out[j]) * to_wide(d_out[j]);
  sum = warp_sum(sum);
  if (threadIdx.x % kWarp == 0) delta[delta_at(call, b, head, i)] = sum;
}

inline unsigned blocks_of(int64_t count, int64_t block) { return static_cast<unsigned>((count + block - 1) / block); }

template <class... Parameters, class... Arguments>
void launch(const char* what, void (*kernel)(Parameters...), dim3 grid, int threads, int64_t shared_bytes,
            const Arguments&... arguments) {
  check(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(shared_bytes)),
        what);
  kernel<<<grid, threads, static_cast<size_t>(shared_bytes), current_stream()>>>(arguments...);
  check_launch(what);
}

template <class T>
void launch_delta(const AttentionCall& call, Arithmetic<T>* delta) {
  constexpr int kThreads = 256;
  launch("attention_delta", attention_delta<T>,
         dim3(blocks_of(call.batch * call.queries * call.num_heads, kThreads / kWarp)), kThreads, 0, call, delta);
}

}  // namespace
}  // namespace trireme::ops::cuda
