// Makes communicators of the mpi backend. Its code is in its own library (trireme_comm_mpi), so that the program
// builds, starts and runs on machines without MPI. The library is opened when the backend is needed in a process that
// mpirun (or a scheduler with PMI) has started; otherwise the request is refused in one sentence.
#pragma once

#include "trireme/comm/group.h"

namespace trireme::comm {

/// Whether an MPI launcher started this process, according to the environment; loads nothing.
bool started_by_mpi();

/// Opens the library of make_mpi. Returns an empty text, or the reason if that fails.
std::string why_no_mpi();

/// Collective over the ranks of the group. A global rank is the rank in MPI_COMM_WORLD.
/// Errors    UsageError outside mpirun, without the library, or when ranks do not fit MPI's; CommError naming the
///           ranks that have not joined within the timeout
CommunicatorPtr make_mpi(Group group);

/// Signature of the library's trireme_make_mpi; errors as make_mpi.
using MakeMpi = CommunicatorPtr (*)(const Group& group);

}  // namespace trireme::comm
