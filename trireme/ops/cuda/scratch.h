// Stream, scratch and errors of CUDA code on the host's side (cuda/library.cpp).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace trireme::ops::cuda {

/// The calling thread's current CUDA stream.
cudaStream_t current_stream();

/// Throws Error naming `what` unless `status` is success.
void check(cudaError_t status, const char* what);
/// The same for this thread's last launch.
void check_launch(const char* what);

/// Device memory of LibTorch's caching allocator, freed by the destructor. Work that was launched on the current stream
/// before that may still use it.
class Scratch {
 public:
  explicit Scratch(int64_t bytes);
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  void* data_;
};

}  // namespace trireme::ops::cuda
