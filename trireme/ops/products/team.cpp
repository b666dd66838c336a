#include "trireme/ops/products/team.h"

#include <ATen/Parallel.h>

#include <algorithm>

#include "trireme/ops/parallel.h"

namespace trireme::ops {

void* gemm_scratch() {
  struct Scratch;
  return thread_scratch<Scratch, char>(kGemmScratchBytes);
}

void run_team(const GemmKernel& kernel, const GemmCall& call) {
  struct Taken;
  const int64_t blocks = gemm_blocks(call.n);
  int64_t* taken = thread_scratch<Taken, int64_t>(blocks);
  std::fill_n(taken, blocks, 0);
  // No more threads than whole groups of rows: a thread packs what it multiplies.
  const int64_t groups = (call.m + kGemmGroup - 1) / kGemmGroup * blocks;
  const int threads = static_cast<int>(std::min<int64_t>(at::get_num_threads(), groups));
  parallel_rows(threads, 1, [&](int64_t first, int64_t last) {
    void* scratch = gemm_scratch();
    for (int64_t thread = first; thread < last; ++thread)
      kernel.run(call, {taken, threads}, static_cast<int>(thread), scratch);
  });
}

void run_panel_team(const GemmKernel& kernel, const GemmCall& call) {
  constexpr int64_t kWorthAThread = 1 << 18;  // multiply-adds
  const int64_t panels = (call.n + kernel.panel_columns - 1) / kernel.panel_columns,
                worth = 1 + call.m * call.n * call.k / kWorthAThread;
  const int threads = static_cast<int>(std::min({int64_t{at::get_num_threads()}, panels, worth}));
  int64_t taken = 0;
  parallel_rows(threads, 1, [&](int64_t first, int64_t last) {
    void* scratch = gemm_scratch();
    for (int64_t thread = first; thread < last; ++thread)
      kernel.run_panels(call, {&taken, threads}, static_cast<int>(thread), scratch);
  });
}

}  // namespace trireme::ops
