#include "trireme/optim/optimizer_cuda.h"

#include "trireme/base/cuda_library.h"

namespace trireme::optim {

const CudaOptimizer& cuda_optimizer() {
  using Table = const CudaOptimizer& (*)();
  static const CudaOptimizer& table = reinterpret_cast<Table>(base::cuda_symbol("trireme_optim_cuda_kernels"))();
  return table;
}

}  // namespace trireme::optim
