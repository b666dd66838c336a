// What srun tells a task about itself (launchers.h): the SLURM_ variables of a job step.
#include <fmt/format.h>

#include <charconv>
#include <cstring>
#include <numeric>

#include "trireme/launch/identity/launchers.h"
#include "trireme/launch/machines/host_list.h"

namespace trireme::launch {
namespace {
// Batch scripts and interactive shells run in steps with reserved numbers, not in steps of srun.
constexpr int64_t kFirstReservedStep = 0xFFFFFFF0;

bool in_step(const EnvironmentLookup& lookup) {
  const char* step = lookup("SLURM_STEP_ID");
  if (step == nullptr || lookup("SLURM_PROCID") == nullptr) return false;
  int64_t number = 0;
  const auto [end, error] = std::from_chars(step, step + std::strlen(step), number);
  return error == std::errc() && *end == '\0' && number < kFirstReservedStep;
}

// The step's variable; an older Slurm may have only the job's.
const char* step_or_job(const EnvironmentLookup& lookup, const char* of_step, const char* of_job) {
  return lookup(of_step) != nullptr ? of_step : of_job;
}
}  // namespace

std::optional<RankEnvironment> read_slurm_step(const EnvironmentLookup& lookup) {
  if (!in_step(lookup)) return std::nullopt;
  RankEnvironment result;
  result.launched = true;
  result.launcher = "srun";
  const char* world = step_or_job(lookup, "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS");
  const char* per_node = step_or_job(lookup, "SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE");
  const char* hosts = step_or_job(lookup, "SLURM_STEP_NODELIST", "SLURM_NODELIST");
  result.world_size = required_number(lookup, world, "SLURM_PROCID", 1, kMaxRanks);
  result.global_rank = required_number(lookup, "SLURM_PROCID", "SLURM_STEP_ID", 0, kMaxRanks);
  result.local_rank = required_number(lookup, "SLURM_LOCALID", "SLURM_PROCID", 0, kMaxRanks);
  result.node_rank = required_number(lookup, "SLURM_NODEID", "SLURM_PROCID", 0, kMaxRanks);
  refuse_contradiction(result.global_rank < result.world_size, "SLURM_PROCID", result.global_rank, "less than", world,
                       result.world_size);

  const std::vector<int> tasks = expand_task_counts(per_node, required_text(lookup, per_node, "SLURM_PROCID"));
  result.num_nodes = static_cast<int>(tasks.size());
  refuse_contradiction(result.node_rank < result.num_nodes, "SLURM_NODEID", result.node_rank,
                       "less than the number of nodes of", per_node, result.num_nodes);
  const auto all = std::accumulate(tasks.begin(), tasks.end(), int64_t{0});
  refuse_contradiction(all == result.world_size, world, result.world_size, "the sum of", per_node, all);
  result.local_world_size = tasks[static_cast<size_t>(result.node_rank)];
  refuse_contradiction(result.local_rank < result.local_world_size, "SLURM_LOCALID", result.local_rank, "less than",
                       per_node, result.local_world_size);
  if (const char* text = lookup(hosts)) {
    const std::vector<std::string> names = expand_host_list(hosts, text);
    refuse_contradiction(static_cast<int>(names.size()) == result.num_nodes, hosts, static_cast<int>(names.size()),
                         "as many hosts as", per_node, result.num_nodes);
    result.hosts = names;
  }
  const auto text_of = [&](const char* name) { return lookup(name) == nullptr ? "0" : lookup(name); };
  result.job_id =
      fmt::format("slurm-{}.{}.{}", text_of("SLURM_JOB_ID"), text_of("SLURM_STEP_ID"), text_of("SLURM_RESTART_COUNT"));
  result.by_mpirun = lookup("PMIX_RANK") != nullptr;  // srun --mpi=pmix: MPI can start
  return result;
}

int unstarted_slurm_tasks(const EnvironmentLookup& lookup) {
  if (lookup("SLURM_JOB_ID") == nullptr || lookup("SLURM_NTASKS") == nullptr || in_step(lookup)) return 0;
  const int tasks = required_number(lookup, "SLURM_NTASKS", "SLURM_JOB_ID", 1, kMaxRanks);
  return tasks > 1 ? tasks : 0;
}

}  // namespace trireme::launch
