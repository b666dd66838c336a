// Launchers with words of their own for a rank's numbers: those of the MPIs, and Flux. Slurm's are in slurm.h.
#pragma once

#include <optional>

#include "trireme/launch/environment.h"

namespace trireme::launch {

/// Open MPI's mpirun, MPICH's and Intel's (Hydra), MVAPICH's mpirun_rsh, HPE Cray's mpiexec (PALS).
///
/// Errors    UsageError naming the variable: missing, not a number, a count that contradicts another
std::optional<RankEnvironment> read_mpi_rank(const EnvironmentLookup& lookup);

/// `flux run`. Says how many nodes there are, not how many tasks are on this one: nodes have equally many here.
/// Errors    as above
std::optional<RankEnvironment> read_flux_task(const EnvironmentLookup& lookup);

/// A launcher that says which rank this is and not enough else: the rank would quietly train alone.
/// Errors    UsageError with what to set
void refuse_half_a_launcher(const EnvironmentLookup& lookup);

}  // namespace trireme::launch
