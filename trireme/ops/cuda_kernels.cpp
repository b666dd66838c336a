#include "trireme/ops/cuda_kernels.h"

#include "trireme/base/cuda_library.h"

namespace trireme::ops {

const CudaKernels& cuda_kernels() {
  using Table = const CudaKernels& (*)();
  static const CudaKernels& table = reinterpret_cast<Table>(base::cuda_symbol("trireme_ops_cuda_kernels"))();
  return table;
}

}  // namespace trireme::ops
