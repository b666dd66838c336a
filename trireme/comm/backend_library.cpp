#include "trireme/comm/backend_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/shared_library.h"

namespace trireme::comm {

void* open_backend(const std::string& backend, const std::string& what, const std::string& way_out) {
  const std::string library = fmt::format("libtrireme_comm_{}.so", backend);
  const std::string symbol = fmt::format("trireme_make_{}", what);
  // RTLD_GLOBAL, so that libtorch_cuda's registrations and Open MPI's plug-ins find the library's symbols.
  void* opened = dlopen(base::library_path(library).c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (!opened)
    throw UsageError(fmt::format("[comm] backend {} needs {}, which cannot be opened: {}; {}", backend, library,
                                 dlerror(), way_out));
  void* make = dlsym(opened, symbol.c_str());
  if (!make)
    throw UsageError(fmt::format(
        "[comm] {} is of another version of Trireme: it has no {}; build and install both together", library, symbol));
  return make;
}

}  // namespace trireme::comm
