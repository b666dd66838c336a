// Graphs through LibTorch's CUDAGraph, which gives the allocations of a capture a pool of their own.
#include "trireme/ops/cuda/graph.h"

#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/util/Exception.h>
#include <cuda_runtime.h>

#include <string>

#include "trireme/base/error.h"
#include "trireme/ops/cuda/kernels.h"
#include "trireme/ops/cuda/scratch.h"

namespace trireme::ops::cuda {
namespace {

[[noreturn]] void fail(const char* what, const c10::Error& error) {
  throw Error(std::string("[cuda] ") + what + ": " + error.what_without_backtrace());
}

class Captured final : public LaunchGraph {
 public:
  void launch() const override {
    try {
      graph.replay();
    } catch (const c10::Error& error) {
      fail("a graph was not launched", error);
    }
  }

  mutable at::cuda::CUDAGraph graph;
};

class Maker final : public GraphMaker {
 public:
  std::unique_ptr<LaunchGraph> capture(const std::function<void()>& launch) override {
    auto made = std::make_unique<Captured>();
    // The legacy default stream cannot be captured. Nothing runs on this one.
    const c10::cuda::CUDAStreamGuard beside(stream_);
    try {
      made->graph.capture_begin(pool_, cudaStreamCaptureModeThreadLocal);
    } catch (const c10::Error& error) {
      fail("a graph was not begun", error);
    }
    try {
      launch();
      cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
      check(cudaStreamIsCapturing(stream_, &status), "asking for a graph's state");
      if (status != cudaStreamCaptureStatusActive) throw Error("[cuda] a launch does not fit into a graph");
    } catch (...) {
      abandon();
      throw;
    }
    try {
      made->graph.capture_end();
    } catch (const c10::Error& error) {
      fail("a graph was not made", error);
    }
    return made;
  }

 private:
  /// Ends a capture that has failed. CUDAGraph itself ends only those that have not.
  void abandon() const {
    cudaGraph_t broken = nullptr;
    cudaStreamEndCapture(stream_, &broken);
    if (broken != nullptr) cudaGraphDestroy(broken);
    cudaGetLastError();  // told by what was thrown
    c10::cuda::CUDACachingAllocator::endAllocateToPool(stream_.device_index(), pool_);
    c10::cuda::CUDACachingAllocator::releasePool(stream_.device_index(), pool_);
  }

  c10::cuda::CUDAStream stream_ = c10::cuda::getStreamFromPool();
  at::cuda::MempoolId_t pool_ = at::cuda::graph_pool_handle();
};

}  // namespace

std::shared_ptr<GraphMaker> Kernels::graph_maker() const { return std::make_shared<Maker>(); }

}  // namespace trireme::ops::cuda
