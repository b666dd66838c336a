// Opens the library of a backend that only some machines can run (nccl, mpi), when a run needs it.
#pragma once

#include <string>

namespace trireme::comm {

/// Address of `trireme_make_<what>` in libtrireme_comm_<backend>.so (found by base::library_path). The library is never
/// closed: neither CUDA nor MPI can be started twice. If it cannot be opened, the error ends with `way_out`: the
/// remedy. Errors    UsageError
void* open_backend(const std::string& backend, const std::string& what, const std::string& way_out);

}  // namespace trireme::comm
