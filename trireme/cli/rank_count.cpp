// The number of ranks: from the launcher that started this process, the settings, or the machine.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <thread>

#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/base/shared_library.h"
#include "trireme/base/text.h"
#include "trireme/cli/start.h"
#include "trireme/launch/identity/core_share.h"
#include "trireme/launch/identity/launchers.h"
#include "trireme/settings/validate.h"

namespace trireme::cli {

std::string describe_launcher(const launch::RankEnvironment& e) {
  return fmt::format("{} started {} on {}{}", e.launcher, base::plural(e.world_size, "rank"),
                     base::plural(e.num_nodes, "host"),
                     e.hosts.empty() ? "" : fmt::format(" ({})", base::join(e.hosts, ", ")));
}

void refuse_a_world_of_one(const launch::RankEnvironment& environment, const Settings& settings,
                           const std::string& subcommand, bool is_training) {
  if (const auto pod = launch::pod_index(std::getenv);
      pod.value_or(0) > 0 && !environment.launched && settings.num_nodes == 1 && is_training)
    throw UsageError(
        fmt::format("JOB_COMPLETION_INDEX {} says that this is one of several pods, but num_nodes is 1, and each would "
                    "train alone: say --num_nodes N, the job's completions, or unset JOB_COMPLETION_INDEX",
                    *pod));
  if (environment.unstarted_by_accelerate && !settings.devices)
    throw UsageError(fmt::format(
        "accelerate launch was asked for several processes and has started one: on processors it starts more only with "
        "--mpirun_hostfile FILE; or write trireme {} ... --devices N, which needs no launcher",
        subcommand));
  if (environment.unstarted_tasks == 0 || settings.devices) return;
  throw UsageError(
      fmt::format("Slurm's job asks for {} tasks (SLURM_NTASKS), but srun did not start this process: write srun "
                  "trireme {} ..., or say --devices N for N ranks on this host alone",
                  environment.unstarted_tasks, subcommand));
}

void refuse_mpi_without_mpirun(const Settings& settings, const std::string& subcommand) {
  if (settings.comm.backend == comm::Backend::mpi)
    throw UsageError(
        fmt::format("comm.backend mpi needs ranks that mpirun starts: mpirun -n {} trireme {} ..., or use "
                    "--comm.backend auto, shm or gloo",
                    settings.devices.value_or(1), subcommand));
}

void take_over_ranks(const launch::RankEnvironment& environment, Settings& settings) {
  if (settings.devices && settings.num_nodes == 1 &&
      *settings.devices * environment.num_nodes == environment.world_size)
    settings.num_nodes = environment.num_nodes;
  if (!settings.devices && environment.world_size % settings.num_nodes == 0)
    settings.devices = environment.world_size / settings.num_nodes;
  if (world_size(settings) != environment.world_size)
    throw UsageError(fmt::format("devices {} on num_nodes {} are not the {} ranks that {} started; leave devices out",
                                 settings.devices.value_or(1), settings.num_nodes, environment.world_size,
                                 environment.launcher));
  share_threads(environment, settings);
}

void share_threads(const launch::RankEnvironment& environment, Settings& settings) {
  if (!environment.local_is_unknown && environment.launcher != "trireme" && !settings.launch.threads_per_rank &&
      !launch::threads_of_variable(std::getenv("OMP_NUM_THREADS")))
    settings.launch.threads_per_rank =
        std::max(1, static_cast<int>(std::thread::hardware_concurrency()) / environment.local_world_size);
}

void choose_ranks(Settings& settings) {
  const plan::MeshSettings& mesh = settings.mesh;
  const bool free = !mesh.replicate && !mesh.shard && !mesh.pp && !mesh.cp && !mesh.tp;
  if (!settings.devices && free && settings.num_nodes == 1)
    settings.devices =
        settings.accelerator == engine::Accelerator::cuda ? std::max(1, base::num_gpus()) : launch::num_numa_nodes();
  launch::LaunchSettings& l = settings.launch;
  if (l.threads_per_rank) return;
  const auto threads = launch::threads_of_variable(std::getenv("OMP_NUM_THREADS"));
  const auto ranks = static_cast<int>(settings.devices.value_or(1));
  const int cores = launch::share_cores(ranks).threads_per_rank;
  if (!threads && ranks == 1) l.threads_per_rank = cores;
  const bool starts_here = !l.print && !l.hosts && !l.hostfile;
  if (threads.value_or(1) > cores && starts_here)
    base::warn(
        "OMP_NUM_THREADS gives a rank {} threads, and it has {}: they wait for each other; unset it, or say "
        "--launch.threads_per_rank {}",
        *threads, base::plural(cores, "core"), cores);
}

}  // namespace trireme::cli
