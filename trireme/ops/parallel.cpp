#include "trireme/ops/parallel.h"

#include <ATen/Parallel.h>
#include <torch/csrc/stable/c/shim.h>

#include "trireme/base/error.h"

namespace trireme::ops {

void parallel_range(int64_t num_rows, int64_t grain, void (*body)(int64_t, int64_t, void*), void* context) {
  if (num_rows <= 0) return;
  if (at::get_num_threads() == 1 || num_rows <= grain) {
    body(0, num_rows, context);
    return;
  }
  // LibTorch's own pool, through its C interface.
  const auto error = torch_parallel_for(0, num_rows, grain, body, context);
  check_invariant(error == 0, "torch_parallel_for succeeds when its body does not throw");
}

}  // namespace trireme::ops
