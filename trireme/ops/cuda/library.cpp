// What the CUDA kernels share with LibTorch (stream, memory, errors), and the exported table of kernels.
#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/util/Exception.h>
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

std::string Kernels::device_name() const {
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, c10::cuda::current_device()), "reading what the GPU is");
  return properties.name;
}

std::string Kernels::device_bus_id() const {
  std::string id(32, '\0');
  check(cudaDeviceGetPCIBusId(id.data(), static_cast<int>(id.size()), c10::cuda::current_device()),
        "reading where the GPU is");
  return id.c_str();
}

int64_t Kernels::device_bytes() const {
  size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "reading the GPU's memory");
  return static_cast<int64_t>(total);
}

void Kernels::page_lock(void* data, int64_t bytes) const {
  check(cudaHostRegister(data, static_cast<size_t>(bytes), cudaHostRegisterPortable), "page-locking host memory");
}

void Kernels::page_unlock(void* data) const { check(cudaHostUnregister(data), "unlocking host memory"); }

namespace {

constexpr const char* kCopy = "a copy between the GPU and host memory failed";

template <class Call>
auto ask(const Call& call) try {
  return call();
} catch (const c10::Error& error) {
  throw Error(std::string("[cuda] ") + kCopy + ": " + error.what_without_backtrace());
}

class EndedByEvent final : public Copy {
 public:
  explicit EndedByEvent(const c10::cuda::CUDAStream& stream) { end_.record(stream); }
  bool is_through() const override {
    return ask([&] { return end_.query(); });
  }
  void lead() const override {
    ask([&] { return end_.block(c10::cuda::getCurrentCUDAStream()); });
  }

 private:
  mutable at::cuda::CUDAEvent end_;
};

class OwnStream final : public CopyStream {
 public:
  ~OwnStream() override { cudaStreamSynchronize(stream_); }

  std::shared_ptr<Copy> post(void* to, const void* from, int64_t bytes) override {
    return ask([&] {
      at::cuda::CUDAEvent launched;
      launched.record(c10::cuda::getCurrentCUDAStream());
      launched.block(stream_);
      check(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDefault, stream_), kCopy);
      return std::make_shared<EndedByEvent>(stream_);
    });
  }

 private:
  c10::cuda::CUDAStream stream_ = c10::cuda::getStreamFromPool(/*isHighPriority=*/true);
};

}  // namespace

std::unique_ptr<CopyStream> Kernels::copy_stream() const { return std::make_unique<OwnStream>(); }

namespace {

/// Events of this thread, which serve again.
struct Marks {
  std::vector<cudaEvent_t> events;
  size_t used = 0;
};
Marks& marks() {
  thread_local Marks marks;
  return marks;
}

}  // namespace

void Kernels::mark() const {
  Marks& m = marks();
  if (m.used == m.events.size()) check(cudaEventCreate(&m.events.emplace_back()), "an event");
  check(cudaEventRecord(m.events[m.used++], current_stream()), "an event");
}

std::vector<double> Kernels::seconds_between_marks() const {
  Marks& m = marks();
  std::vector<double> seconds;
  if (m.used > 0) check(cudaEventSynchronize(m.events[m.used - 1]), "work between marks");
  for (size_t i = 1; i < m.used; ++i) {
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, m.events[i - 1], m.events[i]), "an event");
    seconds.push_back(1e-3 * double(milliseconds));
  }
  m.used = 0;
  return seconds;
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
