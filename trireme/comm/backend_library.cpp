#include "trireme/comm/backend_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>

#include "trireme/base/error.h"

namespace trireme::comm {

namespace {

// Beside the program (a build folder), in ../lib (an installed tree), else wherever the loader looks.
std::string path_of(const std::string& library) {
  std::error_code ignored;
  const auto folder = std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
  for (const auto& candidate : {folder / library, folder / ".." / "lib" / library})
    if (std::filesystem::exists(candidate, ignored)) return candidate;
  return library;
}

}  // namespace

void* open_backend(const std::string& backend, const std::string& way_out) {
  const std::string library = fmt::format("libtrireme_comm_{}.so", backend);
  const std::string symbol = fmt::format("trireme_make_{}", backend);
  // Global, so that libtorch_cuda's registrations and Open MPI's plug-ins find its symbols.
  void* opened = dlopen(path_of(library).c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (!opened)
    throw UsageError(fmt::format("[comm] backend {} needs {}, which cannot be opened: {}; {}", backend, library,
                                 dlerror(), way_out));
  void* make = dlsym(opened, symbol.c_str());
  if (!make)
    throw UsageError(
        fmt::format("[comm] {} is of another version of Trireme: it has no {}; build and install both "
                    "together",
                    library, symbol));
  return make;
}

}  // namespace trireme::comm
