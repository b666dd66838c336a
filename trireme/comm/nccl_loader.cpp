#include "trireme/comm/nccl_loader.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>

#include "trireme/base/error.h"

namespace trireme::comm {

namespace {

constexpr const char* kLibrary = "libtrireme_comm_nccl.so";

// Beside the program (a build folder), in ../lib (an installed tree), else wherever the loader looks.
std::string library_path() {
  std::error_code ignored;
  const auto folder = std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
  for (const auto& candidate : {folder / kLibrary, folder / ".." / "lib" / kLibrary})
    if (std::filesystem::exists(candidate, ignored)) return candidate;
  return kLibrary;
}

MakeNccl load() {
  // Never closed: NCCL and CUDA do not survive it. Global, so that libtorch_cuda's registrations are seen.
  void* library = dlopen(library_path().c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (!library)
    throw UsageError(
        fmt::format("[comm] backend nccl needs {}, which cannot be opened: {}; build Trireme where the "
                    "CUDA toolkit, nccl.h and libtorch_cuda.so are found, or use backend gloo or shm",
                    kLibrary, dlerror()));
  auto* make = reinterpret_cast<MakeNccl>(dlsym(library, "trireme_make_nccl"));
  if (!make)
    throw UsageError(
        fmt::format("[comm] {} is of another version of Trireme: it has no trireme_make_nccl; build and "
                    "install both together",
                    kLibrary));
  return make;
}

}  // namespace

bool gpu_present() {
  std::error_code ignored;
  return std::filesystem::exists("/dev/nvidia0", ignored) || std::filesystem::exists("/proc/driver/nvidia", ignored);
}

CommunicatorPtr make_nccl(Group group, c10::intrusive_ptr<c10d::Store> store) {
  if (!gpu_present())
    throw UsageError(
        fmt::format("[comm] group '{}': backend nccl needs an NVIDIA GPU, and this machine has none "
                    "(neither /dev/nvidia0 nor /proc/driver/nvidia exists); use backend auto, shm or gloo",
                    group.name));
  static const MakeNccl make = load();
  return make(group, store);
}

}  // namespace trireme::comm
