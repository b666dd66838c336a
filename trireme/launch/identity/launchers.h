// Reads the variables by which each launcher tells a rank its numbers. Numbers are read strictly: every error names the
// variable and its value.
#pragma once

#include <optional>

#include "trireme/launch/identity/environment.h"

namespace trireme::launch {

inline constexpr int kMaxRanks = 1 << 20;

/// Errors    UsageError: not a whole number within the bounds
int parse_number(const char* name, std::string_view text, int lowest, int highest);

/// The variable's number, or `otherwise` if it is not set. Errors    as parse_number
int optional_number(const EnvironmentLookup& lookup, const char* name, int otherwise, int lowest, int highest);

/// Errors    UsageError if `name` is not set although `because_of` is
const char* required_text(const EnvironmentLookup& lookup, const char* name, const char* because_of);
int required_number(const EnvironmentLookup& lookup, const char* name, const char* because_of, int lowest, int highest);

/// A launcher's names of a rank's four numbers.
struct RankNames {
  const char *rank, *world_size, *local_rank, *local_world_size;
};

/// Fills in the four numbers, and `launched`. Returns false if none of the variables is set.
/// Errors    UsageError: some are missing, malformed or contradictory
bool read_ranks(const EnvironmentLookup& lookup, const RankNames& names, RankEnvironment& result);

/// Errors    UsageError "... contradict each other: NAME=value must be RULE OTHER=other_value" unless `holds`
void refuse_contradiction(bool holds, const char* name, int64_t value, const char* rule, const char* other,
                          int64_t other_value);

// Each reader returns nothing for a process of another launcher, or of none.
// Errors    UsageError naming the variable: missing, not a number, a count that contradicts another

/// Open MPI's mpirun, MPICH's and Intel's (Hydra), MVAPICH's mpirun_rsh, HPE Cray's mpiexec (PALS).
std::optional<RankEnvironment> read_mpi_rank(const EnvironmentLookup& lookup);

/// `flux run`. It gives the number of nodes, but not the tasks on this node: every node counts as having equally many.
std::optional<RankEnvironment> read_flux_task(const EnvironmentLookup& lookup);

/// A task of a job step of srun; nothing in a batch script or in salloc's shell.
std::optional<RankEnvironment> read_slurm_step(const EnvironmentLookup& lookup);

/// The number of tasks of the Slurm job if srun did not start this process; else 0.
int unstarted_slurm_tasks(const EnvironmentLookup& lookup);

/// Refuses a launcher that sets a rank's number but not the other variables: each rank would silently train alone.
/// Errors    UsageError that says what to set
void refuse_half_a_launcher(const EnvironmentLookup& lookup);

// A pod of an indexed Kubernetes job. JOB_COMPLETION_INDEX numbers the pods. With a headless service (the pod
// template's `subdomain`) the others reach each pod by a name, JOB-INDEX.SERVICE.NAMESPACE.svc.cluster.local.

/// This pod's number; empty outside an indexed job. Errors    UsageError if it is not a number
std::optional<int> pod_index(const EnvironmentLookup& lookup);

/// The name of pod 0, given this pod's `index` and full name; empty if the name has another form, or no domain.
std::string first_pod(const std::string& own_name, int index);

}  // namespace trireme::launch
