#include "trireme/base/shared_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "trireme/base/error.h"

namespace trireme::base {
namespace {

[[noreturn]] void refuse_without_gpu() {
  throw UsageError(
      "accelerator cuda needs an NVIDIA GPU, and this machine has none (neither /dev/nvidia0 nor /proc/driver/nvidia "
      "exists); use --accelerator cpu");
}

void* open_cuda_library() {
  if (!gpu_present()) refuse_without_gpu();
  constexpr const char* kLibrary = "libtrireme_cuda.so";
  // Global, so that libtorch_cuda's registrations are seen.
  if (void* opened = dlopen(library_path(kLibrary).c_str(), RTLD_NOW | RTLD_GLOBAL)) return opened;
  throw UsageError(
      fmt::format("accelerator cuda needs {}, which cannot be opened: {}; build it where the CUDA toolkit and "
                  "libtorch_cuda.so are found (cmake --build --preset release --target trireme_cuda), or use "
                  "--accelerator cpu",
                  kLibrary, dlerror()));
}

}  // namespace

std::filesystem::path library_path(const std::string& library) {
  std::error_code ignored;
  const auto folder = std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
  for (const auto& candidate : {folder / library, folder / ".." / "lib" / library})
    if (std::filesystem::exists(candidate, ignored)) return candidate;
  return library;
}

bool gpu_present() {
  std::error_code ignored;
  return std::filesystem::exists("/dev/nvidia0", ignored) || std::filesystem::exists("/proc/driver/nvidia", ignored);
}

int num_gpus() {
  if (const char* visible = std::getenv("CUDA_VISIBLE_DEVICES")) {
    const std::string_view list = visible;
    if (list.empty() || list.starts_with('-')) return 0;
    return static_cast<int>(std::ranges::count(list, ',')) + 1;
  }
  std::error_code ignored;
  int count = 0;
  while (std::filesystem::exists(fmt::format("/dev/nvidia{}", count), ignored)) ++count;
  return count;
}

void require_gpus(int count) {
  if (!gpu_present()) refuse_without_gpu();
  if (const int here = num_gpus(); here < count)
    throw UsageError(
        fmt::format("{} ranks need a GPU each, and this machine has {} (CUDA_VISIBLE_DEVICES chooses among "
                    "those that it has); say --devices {}, or --accelerator cpu",
                    count, here, std::max(1, here)));
}

void* cuda_symbol(const char* symbol) {
  static void* const library = open_cuda_library();
  if (void* address = dlsym(library, symbol)) return address;
  throw UsageError(fmt::format(
      "libtrireme_cuda.so is of another version of Trireme: it has no {}; build and install both together", symbol));
}

}  // namespace trireme::base
