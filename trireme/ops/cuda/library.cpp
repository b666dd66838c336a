// What the CUDA kernels share with LibTorch (stream, memory, errors), and the exported table of kernels.
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime.h>

#include <string>

#include "trireme/base/error.h"
#include "trireme/ops/cuda/kernels.h"
#include "trireme/ops/cuda/scratch.h"

namespace trireme::ops::cuda {

void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  throw Error(std::string("[cuda] ") + what + ": " + cudaGetErrorString(status) + " (" + cudaGetErrorName(status) +
              ")");
}

void Kernels::synchronize() const { check(cudaDeviceSynchronize(), "what was launched on the GPU failed"); }

int64_t Kernels::peak_bytes() const {
  using c10::CachingAllocator::StatType;
  const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(c10::cuda::current_device());
  return stats.reserved_bytes[static_cast<size_t>(StatType::AGGREGATE)].peak;
}

cudaStream_t current_stream() { return c10::cuda::getCurrentCUDAStream(); }

void check_launch(const char* what) { check(cudaGetLastError(), what); }

Scratch::Scratch(int64_t bytes)
    : data_(bytes > 0 ? c10::cuda::CUDACachingAllocator::raw_alloc(static_cast<size_t>(bytes)) : nullptr) {}
Scratch::~Scratch() {
  if (data_ != nullptr) c10::cuda::CUDACachingAllocator::raw_delete(data_);
}

}  // namespace trireme::ops::cuda

extern "C" __attribute__((visibility("default"))) const trireme::ops::cuda::Kernels& trireme_ops_cuda_kernels() {
  static const trireme::ops::cuda::Kernels kernels;
  return kernels;
}
