// Attention alone, one thread: every kernel this processor has, checked against the portable one, then timed.
//   ninja attention_bench && ./attention_bench [batch sequence heads kv_heads head_dim repeats]
// GFLOP/s count the causal half only: 2 b s^2 H d forward (two products), 2.5 times that backward (five).
// Times are processor time of the thread.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <vector>

#include <ATen/Parallel.h>

#include "trireme/ops/attention.h"

using trireme::ops::AttentionKernel;
using trireme::ops::AttentionShape;

namespace {

/// Processor time of this thread: neighbours on the machine do not count.
double thread_ms() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_nsec) * 1e-6;
}

struct Times {
  double median_ms, best_ms;
};

Times measure(int64_t repeats, const std::function<void()>& call) {
  std::vector<double> ms;
  for (int64_t i = -2; i < repeats; ++i) {  // two to warm up
    const double start = thread_ms();
    call();
    if (i >= 0) ms.push_back(thread_ms() - start);
  }
  std::sort(ms.begin(), ms.end());
  return {ms[ms.size() / 2], ms[0]};
}

double distance(const at::Tensor& a, const at::Tensor& b) {
  return ((a.to(at::kFloat) - b.to(at::kFloat)).abs().max() / b.to(at::kFloat).abs().max()).item<double>();
}

void bench(const AttentionShape& shape, at::ScalarType dtype, int64_t repeats) {
  const int64_t tokens = shape.batch * shape.sequence, width = shape.num_heads * shape.head_dim;
  const at::Tensor qkv = at::randn({tokens, width + 2 * shape.num_kv_heads * shape.head_dim}).to(dtype);
  const at::Tensor d_out = at::randn({tokens, width}).to(dtype), out = at::empty_like(d_out),
                   dqkv = at::empty_like(qkv);
  const at::Tensor lse = at::empty({shape.batch, shape.num_heads, shape.sequence});
  const at::Tensor workspace = at::empty({trireme::ops::attention_workspace_bytes(shape, dtype)}, at::kByte);
  const auto kernels = trireme::ops::attention_kernels();
  const auto forward = [&](const AttentionKernel& kernel) {
    attention_forward_with(kernel, out, lse, qkv, shape, workspace);
  };
  const auto backward = [&](const AttentionKernel& kernel) {
    attention_backward_with(kernel, dqkv, d_out, out, lse, qkv, shape, workspace);
  };
  forward(*kernels.back()), backward(*kernels.back());
  const at::Tensor want_out = out.clone(), want_dqkv = dqkv.clone();
  const double flops = 2.0 * tokens * shape.sequence * width;
  for (const AttentionKernel* kernel : kernels) {
    const Times f = measure(repeats, [&] { forward(*kernel); });
    const Times b = measure(repeats, [&] { backward(*kernel); });
    std::printf(
        "%-8s %-9s forward %7.2f ms (best %.2f) %4.0f GFLOP/s   backward %7.2f ms (best %.2f) %4.0f GFLOP/s"
        "   differs from portable by %.1e, %.1e\n",
        kernel->name, c10::toString(dtype), f.median_ms, f.best_ms, flops / f.median_ms / 1e6, b.median_ms, b.best_ms,
        2.5 * flops / b.median_ms / 1e6, distance(out, want_out), distance(dqkv, want_dqkv));
  }
}

}  // namespace

int main(int argc, char** argv) {
  at::set_num_threads(1);
  const auto argument = [&](int i, int64_t otherwise) { return argc > i ? std::atoll(argv[i]) : otherwise; };
  const AttentionShape shape{argument(1, 2), argument(2, 512), argument(3, 8), argument(4, 4), argument(5, 64)};
  std::printf("batch %ld, sequence %ld, heads %ld, kv heads %ld, head dim %ld, causal, CPU, 2 warm-up runs\n",
              shape.batch, shape.sequence, shape.num_heads, shape.num_kv_heads, shape.head_dim);
  for (const auto dtype : {at::kBFloat16, at::kFloat}) bench(shape, dtype, argument(6, 21));
}
