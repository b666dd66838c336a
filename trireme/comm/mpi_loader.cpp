#include "trireme/comm/mpi_loader.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "trireme/base/error.h"

namespace trireme::comm {

namespace {

constexpr const char* kLibrary = "libtrireme_comm_mpi.so";

// Beside the program (a build folder), in ../lib (an installed tree), else wherever the loader looks.
std::string library_path() {
  std::error_code ignored;
  const auto folder = std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
  for (const auto& candidate : {folder / kLibrary, folder / ".." / "lib" / kLibrary})
    if (std::filesystem::exists(candidate, ignored)) return candidate;
  return kLibrary;
}

MakeMpi load() {
  // Never closed: MPI cannot be started twice. Global, so that Open MPI's plug-ins see its symbols.
  void* library = dlopen(library_path().c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (!library)
    throw UsageError(
        fmt::format("[comm] backend mpi needs {}, which cannot be opened: {}; build Trireme where Open MPI's "
                    "libopenmpi-dev is installed, or use backend gloo or shm",
                    kLibrary, dlerror()));
  auto* make = reinterpret_cast<MakeMpi>(dlsym(library, "trireme_make_mpi"));
  if (!make)
    throw UsageError(
        fmt::format("[comm] {} is of another version of Trireme: it has no trireme_make_mpi; build and "
                    "install both together",
                    kLibrary));
  return make;
}

}  // namespace

bool started_by_mpi() {
  // Open MPI's mpirun; PMIx (prun, srun --mpi=pmix); PMI (MPICH's mpiexec, srun --mpi=pmi2).
  return std::ranges::any_of(std::initializer_list<const char*>{"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK"},
                             [](const char* name) { return std::getenv(name) != nullptr; });
}

CommunicatorPtr make_mpi(Group group) {
  if (!started_by_mpi())
    throw UsageError(
        fmt::format("[comm] group '{}': backend mpi needs ranks that mpirun starts, and this process has none of "
                    "OMPI_COMM_WORLD_SIZE, PMIX_RANK and PMI_RANK in its environment; start it as mpirun -n {} "
                    "..., or use backend auto, shm or gloo",
                    group.name, group.size));
  static const MakeMpi make = load();
  return make(group);
}

}  // namespace trireme::comm
