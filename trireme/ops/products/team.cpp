#include "trireme/ops/products/team.h"

#include <ATen/Parallel.h>

#include <algorithm>

#include "trireme/ops/parallel.h"

namespace trireme::ops {

void run_team(const GemmKernel& kernel, const GemmCall& call) {
  struct Taken;
  const int64_t blocks = gemm_blocks(call.n);
  int64_t* taken = thread_scratch<Taken, int64_t>(blocks);
  std::fill_n(taken, blocks, 0);
  // No more threads than whole groups of rows: a thread packs what it multiplies.
  const int64_t groups = (call.m + kGemmGroup - 1) / kGemmGroup * blocks;
  const int threads = static_cast<int>(std::min<int64_t>(at::get_num_threads(), groups));
  parallel_rows(threads, 1, [&](int64_t first, int64_t last) {
    struct Scratch;
    char* scratch = thread_scratch<Scratch, char>(kGemmScratchBytes);
    for (int64_t thread = first; thread < last; ++thread)
      kernel.run(call, {taken, threads}, static_cast<int>(thread), scratch);
  });
}

}  // namespace trireme::ops
