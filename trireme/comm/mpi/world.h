// MPI in this process: it starts at the first use and ends at exit. MPI is global to the process, so these functions
// are too.
//
// No call here blocks inside MPI (waits only test, see mpi/messages.h). So a lock around each call costs little, and
// MPI_THREAD_SERIALIZED is enough; in that mode Open MPI takes no locks of its own.
#pragma once

#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <memory>
#include <mutex>

#include "trireme/comm/lane.h"

namespace trireme::comm {

struct MpiWorld {
  int rank = 0;  ///< in MPI_COMM_WORLD
  int size = 1;
};

/// Starts MPI at the first call. At exit MPI is finalized only if the exit code is 0 and nothing has failed. Otherwise
/// MPI_Finalize might wait for ranks that are gone; without it mpirun ends the job.
/// Errors    UsageError if MPI cannot be used from several threads in turn
const MpiWorld& mpi_world();

/// Lock it around every call of MPI.
std::mutex& mpi_mutex();

/// Throws TransportFailure with MPI's own text unless `code` is MPI_SUCCESS. Call it under the lock.
void check_mpi(int code, const char* call, int peer = -1);

/// After a failure: makes the process exit without MPI_Finalize.
void abandon_mpi();

/// Keeps memory that MPI may still write to until the process ends.
void keep_for_mpi(std::shared_ptr<void> memory);

}  // namespace trireme::comm
