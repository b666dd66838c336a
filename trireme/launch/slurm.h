// What srun tells a task about itself: the SLURM_ variables of a job step.
#pragma once

#include <optional>
#include <string>

#include "trireme/launch/environment.h"

namespace trireme::launch {

/// Nothing outside of a step: in a batch script, in salloc's shell, without Slurm.
///
/// Errors    UsageError naming the variable: missing, not a number, a count that contradicts another
std::optional<RankEnvironment> read_slurm_step(const EnvironmentLookup& lookup);

/// Tasks that Slurm's job asks for where this process is none of them, for no srun started it; 0: no such thing.
int unstarted_slurm_tasks(const EnvironmentLookup& lookup);

}  // namespace trireme::launch
