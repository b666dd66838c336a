// The door to the mpi backend, which lives in a library of its own (trireme_comm_mpi) so that the program starts,
// links and runs on machines without MPI. The library is opened when the backend is asked for in a process that
// mpirun (or a scheduler that speaks PMI) has started; otherwise there is one clear refusal.
#pragma once

#include "trireme/comm/group.h"

namespace trireme::comm {

/// True when a launcher of MPI started this process, by the variables it leaves in the environment; loads nothing.
bool started_by_mpi();

/// Empty where make_mpi could open its library, else why not. Opens it.
std::string why_no_mpi();

/// Collective over the ranks of the group. Global rank = rank in MPI_COMM_WORLD.
/// Errors    UsageError outside mpirun, without the library, or when ranks do not fit MPI's; CommError naming the
///           ranks that have not joined within the timeout
CommunicatorPtr make_mpi(Group group);

/// Signature of the symbol "trireme_make_mpi" in the library; throws what make_mpi throws.
using MakeMpi = CommunicatorPtr (*)(const Group& group);

}  // namespace trireme::comm
