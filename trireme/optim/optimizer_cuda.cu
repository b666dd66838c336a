#include "trireme/optim/optimizer_kernels.h"

#include <algorithm>

#include "trireme/ops/cuda/rows-inl.h"
#include "trireme/optim/exact_sum.h"

namespace trireme::optim {
namespace {

using ops::cuda::check_launch;
using ops::cuda::Chunk;
using ops::cuda::current_stream;
using ops::cuda::divided_up;
using ops::cuda::kWarp;
using ops::cuda::load;
using ops::cuda::multiplied;
using ops::cuda::store;

// As multiplied(). Division and square root are exact, as on the CPU (nvcc's -prec-div and -prec-sqrt, which are on).
__device__ float added(float a, float b) { return __fadd_rn(a, b); }
__device__ double added(double a, double b) { return __dadd_rn(a, b); }
__device__ float divided(float a, float b) { return __fdiv_rn(a, b); }
__device__ double divided(double a, double b) { return __ddiv_rn(a, b); }
__device__ float root(float x) { return __fsqrt_rn(x); }
__device__ double root(double x) { return __dsqrt_rn(x); }

/// The values that are the same for all elements.
template <class T>
struct Constants {
  T scale, rest1, beta1, beta2, rest2, eps, keep, l2, step_size, inverse_root_bias2, momentum;
  bool nesterov;
  explicit Constants(const UpdateArguments& a)
      : scale(static_cast<T>(a.gradient_scale)),
        rest1(static_cast<T>(1 - a.beta1)),
        beta1(static_cast<T>(a.beta1)),
        beta2(static_cast<T>(a.beta2)),
        rest2(static_cast<T>(1 - a.beta2)),
        eps(static_cast<T>(a.eps)),
        keep(static_cast<T>(a.keep)),
        l2(static_cast<T>(a.l2)),
        step_size(static_cast<T>(a.step_size)),
        inverse_root_bias2(static_cast<T>(1 / a.root_bias2)),
        momentum(static_cast<T>(a.momentum)),
        nesterov(a.nesterov) {}
};

/// The weight after the step; the twin of stepped() in optimizer_kernels.cpp. `first` and `second` are the state.
template <Rule kRule, class T>
__device__ T stepped(const Constants<T>& c, T p, T g, T& first, T& second) {
  if constexpr (kRule == Rule::adam || kRule == Rule::sgd) g = fma(c.l2, p, g);
  if constexpr (kRule == Rule::sgd) {
    first = fma(c.momentum, first, g);  // without momentum: g
    return fma(-c.step_size, c.nesterov ? fma(c.momentum, first, g) : first, p);
  } else if constexpr (kRule == Rule::lion) {
    const T mixed = fma(c.beta1, first, multiplied(c.rest1, g));
    // The sign of zero is zero; a NaN stays NaN.
    const T sign = mixed == 0 ? T(0) : isnan(mixed) ? mixed : copysign(T(1), mixed);
    first = fma(c.beta2, first, multiplied(c.rest2, g));
    return fma(-c.step_size, sign, multiplied(p, c.keep));
  } else {
    first = fma(c.rest1, added(g, -first), first);
    second = fma(multiplied(c.rest2, g), g, multiplied(c.beta2, second));
    const T denominator = fma(root(second), c.inverse_root_bias2, c.eps);
    return fma(-c.step_size, divided(first, denominator), kRule == Rule::adamw ? multiplied(p, c.keep) : p);
  }
}

/// The arrays from an element on; null: absent.
template <class T>
struct Span {
  T* master;
  T* state[2];
  const T* gradient;
  __nv_bfloat16* bf16;
  T* same;

  Span(const UpdateArguments& a, int64_t at)
      : master(static_cast<T*>(a.master) + at),
        gradient(static_cast<const T*>(a.gradient) + at),
        bf16(a.compute_bf16 == nullptr ? nullptr : static_cast<__nv_bfloat16*>(a.compute_bf16) + at),
        same(a.compute_same == nullptr ? nullptr : static_cast<T*>(a.compute_same) + at) {
    for (int k = 0; k < 2; ++k) state[k] = a.state[k] == nullptr ? nullptr : static_cast<T*>(a.state[k]) + at;
  }
};

/// Elements i kSize .. (i + 1) kSize - 1 of the span.
template <Rule kRule, int kStates, int kSize, class T>
__device__ void step_chunk(const Constants<T>& constants, const Span<T>& span, int64_t i) {
  const int64_t at = i * kSize;
  auto master = load<kSize>(span.master + at);
  const auto gradient = load<kSize>(span.gradient + at);
  Chunk<T, kSize> state[2] = {};
#pragma unroll
  for (int k = 0; k < kStates; ++k) state[k] = load<kSize>(span.state[k] + at);
#pragma unroll
  for (int e = 0; e < kSize; ++e)
    master.of[e] = stepped<kRule>(constants, master.of[e], multiplied(gradient.of[e], constants.scale), state[0].of[e],
                                  state[1].of[e]);
#pragma unroll
  for (int k = 0; k < kStates; ++k) store(span.state[k] + at, state[k]);
  store(span.master + at, master);
  if (span.same != nullptr) store(span.same + at, master);
  if (span.bf16 == nullptr) return;
  Chunk<__nv_bfloat16, kSize> rounded;
#pragma unroll
  for (int e = 0; e < kSize; ++e) rounded.of[e] = __float2bfloat16_rn(static_cast<float>(master.of[e]));
  store(span.bf16 + at, rounded);
}

constexpr int kThreads = 256;

template <Rule kRule, int kStates, int kSize, class T>
__global__ void __launch_bounds__(kThreads) update_kernel(Constants<T> constants, Span<T> span, int64_t num_chunks) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < num_chunks) step_chunk<kRule, kStates, kSize>(constants, span, i);
}

/// Elements [begin, end), of which there may be none.
template <Rule kRule, int kStates, int kSize, class T>
void launch(const UpdateArguments& a, int64_t begin, int64_t end) {
  const int64_t num_chunks = (end - begin) / kSize;
  if (num_chunks == 0) return;
  update_kernel<kRule, kStates, kSize>
      <<<static_cast<unsigned>(divided_up(num_chunks, kThreads)), kThreads, 0, current_stream()>>>(
          Constants<T>(a), Span<T>(a, begin), num_chunks);
  check_launch("optimizer_update");
}

template <Rule kRule, int kStates, class T>
void update(const UpdateArguments& a, int64_t begin, int64_t end) {
  constexpr int64_t kSize = 16 / sizeof(T);
  // Packs begin at multiples of 16 bytes of the weights. If the other arrays are aligned differently, elements go one by
  // one.
  const auto past =
      static_cast<int64_t>(reinterpret_cast<uintptr_t>(static_cast<T*>(a.master) + begin) % 16 / sizeof(T));
  const int64_t first = std::min(end, begin + (kSize - past) % kSize), last = first + (end - first) / kSize * kSize;
  const Span<T> span(a, first);
  const auto fits = [](const void* pointer, size_t bytes) { return reinterpret_cast<uintptr_t>(pointer) % bytes == 0; };
  const bool packs = fits(span.master, 16) && fits(span.gradient, 16) && fits(span.same, 16) &&
                     fits(span.bf16, kSize * sizeof(__nv_bfloat16)) && fits(span.state[0], 16) &&
                     fits(span.state[1], 16);
  if (!packs) return launch<kRule, kStates, 1, T>(a, begin, end);
  launch<kRule, kStates, 1, T>(a, begin, first);
  launch<kRule, kStates, kSize, T>(a, first, last);
  launch<kRule, kStates, 1, T>(a, last, end);
}

template <class T>
void update_by_rule(const UpdateArguments& a, int64_t begin, int64_t end) {
  switch (a.rule) {
    case Rule::adamw:
      return update<Rule::adamw, 2, T>(a, begin, end);
    case Rule::adam:
      return update<Rule::adam, 2, T>(a, begin, end);
    case Rule::sgd:
      return a.momentum > 0 ? update<Rule::sgd, 1, T>(a, begin, end) : update<Rule::sgd, 0, T>(a, begin, end);
    case Rule::lion:
      return update<Rule::lion, 1, T>(a, begin, end);
    case Rule::adagrad:
    case Rule::lars:
    case Rule::lamb:
    case Rule::adafactor:
    case Rule::muon:
      return;  // refused before the start: runs_on_gpu()
  }
}

void update_span(const UpdateArguments& a, int64_t begin, int64_t end) {
  a.dtype == ops::Storage::kFloat64 ? update_by_rule<double>(a, begin, end) : update_by_rule<float>(a, begin, end);
}

constexpr int kNormAhead = 16;  // elements that a thread loads before it adds the first

/// A warp for each partial: lane k sums the elements k, k + 32, ..., and the lanes are added pairwise.
template <class T>
__global__ void __launch_bounds__(kThreads) squared_norm_kernel(NormArguments a, int64_t num_blocks) {
  const int64_t block = static_cast<int64_t>(blockIdx.x) * (kThreads / kWarp) + threadIdx.x / kWarp;
  if (block >= num_blocks) return;
  const T* x = static_cast<const T*>(a.gradient) + block * a.block;
  const int count = static_cast<int>(min(a.block, a.count - block * a.block));
  double sum = 0;
  int i = static_cast<int>(threadIdx.x % kWarp);
  const auto add = [&](T value) {
    sum = added(sum, multiplied(static_cast<double>(value), static_cast<double>(value)));
  };
  for (; i + (kNormAhead - 1) * kWarp < count; i += kNormAhead * kWarp) {
    T ahead[kNormAhead];
#pragma unroll
    for (int k = 0; k < kNormAhead; ++k) ahead[k] = x[i + k * kWarp];
#pragma unroll
    for (int k = 0; k < kNormAhead; ++k) add(ahead[k]);
  }
  for (; i < count; i += kWarp) add(x[i]);
  __syncwarp();
#pragma unroll
  for (int width = kWarp / 2; width > 0; width /= 2) sum = added(sum, __shfl_xor_sync(0xffffffffu, sum, width));
  if (threadIdx.x % kWarp == 0) a.partials[block] = sum;
}

void squared_norm(const NormArguments& a) {
  const int64_t num_blocks = (a.count + a.block - 1) / a.block;
  if (num_blocks == 0) return;
  const auto groups = static_cast<unsigned>(divided_up(num_blocks, kThreads / kWarp));
  if (a.dtype == ops::Storage::kFloat64)
    squared_norm_kernel<double><<<groups, kThreads, 0, current_stream()>>>(a, num_blocks);
  else
    squared_norm_kernel<float><<<groups, kThreads, 0, current_stream()>>>(a, num_blocks);
  check_launch("squared_norm_partials");
}

/// Sums of integers, so the order of the additions does not matter. A warp sums its terms, which mostly begin at one
/// limb, and a block those of its warps.
__global__ void __launch_bounds__(kThreads) add_exactly_kernel(const double* terms, int64_t count, int64_t* limbs) {
  __shared__ unsigned long long sums[ExactSum::kLimbs];
  for (int i = static_cast<int>(threadIdx.x); i < ExactSum::kLimbs; i += kThreads) sums[i] = 0;
  __syncthreads();
  const bool leads = threadIdx.x % kWarp == 0;
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t warp = int64_t{blockIdx.x} * kThreads + threadIdx.x / kWarp * kWarp; warp < count; warp += step) {
    const int64_t i = warp + threadIdx.x % kWarp;
    ExactTerm term = ExactSum::parts_of(i < count ? terms[i] : 0);
    int same = 0;
    __match_all_sync(0xffffffffu, term.first, &same);
    if (same != 0)
      for (uint64_t& part : term.parts) part = ops::cuda::warp_sum(part);
    if (same != 0 && !leads) continue;
    if (term.first < 0) atomicAdd(&sums[ExactSum::kLimbs - 1], 1ull);
    for (int k = 0; term.first >= 0 && k < 3; ++k)
      if (term.parts[k] != 0) atomicAdd(&sums[term.first + k], static_cast<unsigned long long>(term.parts[k]));
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < ExactSum::kLimbs; i += kThreads)
    if (sums[i] != 0) atomicAdd(reinterpret_cast<unsigned long long*>(limbs) + i, sums[i]);
}

void add_exactly(const double* terms, int64_t count, int64_t* limbs) {
  if (count == 0) return;
  const auto blocks = static_cast<unsigned>(std::min<int64_t>(divided_up(count, kThreads), ops::cuda::kMultiprocessors));
  add_exactly_kernel<<<blocks, kThreads, 0, current_stream()>>>(terms, count, limbs);
  check_launch("add_exactly");
}

constexpr CudaOptimizer kTable{.update = update_span, .squared_norm = squared_norm, .add_exactly = add_exactly};

}  // namespace
}  // namespace trireme::optim

extern "C" __attribute__((visibility("default"))) const trireme::optim::CudaOptimizer& trireme_optim_cuda_kernels() {
  return trireme::optim::kTable;
}
