// Opens the library of a backend that only some machines can run (nccl, mpi), when it is asked for.
#pragma once

#include <string>

namespace trireme::comm {

/// Address of `trireme_make_<what>` in libtrireme_comm_<backend>.so, which lies beside the program, in ../lib or
/// where the loader looks. The library is never closed: neither CUDA nor MPI can be started twice.
/// `way_out` ends the message when it cannot be opened: "build Trireme where ... is found, or use backend ...".
/// Errors    UsageError
void* open_backend(const std::string& backend, const std::string& what, const std::string& way_out);

}  // namespace trireme::comm
