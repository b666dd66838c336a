// The variables of MPI's launchers, of Flux and of Kubernetes (launchers.h).
#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/launch/identity/launchers.h"

namespace trireme::launch {
namespace {
// `proof` is a variable that no other launcher sets.
struct MpiLauncher {
  const char *name, *proof;
  RankNames names;
  const char* job_id;
  bool runs_open_mpi = false;
};
constexpr RankNames kHydraNames = {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"};
constexpr MpiLauncher kMpiLaunchers[] = {
    {.name = "mpirun",
     .proof = "OMPI_COMM_WORLD_RANK",
     .names = {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
               "OMPI_COMM_WORLD_LOCAL_SIZE"},
     .job_id = "PMIX_NAMESPACE",
     .runs_open_mpi = true},
    {.name = "MVAPICH's mpirun",
     .proof = "MV2_COMM_WORLD_RANK",
     .names = {"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_SIZE"},
     .job_id = "MPIRUN_ID"},
    {.name = "PALS' mpiexec",
     .proof = "PALS_RANKID",
     .names = {"PALS_RANKID", "PMI_SIZE", "PALS_LOCAL_RANKID", "PALS_LOCAL_SIZE"},
     .job_id = "PALS_APID"},
    {.name = "Intel MPI's mpirun", .proof = "I_MPI_MPIRUN", .names = kHydraNames, .job_id = "PMI_JOBID"},
    {.name = "MPICH's mpirun", .proof = "MPI_LOCALNRANKS", .names = kHydraNames, .job_id = "PMI_JOBID"},
};
}  // namespace

std::optional<RankEnvironment> read_mpi_rank(const EnvironmentLookup& lookup) {
  for (const MpiLauncher& launcher : kMpiLaunchers) {
    RankEnvironment result;
    if (lookup(launcher.proof) == nullptr || !read_ranks(lookup, launcher.names, result)) continue;
    result.launcher = launcher.name;
    result.by_mpirun = launcher.runs_open_mpi;
    if (const char* id = lookup(launcher.job_id)) result.job_id = id;
    return result;
  }
  return std::nullopt;
}

std::optional<RankEnvironment> read_flux_task(const EnvironmentLookup& lookup) {
  if (lookup("FLUX_TASK_RANK") == nullptr) return std::nullopt;
  const int size = required_number(lookup, "FLUX_JOB_SIZE", "FLUX_TASK_RANK", 1, kMaxRanks);
  const int nodes = required_number(lookup, "FLUX_JOB_NNODES", "FLUX_TASK_RANK", 1, kMaxRanks);
  refuse_contradiction(size % nodes == 0, "FLUX_JOB_SIZE", size, "a multiple of", "FLUX_JOB_NNODES", nodes);
  const std::string local_size = std::to_string(size / nodes);
  constexpr const char* kLocalSize = "FLUX_JOB_SIZE / FLUX_JOB_NNODES";
  RankEnvironment result;
  read_ranks([&](const char* name) { return name == kLocalSize ? local_size.c_str() : lookup(name); },
             {"FLUX_TASK_RANK", "FLUX_JOB_SIZE", "FLUX_TASK_LOCAL_ID", kLocalSize}, result);
  result.launcher = "flux";
  if (const char* id = lookup("FLUX_JOB_ID")) result.job_id = std::string("flux-") + id;
  return result;
}

void refuse_half_a_launcher(const EnvironmentLookup& lookup) {
  const char* size = lookup("PMI_SIZE");
  const bool pmi = lookup("PMI_RANK") != nullptr && (size == nullptr || std::string_view(size) != "1");
  if (!pmi && lookup("PMIX_RANK") == nullptr) return;
  const char* name = pmi ? "PMI_RANK" : "PMIX_RANK";
  throw UsageError(
      fmt::format("environment variable {}={} says that a launcher started this process as one of several ranks, but "
                  "not how many run on this host: set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT for each, start "
                  "them with mpirun, srun or torchrun, or unset {} to train alone",
                  name, lookup(name), name));
}

std::optional<int> pod_index(const EnvironmentLookup& lookup) {
  const int index = optional_number(lookup, "JOB_COMPLETION_INDEX", -1, 0, kMaxRanks);
  return index < 0 ? std::nullopt : std::optional(index);
}

std::string first_pod(const std::string& own_name, int index) {
  const std::string ending = fmt::format("-{}", index);
  const size_t dot = own_name.find('.');
  if (dot == std::string::npos || dot + 1 == own_name.size()) return {};
  const std::string host = own_name.substr(0, dot);
  if (host.size() <= ending.size() || !host.ends_with(ending)) return {};
  return fmt::format("{}-0{}", host.substr(0, host.size() - ending.size()), own_name.substr(dot));
}

}  // namespace trireme::launch
