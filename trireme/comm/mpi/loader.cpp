#include "trireme/comm/mpi/loader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "trireme/base/error.h"
#include "trireme/comm/backend_library.h"

namespace trireme::comm {
namespace {
MakeMpi open_mpi() {
  static const auto make = reinterpret_cast<MakeMpi>(open_backend(
      "mpi", "mpi", "build Trireme where Open MPI's libopenmpi-dev is installed, or use backend gloo or shm"));
  return make;
}
}  // namespace

bool started_by_mpi() {
  // Open MPI's mpirun; PMIx (prun, srun --mpi=pmix); PMI (MPICH's mpiexec, srun --mpi=pmi2).
  return std::ranges::any_of(std::initializer_list<const char*>{"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK"},
                             [](const char* name) { return std::getenv(name) != nullptr; });
}

std::string why_no_mpi() {
  try {
    open_mpi();
    return "";
  } catch (const UsageError& error) {
    return error.what();
  }
}

CommunicatorPtr make_mpi(Group group) {
  if (!started_by_mpi())
    throw UsageError(
        fmt::format("[comm] group '{}': backend mpi needs ranks that mpirun starts, and this process has none of "
                    "OMPI_COMM_WORLD_SIZE, PMIX_RANK and PMI_RANK in its environment; start it as mpirun -n {} ..., or "
                    "use backend auto, shm or gloo",
                    group.name, group.size));
  return open_mpi()(group);
}

}  // namespace trireme::comm
