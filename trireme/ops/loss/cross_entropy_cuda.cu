// Softmax cross-entropy of rows of logits, one block of threads a row. One pass computes the maximum and the sum of
// exponentials: each thread keeps the sum relative to its largest logit so far, and at the end the threads' sums are
// rescaled to the row's maximum. A second pass writes the gradient.
#include <cfloat>
#include <limits>
#include <type_traits>

#include "trireme/ops/cuda/device-inl.h"
#include "trireme/ops/cuda/kernels.h"

namespace trireme::ops::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / kWarp;
constexpr int kBlocksPerProcessor = 2;
constexpr int kAhead = 4;  // packs that a thread loads before it uses the first

/// e^x for x <= 0, of what is stored as T: for bfloat16 the fast instruction is accurate enough.
template <class T>
__device__ Arithmetic<T> exponential(Arithmetic<T> x) {
  if constexpr (std::is_same_v<T, double>)
    return exp(x);
  else if constexpr (std::is_same_v<T, float>)
    return expf(x);
  else
    return __expf(x);
}

/// Calls body(elements, index of the first of them) for all of a row, each thread for its own: in packs that begin at
/// multiples of 16 bytes, and one by one before and after them. kStore: `elements` are written back after body.
template <bool kStore, class T, class Body>
__device__ void for_row(T* row, int n, const Body& body) {
  constexpr int kSize = Pack<T>::kSize;
  const int thread = static_cast<int>(threadIdx.x);
  const int past = static_cast<int>(reinterpret_cast<uintptr_t>(row) % 16 / sizeof(T));
  const int head = min(n, (kSize - past) % kSize), num_packs = (n - head) / kSize;
  const auto one = [&](int i) {
    T element[1] = {row[i]};
    body(element, i);
    if constexpr (kStore) row[i] = element[0];
  };
  if (thread < head) one(thread);
  auto* packs = reinterpret_cast<Pack<T>*>(row + head);
  int i = thread;
  for (; i + (kAhead - 1) * kThreads < num_packs; i += kAhead * kThreads) {
    Pack<T> ahead[kAhead];
#pragma unroll
    for (int k = 0; k < kAhead; ++k) ahead[k] = packs[i + k * kThreads];
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      body(ahead[k].of, head + (i + k * kThreads) * kSize);
      if constexpr (kStore) packs[i + k * kThreads] = ahead[k];
    }
  }
  for (; i < num_packs; i += kThreads) {
    Pack<T> pack = packs[i];
    body(pack.of, head + i * kSize);
    if constexpr (kStore) packs[i] = pack;
  }
  const int last = head + num_packs * kSize + thread;
  if (last < n) one(last);
}

/// The largest x of a block of kThreads threads, on each of them. A NaN may be ignored.
template <class W>
__device__ W block_max(W x) {
  __shared__ W of_warps[kWarps];
  x = warp_max(x);
  if (threadIdx.x % kWarp == 0) of_warps[threadIdx.x / kWarp] = x;
  __syncthreads();
  W largest = of_warps[0];
  for (int warp = 1; warp < kWarps; ++warp) largest = of_warps[warp] > largest ? of_warps[warp] : largest;
  return largest;
}

template <class W>
struct Softmax {
  W maximum;  ///< at least the lowest finite number: with -inf, differences to logits of -inf would be NaN
  W sum;  ///< of exp(x - maximum); NaN where a logit is NaN or +inf
};

/// Of a row of n >= 0 logits, on each thread of the block.
template <class T>
__device__ Softmax<Arithmetic<T>> softmax_of(T* x, int n) {
  using W = Arithmetic<T>;
  W maximum = std::is_same_v<W, double> ? static_cast<W>(-DBL_MAX) : static_cast<W>(-FLT_MAX), sum = 0;
  for_row<false>(x, n, [&](const auto& elements, int) {
    constexpr int kCount = std::extent_v<std::remove_reference_t<decltype(elements)>>;
    W larger = maximum, added = 0;
#pragma unroll
    for (int k = 0; k < kCount; ++k) larger = to_wide(elements[k]) > larger ? to_wide(elements[k]) : larger;
#pragma unroll
    for (int k = 0; k < kCount; ++k) added += exponential<T>(to_wide(elements[k]) - larger);
    sum = fma(sum, exponential<T>(maximum - larger), added);
    maximum = larger;
  });
  __shared__ W of_warps[kWarps];
  const W largest = block_max(maximum);
  sum = block_sum<kThreads>(sum * exponential<T>(maximum - largest), of_warps);
  return {largest, sum};
}

template <class W>
struct Row {
  W scale, softcap_inverse;  ///< the latter 0: logits are not capped
  int target;  ///< -1: none
};

/// x becomes scale (exp(x - maximum) / sum - onehot(target)), times the slope of the cap where logits are capped.
template <class T, class W = Arithmetic<T>>
__device__ void to_gradient(T* x, int n, const Softmax<W>& softmax, const Row<W>& row) {
  const W factor = row.scale / softmax.sum, inverse = row.softcap_inverse;
  for_row<true>(x, n, [&](auto& elements, int first) {
    constexpr int kCount = std::extent_v<std::remove_reference_t<decltype(elements)>>;
#pragma unroll
    for (int k = 0; k < kCount; ++k) {
      const W logit = to_wide(elements[k]), part = logit * inverse;
      const W slope = inverse == 0 ? W(1) : fma(-part, part, W(1));
      const W onehot = first + k == row.target ? row.scale : W(0);
      elements[k] = to_storage<T>(fma(exponential<T>(logit - softmax.maximum), factor, -onehot) * slope);
    }
  });
}

template <class T>
__device__ void to_zero(T* x, int n) {
  for_row<true>(x, n, [](auto& elements, int) {
    for (auto& element : elements) element = to_storage<T>(0);
  });
}

template <class W>
Row<W> row_of(double scale, double softcap) {
  return {W(scale), softcap == 0 ? W(0) : W(1 / softcap), -1};
}

template <class T>
__global__ void __launch_bounds__(kThreads, kBlocksPerProcessor)
    softmax_loss_kernel(SoftmaxLoss args, double* losses, Row<Arithmetic<T>> row) {
  const int64_t t = blockIdx.x, target = args.targets[t];
  const int n = static_cast<int>(args.vocabulary);
  T* x = static_cast<T*>(args.logits) + t * n;
  if (target == kNotSupervised) {
    if (threadIdx.x == 0) losses[t] = 0;
    if (args.gradient) to_zero(x, n);
    return;
  }
  // Read before softmax_of, in which the threads synchronise: after it the logit is overwritten.
  const auto target_logit = to_wide(x[target]);
  const auto softmax = softmax_of(x, n);
  if (threadIdx.x == 0)
    losses[t] = log(static_cast<double>(softmax.sum)) + (static_cast<double>(softmax.maximum) - target_logit);
  row.target = static_cast<int>(target);
  if (args.gradient) to_gradient(x, n, softmax, row);
}

/// *to += the sum of loss(t) over rows, in an order that `rows` decides. One block.
template <class Loss>
__device__ void add_losses(double* to, int64_t rows, const Loss& loss) {
  __shared__ double of_warps[kWarps];
  double sum = 0;
  for (int64_t t = threadIdx.x; t < rows; t += kThreads) sum += loss(t);
  sum = block_sum<kThreads>(sum, of_warps);
  if (threadIdx.x == 0) *to += sum;
}

__global__ void __launch_bounds__(kThreads) add_losses_kernel(double* loss_sum, const double* losses, int64_t rows) {
  add_losses(loss_sum, rows, [=](int64_t t) { return losses[t]; });
}

template <class W>
__global__ void __launch_bounds__(kThreads) shard_loss_kernel(CudaShardLoss args, int64_t rows) {
  const auto* row_max = static_cast<const W*>(args.row_max);
  const auto* sum_exp = static_cast<const W*>(args.sum_exp);
  const auto* target_logit = static_cast<const W*>(args.target_logit);
  add_losses(args.loss_sum, rows, [&](int64_t t) {
    if (args.targets[t] == kNotSupervised) return 0.0;
    return log(static_cast<double>(sum_exp[t])) + (static_cast<double>(row_max[t]) - target_logit[t]);
  });
}

template <class T>
__global__ void __launch_bounds__(kThreads, kBlocksPerProcessor) shard_max_kernel(VocabularyShard args) {
  using W = Arithmetic<T>;
  const int64_t t = blockIdx.x;
  W maximum = -std::numeric_limits<W>::infinity();
  for_row<false>(static_cast<T*>(args.logits) + t * args.width, static_cast<int>(args.num_valid),
                 [&](const auto& elements, int) {
                   for (const T& element : elements) maximum = to_wide(element) > maximum ? to_wide(element) : maximum;
                 });
  maximum = block_max(maximum);
  if (threadIdx.x == 0) static_cast<W*>(args.row_max)[t] = maximum;
}

template <class T>
__global__ void __launch_bounds__(kThreads, kBlocksPerProcessor) shard_sum_kernel(VocabularyShard args) {
  using W = Arithmetic<T>;
  const int64_t t = blockIdx.x, target = args.targets[t] - args.first;
  auto *sum_exp = static_cast<W*>(args.sum_exp) + t, *target_logit = static_cast<W*>(args.target_logit) + t;
  if (args.targets[t] == kNotSupervised) {
    if (threadIdx.x == 0) *sum_exp = *target_logit = 0;
    return;
  }
  T* x = static_cast<T*>(args.logits) + t * args.width;
  // With one rank this is softmax_loss_kernel's sum times 1.
  const auto softmax = softmax_of(x, static_cast<int>(args.num_valid));
  if (threadIdx.x != 0) return;
  *sum_exp = softmax.sum * exponential<T>(softmax.maximum - static_cast<const W*>(args.row_max)[t]);
  *target_logit = target >= 0 && target < args.num_valid ? to_wide(x[target]) : W(0);
}

template <class T>
__global__ void __launch_bounds__(kThreads, kBlocksPerProcessor)
    shard_gradient_kernel(VocabularyShard args, Row<Arithmetic<T>> row) {
  using W = Arithmetic<T>;
  const int64_t t = blockIdx.x;
  T* x = static_cast<T*>(args.logits) + t * args.width;
  const int valid = static_cast<int>(args.targets[t] == kNotSupervised ? 0 : args.num_valid);
  to_zero(x + valid, static_cast<int>(args.width) - valid);
  if (valid == 0) return;
  const Softmax<W> softmax{static_cast<const W*>(args.row_max)[t], static_cast<const W*>(args.sum_exp)[t]};
  const int64_t target = args.targets[t] - args.first;
  row.target = target >= 0 && target < valid ? static_cast<int>(target) : -1;
  to_gradient(x, valid, softmax, row);
}

}  // namespace

void Kernels::softmax_loss(const SoftmaxLoss& args, int64_t rows, double* loss_sum) const {
  if (rows == 0) return;
  const Scratch losses(rows * static_cast<int64_t>(sizeof(double)));
  with_device_type(args.dtype, [&]<class T>() {
    softmax_loss_kernel<T><<<static_cast<unsigned>(rows), kThreads, 0, current_stream()>>>(
        args, losses.as<double>(), row_of<Arithmetic<T>>(args.scale, args.softcap));
  });
  check_launch("softmax_loss");
  add_losses_kernel<<<1, kThreads, 0, current_stream()>>>(loss_sum, losses.as<double>(), rows);
  check_launch("softmax_loss: the sum over rows");
}

void Kernels::shard_loss(const CudaShardLoss& args, int64_t rows) const {
  if (rows == 0) return;
  if (args.dtype == Storage::kFloat64)
    shard_loss_kernel<double><<<1, kThreads, 0, current_stream()>>>(args, rows);
  else
    shard_loss_kernel<float><<<1, kThreads, 0, current_stream()>>>(args, rows);
  check_launch("shard_loss");
}

void Kernels::shard_max(const VocabularyShard& args, int64_t rows) const {
  if (rows == 0) return;
  with_device_type(args.dtype, [&]<class T>() {
    shard_max_kernel<T><<<static_cast<unsigned>(rows), kThreads, 0, current_stream()>>>(args);
  });
  check_launch("shard_max");
}

void Kernels::shard_sum(const VocabularyShard& args, int64_t rows) const {
  if (rows == 0) return;
  with_device_type(args.dtype, [&]<class T>() {
    shard_sum_kernel<T><<<static_cast<unsigned>(rows), kThreads, 0, current_stream()>>>(args);
  });
  check_launch("shard_sum");
}

void Kernels::shard_gradient(const VocabularyShard& args, int64_t rows) const {
  if (rows == 0) return;
  with_device_type(args.dtype, [&]<class T>() {
    shard_gradient_kernel<T><<<static_cast<unsigned>(rows), kThreads, 0, current_stream()>>>(
        args, row_of<Arithmetic<T>>(args.scale, args.softcap));
  });
  check_launch("shard_gradient");
}

}  // namespace trireme::ops::cuda
