// MPI in this process: started at the first use, ended at exit. It is the one part of comm that is global to the
// process, because MPI is.
//
// Nothing of ours blocks inside MPI (waits test and look away, see mpi_messages.h), so a lock around each call costs
// little and MPI_THREAD_SERIALIZED is enough; in that mode Open MPI takes no locks of its own.
#pragma once

#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <memory>
#include <mutex>

#include "trireme/comm/transport_failure.h"

namespace trireme::comm {

struct MpiWorld {
  int rank = 0;  ///< in MPI_COMM_WORLD
  int size = 1;
};

/// Starts MPI at the first call. It ends at exit, when the process exits with 0 and nothing has failed; otherwise
/// the process leaves without MPI_Finalize, which might wait for ranks that are gone, and mpirun ends the job.
/// Errors    UsageError when MPI cannot be used from several threads in turn
const MpiWorld& mpi_world();

/// Held around every call of MPI.
std::mutex& mpi_mutex();

/// Throws TransportFailure with MPI's own text unless `code` is MPI_SUCCESS. Call it under the lock.
void check_mpi(int code, const char* call, int peer = -1);

/// Something has failed: the process will exit without MPI_Finalize.
void abandon_mpi();

/// Keeps memory that MPI may still write to until the process ends.
void keep_for_mpi(std::shared_ptr<void> memory);

}  // namespace trireme::comm
