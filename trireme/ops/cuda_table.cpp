// The table of CUDA kernels, and what they share with LibTorch: stream, memory, errors.
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime.h>

#include <string>

#include "trireme/base/error.h"
#include "trireme/ops/cuda_functions.h"
#include "trireme/ops/cuda_scratch.h"

namespace trireme::ops::cuda {
namespace {

void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  throw Error(std::string("[cuda] ") + what + ": " + cudaGetErrorString(status) + " (" + cudaGetErrorName(status) +
              ")");
}

void synchronize() { check(cudaDeviceSynchronize(), "what was launched on the GPU failed"); }

int64_t peak_bytes() {
  using c10::CachingAllocator::StatType;
  const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(c10::cuda::current_device());
  return stats.reserved_bytes[static_cast<size_t>(StatType::AGGREGATE)].peak;
}

constexpr CudaKernels kTable{
    .gated_forward = gated_forward,
    .gated_backward = gated_backward,
    .gelu_forward = gelu_forward,
    .gelu_backward = gelu_backward,
    .softcap = softcap,
    .rms_norm_forward = rms_norm_forward,
    .layer_norm_forward = layer_norm_forward,
    .rms_norm_backward = rms_norm_backward,
    .layer_norm_backward = layer_norm_backward,
    .head_norm_forward = head_norm_forward,
    .head_norm_backward = head_norm_backward,
    .add = add,
    .column_sum = column_sum,
    .rotary = rotary,
    .gather = gather,
    .gather_sum = gather_sum,
    .softmax_loss = softmax_loss,
    .shard_max = shard_max,
    .shard_sum = shard_sum,
    .shard_gradient = shard_gradient,
    .shard_loss = shard_loss,
    .multiply = multiply,
    .attention_forward = attention_forward,
    .attention_backward = attention_backward,
    .allow_flash_attention = allow_flash_attention,
    .synchronize = synchronize,
    .peak_bytes = peak_bytes,
};

}  // namespace

cudaStream_t current_stream() { return c10::cuda::getCurrentCUDAStream(); }

void check_launch(const char* what) { check(cudaGetLastError(), what); }

Scratch::Scratch(int64_t bytes)
    : data_(bytes > 0 ? c10::cuda::CUDACachingAllocator::raw_alloc(static_cast<size_t>(bytes)) : nullptr) {}
Scratch::~Scratch() {
  if (data_ != nullptr) c10::cuda::CUDACachingAllocator::raw_delete(data_);
}

}  // namespace trireme::ops::cuda

extern "C" __attribute__((visibility("default"))) const trireme::ops::CudaKernels& trireme_ops_cuda_kernels() {
  return trireme::ops::cuda::kTable;
}
