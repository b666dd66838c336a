#include "trireme/comm/cuda/device_loader.h"

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/shared_library.h"
#include "trireme/comm/backend_library.h"

namespace trireme::comm {
namespace {
CommunicatorPtr make_on_device(const std::string& name, const Group& group,
                               const c10::intrusive_ptr<c10d::Store>& store,
                               const char* what = "a communicator of tensors on the device",
                               const char* instead = "--accelerator cpu") {
  if (!base::gpu_present())
    throw UsageError(
        fmt::format("[comm] group '{}': {} needs an NVIDIA GPU, and this machine has none (neither /dev/nvidia0 nor "
                    "/proc/driver/nvidia exists); use {}",
                    group.name, what, instead));
  const auto make =
      reinterpret_cast<MakeOnDevice>(open_backend("nccl", name,
                                                  "build Trireme where the CUDA toolkit, nccl.h and libtorch_cuda.so "
                                                  "are found, or use backend gloo or shm with --accelerator cpu"));
  return make(group, store);
}
}  // namespace

CommunicatorPtr make_nccl(const Group& group, const c10::intrusive_ptr<c10d::Store>& store) {
  return make_on_device("nccl", group, store, "backend nccl", "backend auto, shm or gloo");
}

CommunicatorPtr make_device_threads(const Group& group, const c10::intrusive_ptr<c10d::Store>& store) {
  return make_on_device("device_threads", group, store);
}

CommunicatorPtr make_device_local(const Group& group) { return make_on_device("device_local", group, nullptr); }

}  // namespace trireme::comm
