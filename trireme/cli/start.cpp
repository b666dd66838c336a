#include "trireme/cli/start.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <sstream>
#include <thread>

#include "trireme/base/cuda_library.h"
#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/base/text.h"
#include "trireme/checkpoint/good.h"
#include "trireme/cli/elastic.h"
#include "trireme/cli/nodes.h"
#include "trireme/cli/out_dir_lock.h"
#include "trireme/cli/print_job.h"
#include "trireme/cli/ssh_hosts.h"
#include "trireme/config/report.h"
#include "trireme/config/validate.h"
#include "trireme/launch/core_share.h"
#include "trireme/launch/kubernetes.h"
#include "trireme/launch/launch.h"
#include "trireme/launch/meeting_file.h"
#include "trireme/launch/room.h"
#include "trireme/launch/stop_signal.h"
#include "trireme/train/checkpointing.h"
#include "trireme/train/out_dir.h"
#include "trireme/train/resume_settings.h"

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> words(const std::string& text) {
  std::istringstream in(text);
  return {std::istream_iterator<std::string>(in), {}};
}

// A run's own records say how it ended: another command's must not take their place.
void keep_records_apart(std::string subcommand, config::Settings& settings) {
  std::replace(subcommand.begin(), subcommand.end(), ' ', '-');
  if (train::holds_a_run(settings.out_dir)) settings.out_dir = (fs::path(settings.out_dir) / subcommand).string();
}

int launch(const Job& job, const config::Settings& settings, launch::RankEnvironment& environment, Arguments arguments,
           const std::optional<Elastic>& elastic, const OutDirLock& lock, int64_t planned_bytes) {
  launch::LaunchOptions options;
  options.planned_bytes = planned_bytes;
  options.tells_begin = job.saves_when_stopped;
  options.oversubscribe = settings.launch.oversubscribe;
  std::optional<launch::MeetingFile> meeting;
  options.num_ranks = static_cast<int>(settings.devices.value_or(1));
  if (elastic) {
    options.rendezvous = make_rendezvous(*elastic, settings, false, meeting);
  } else {
    options.nodes = choose_nodes(settings, environment, meeting);
  }
  options.arguments = words(job.subcommand);
  options.arguments.insert(options.arguments.end(), arguments.begin(), arguments.end());
  options.out_dir = settings.out_dir;
  options.lock_fd = lock.descriptor();
  options.threads_per_rank = static_cast<int>(settings.launch.threads_per_rank.value_or(0));
  options.pin = settings.launch.pin;
  options.answer_code = job.answer_code;
  options.max_restarts = static_cast<int>(settings.launch.max_restarts);
  if (const auto& shown = settings.launch.log_ranks) options.log_ranks.assign(shown->begin(), shown->end());
  options.failure_hint = [&]() -> std::string {
    const auto newest = checkpoint::find_latest(settings.out_dir);
    if (!newest || !job.owns_out_dir) return "";
    return fmt::format("newest good checkpoint: {}; continue with: {}", newest->string(),
                       train::how_to_go_on(settings));
  };
  return launch::launch_ranks(options);
}

// What recognises a launcher says so in one line, with what it found.
std::string found(const launch::RankEnvironment& e) {
  return fmt::format("{} started {} on {}{}", e.launcher, base::plural(e.world_size, "rank"),
                     base::plural(e.num_nodes, "host"),
                     e.hosts.empty() ? "" : fmt::format(" ({})", base::join(e.hosts, ", ")));
}

// A batch script's own process, or each pod of a job, would quietly train alone.
void refuse_a_world_of_one(const launch::RankEnvironment& environment, const config::Settings& settings,
                           const Job& job) {
  if (const auto pod = launch::pod_index(std::getenv);
      pod.value_or(0) > 0 && !environment.launched && settings.num_nodes == 1 && job.saves_when_stopped)
    throw UsageError(
        fmt::format("JOB_COMPLETION_INDEX {} says that this is one of several pods, but num_nodes is 1, and each would "
                    "train alone: say --num_nodes N, the job's completions, or unset JOB_COMPLETION_INDEX",
                    *pod));
  if (environment.unstarted_by_accelerate && !settings.devices)
    throw UsageError(fmt::format(
        "accelerate launch was asked for several processes and has started one: on processors it starts more only with "
        "--mpirun_hostfile FILE; or write trireme {} ... --devices N, which needs no launcher",
        job.subcommand));
  if (environment.unstarted_tasks == 0 || settings.devices) return;
  throw UsageError(fmt::format(
      "Slurm's job asks for {} tasks (SLURM_NTASKS), but srun did not start this process: write srun trireme {} ..., "
      "or say --devices N for N ranks on this host alone",
      environment.unstarted_tasks, job.subcommand));
}

// The number of ranks is the launcher's word: settings say the same, or nothing.
void take_over_ranks(const launch::RankEnvironment& environment, config::Settings& settings) {
  if (settings.devices && settings.num_nodes == 1 &&
      *settings.devices * environment.num_nodes == environment.world_size)
    settings.num_nodes = environment.num_nodes;
  if (!settings.devices && environment.world_size % settings.num_nodes == 0)
    settings.devices = environment.world_size / settings.num_nodes;
  if (config::world_size(settings) != environment.world_size)
    throw UsageError(fmt::format("devices {} on num_nodes {} are not the {} ranks that {} started; leave devices out",
                                 settings.devices.value_or(1), settings.num_nodes, environment.world_size,
                                 environment.launcher));
  // Other launchers say nothing about threads, and ranks that all take every core stand in each other's way.
  if (environment.launcher != "trireme" && !settings.launch.threads_per_rank &&
      std::getenv("OMP_NUM_THREADS") == nullptr)
    settings.launch.threads_per_rank =
        std::max(1, static_cast<int>(std::thread::hardware_concurrency()) / environment.local_world_size);
}

// Nobody said how many: a rank for each GPU, or for each NUMA node, its threads a core each. A mesh that is spelled out
// says itself.
void choose_ranks(config::Settings& settings) {
  const config::MeshSettings& mesh = settings.mesh;
  const bool free = !mesh.replicate && !mesh.shard && !mesh.pp && !mesh.cp && !mesh.tp;
  if (!settings.devices && free && settings.num_nodes == 1)
    settings.devices =
        settings.accelerator == config::Accelerator::cuda ? std::max(1, base::num_gpus()) : launch::num_numa_nodes();
  if (settings.devices.value_or(1) == 1 && !settings.launch.threads_per_rank && !std::getenv("OMP_NUM_THREADS"))
    settings.launch.threads_per_rank = launch::share_cores(1).threads_per_rank;
}

// Our own launcher's ranks could only say so one by one.
void refuse_mpi_without_mpirun(const Job& job, const config::Settings& settings) {
  if (settings.comm.backend == config::Backend::mpi)
    throw UsageError(
        fmt::format("comm.backend mpi needs ranks that mpirun starts: mpirun -n {} trireme {} ..., or use "
                    "--comm.backend auto, shm or gloo",
                    *settings.devices, job.subcommand));
}

}  // namespace

void refuse_gpus(const config::Settings& settings, const std::string& subcommand) {
  if (settings.accelerator == config::Accelerator::cuda)
    throw UsageError(
        fmt::format("error: trireme {} computes on the processor only; leave out --accelerator cuda, which pretrain "
                    "and bench train "
                    "take",
                    subcommand));
}

int start(const Job& job, Arguments arguments) {
  config::ParsedSettings parsed = config::parse(arguments, job.overlay);
  if (parsed.help) {
    const std::string usage = job.help.empty() ? fmt::format("trireme {}\n\n", job.subcommand) : job.help;
    fmt::print("{}{}", usage, config::help_text(job.help_groups, job.overlay.section));
    return 0;
  }
  const config::Settings& settings = parsed.settings;
  job.owns_out_dir ? train::place_run(parsed) : keep_records_apart(job.subcommand, parsed.settings);
  if (!job.uses_gpus) refuse_gpus(settings, job.subcommand);
  take_over_hosts(parsed);
  launch::RankEnvironment environment = launch::rank_environment();
  // A command's own number of ranks is for those that it starts itself.
  if (!parsed.given("devices") && (environment.launched || environment.unstarted_tasks > 0))
    parsed.settings.devices.reset();
  refuse_a_world_of_one(environment, settings, job);
  const bool is_rank = environment.launched && !is_launcher_of_a_node(environment, settings);
  if (environment.launched && !is_rank && settings.num_nodes == 1) parsed.settings.num_nodes = environment.num_nodes;
  refuse_elastic(settings, environment);
  is_rank ? take_over_ranks(environment, parsed.settings) : choose_ranks(parsed.settings);
  const auto elastic = is_rank ? std::nullopt : elastic_of(settings);
  const bool is_for_others = !is_rank && (settings.launch.print || settings.launch.hosts || settings.launch.hostfile);
  if (!is_for_others && (!is_rank || environment.global_rank == 0)) config::validate_places(settings);
  OutDirLock lock;
  if (job.owns_out_dir && !is_for_others)
    lock.take(job.subcommand, settings, environment, is_rank, elastic.has_value());
  // A restart goes on from what the attempts before it have saved, wherever the first one began.
  if (environment.restart_count > 0)
    if (const auto saved = train::find_saved_by_this_run(settings.out_dir, environment))
      parsed.settings.resume = {.from = config::Resume::From::folder, .folder = saved->string()};
  if (job.owns_out_dir && (is_rank || !settings.launch.print)) train::take_over_run(parsed);
  if (elastic) fit_num_nodes(parsed.settings, *elastic);
  if (job.complete) job.complete(parsed);
  // More than may ever start here is refused before anything else is looked at.
  const auto require_room = [&](int64_t planned_bytes) {
    launch::require_room({.num_ranks = static_cast<int>(settings.devices.value_or(1)), .planned_bytes = planned_bytes},
                         settings.launch.oversubscribe);
  };
  const bool starts_here = !is_rank && !is_for_others;
  if (starts_here) require_room(0);
  int64_t planned_bytes = 0;
  const auto check_job = [&] {
    if (job.plan) planned_bytes = job.plan(settings);
    if (starts_here) require_room(planned_bytes);
    job.check(settings);
  };
  config::validate(settings, config::world_size(settings));
  config::validate_backend(settings, config::world_size(settings));
  const bool launches = !is_rank && (config::world_size(settings) > 1 || elastic);
  // Of settings alone: where a pod runs lie other files than here, and whoever prints wants none made.
  if (settings.launch.print && !is_rank) return print_job(job.subcommand, parsed, arguments);
  if (!is_rank && (settings.launch.hosts || settings.launch.hostfile))
    return start_on_hosts(
        settings, [&](const HostPlace& place) { return words_on_host(job.subcommand, settings, arguments, place); },
        check_job);
  if (launches) refuse_mpi_without_mpirun(job, settings);
  if (launches && !settings.launch.rdzv_endpoint) check_nodes(settings, environment);
  if (settings.accelerator == config::Accelerator::cuda)
    base::require_gpus(is_rank ? environment.local_rank + 1 : static_cast<int>(settings.devices.value_or(1)));
  lock.look(settings);
  if (!is_rank || environment.global_rank == 0) check_job();
  lock.begin(settings);
  if (job.saves_when_stopped) launch::install_stop_signal();
  if (!is_rank && launch::stop_requested()) {  // a rank stops where the others do
    base::info("stopped before anything began ({})", launch::name_of_stop(launch::stop_signal()));
    return launch::kStoppedEarly;
  }
  if (launches) return launch(job, settings, environment, arguments, elastic, lock, planned_bytes);
  if (environment.launched && environment.launcher != "trireme" && environment.global_rank == 0)
    base::info("{}", found(environment));
  std::optional<launch::MeetingFile> meeting;
  if (environment.has_no_token() && settings.comm.backend != config::Backend::mpi)
    meeting.emplace(environment, meeting_options(settings));
  return job.run(settings, environment);
}

}  // namespace trireme::cli
