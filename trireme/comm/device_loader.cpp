#include "trireme/comm/device_loader.h"

#include <fmt/format.h>

#include "trireme/base/cuda_library.h"
#include "trireme/base/error.h"
#include "trireme/comm/backend_library.h"

namespace trireme::comm {

namespace {

MakeOnDevice open_device_backend(const std::string& name) {
  return reinterpret_cast<MakeOnDevice>(
      open_backend("nccl", name,
                   "build Trireme where the CUDA toolkit, nccl.h and libtorch_cuda.so are found, or use backend gloo "
                   "or shm with --accelerator cpu"));
}

void require_gpu(const Group& group, const char* what, const char* instead) {
  if (base::gpu_present()) return;
  throw UsageError(
      fmt::format("[comm] group '{}': {} needs an NVIDIA GPU, and this machine has none (neither /dev/nvidia0 nor "
                  "/proc/driver/nvidia exists); use {}",
                  group.name, what, instead));
}

constexpr const char* kOnDevice = "a communicator of tensors on the device";

}  // namespace

CommunicatorPtr make_nccl(const Group& group, const c10::intrusive_ptr<c10d::Store>& store) {
  require_gpu(group, "backend nccl", "backend auto, shm or gloo");
  static const MakeOnDevice make = open_device_backend("nccl");
  return make(group, store);
}

CommunicatorPtr make_device_threads(const Group& group, const c10::intrusive_ptr<c10d::Store>& store) {
  require_gpu(group, kOnDevice, "--accelerator cpu");
  static const MakeOnDevice make = open_device_backend("device_threads");
  return make(group, store);
}

CommunicatorPtr make_device_local(const Group& group) {
  require_gpu(group, kOnDevice, "--accelerator cpu");
  static const MakeOnDevice make = open_device_backend("device_local");
  return make(group, nullptr);
}

}  // namespace trireme::comm
