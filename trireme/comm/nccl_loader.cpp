#include "trireme/comm/nccl_loader.h"

#include <fmt/format.h>

#include "trireme/base/cuda_library.h"
#include "trireme/base/error.h"
#include "trireme/comm/backend_library.h"

namespace trireme::comm {

CommunicatorPtr make_nccl(Group group, c10::intrusive_ptr<c10d::Store> store) {
  if (!base::gpu_present())
    throw UsageError(
        fmt::format("[comm] group '{}': backend nccl needs an NVIDIA GPU, and this machine has none "
                    "(neither /dev/nvidia0 nor /proc/driver/nvidia exists); use backend auto, shm or gloo",
                    group.name));
  static const auto make = reinterpret_cast<MakeNccl>(open_backend(
      "nccl",
      "build Trireme where the CUDA toolkit, nccl.h and libtorch_cuda.so are found, or use backend gloo or shm"));
  return make(group, store);
}

}  // namespace trireme::comm
