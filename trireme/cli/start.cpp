#include "trireme/cli/start.h"

#include <fmt/format.h>

#include <cstdlib>
#include <exception>
#include <optional>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/base/shared_library.h"
#include "trireme/cli/out_dir_lock.h"
#include "trireme/cli/read_for_ranks.h"
#include "trireme/cli/read_settings.h"
#include "trireme/cli/start_ranks.h"
#include "trireme/launch/identity/other_variables.h"
#include "trireme/launch/machines/elastic.h"
#include "trireme/launch/machines/local_ranks.h"
#include "trireme/launch/machines/meeting_file.h"
#include "trireme/launch/machines/nodes.h"
#include "trireme/launch/machines/print_job.h"
#include "trireme/launch/machines/room.h"
#include "trireme/launch/machines/ssh_hosts.h"
#include "trireme/launch/supervise/launch.h"
#include "trireme/launch/supervise/stop_signal.h"
#include "trireme/observe/loggers.h"
#include "trireme/settings/validate.h"
#include "trireme/train/out_dir.h"
#include "trireme/train/resume_settings.h"
#include "trireme/train/setup.h"

namespace trireme::cli {
namespace {

int print_help(const Job& job) {
  const std::string usage = job.help.empty() ? fmt::format("trireme {}\n\n", job.subcommand) : job.help;
  fmt::print("{}{}", usage, settings_help(job.help_groups, job.overlay));
  if (!job.help_groups.empty())
    fmt::print("\nOther settings, with --name value: {}.\ntrireme help NAME explains one.\n", job.also_takes);
  return 0;
}

// One call of start(). Its functions are called in the order below; each uses the results of those above it.
class Start {
 public:
  Start(const Job& job, Arguments arguments, ParsedSettings parsed)
      : job_(job), arguments_(arguments), parsed_(std::move(parsed)), settings_(parsed_.settings) {}

  int run() {
    environment_ = launch::rank_environment();
    is_rank_ = environment_.launched;  // as far as is known
    look_alone([this] { place(), find_out_who_this_is(); });
    if (settings_.dry_run) return show_plan();
    look_alone([this] {
      take_out_dir();
      complete_settings();
      if (starts_here()) require_room();
      if (is_for_others_ || launches() || world_size(settings_) > 1) require_files_for_all(parsed_);
      if (!is_rank_) say_what_was_read(parsed_.accounts);
      validate(parsed_);
    });
    // Only settings are checked: the job will see other files than this machine, and printing must create no files.
    if (settings_.launch.print && !is_rank_)
      return launch::print_job(job_.subcommand, job_.when_stopped(settings_), parsed_, arguments_);
    if (is_for_others_) return start_elsewhere();
    look_alone([this] {
      if (is_first()) plan_job();  // what no GPU computes is told before one is looked for
      check_machine();
      lock_.look(settings_);
      if (is_first()) job_.check(settings_);
      lock_.begin(settings_);
    });
    if (begins_job()) launch::tell_other_variables(settings_);
    if (job_.when_stopped(settings_) != launch::WhenStopped::dies) launch::install_stop_signal();
    if (!is_rank_ && launch::stop_requested()) {  // a rank stops together with the others
      base::info("stopped before anything began ({})", launch::name_of_stop(launch::stop_signal()));
      return launch::kStoppedEarly;
    }
    return launches() ? start_ranks({.job = job_,
                                     .parsed = parsed_,
                                     .arguments = arguments_,
                                     .elastic = elastic_,
                                     .lock_fd = lock_.descriptor(),
                                     .planned_bytes = planned_bytes_},
                                    environment_)
                      : run_rank();
  }

 private:
  bool meets_others_by_hand() const {
    return is_rank_ && !settings_.dry_run && launch::are_by_hand(environment_) &&
           settings_.comm.backend != comm::Backend::mpi;
  }

  // What a rank looks at alone: the others would wait for it if it ended there.
  template <typename Look>
  void look_alone(const Look& look) try {
    look();
  } catch (const launch::Stopped&) {
    throw;
  } catch (const std::exception& why) {
    if (meets_others_by_hand()) launch::tell_others(environment_, launch::meeting_options(settings_), why);
    throw;
  }

  int show_plan() {
    train::take_over_run(parsed_);
    if (job_.complete) job_.complete(parsed_);
    if (!is_first()) return 0;
    say_what_was_read(parsed_.accounts);
    validate(parsed_);
    job_.show_plan(settings_);
    return 0;
  }

  void place() {
    settle_out_dir(job_, parsed_);
    if (!job_.uses_gpus) refuse_gpus(settings_, job_.subcommand);
    launch::take_over_hosts(parsed_);
    launch::take_over_other_variables(parsed_, std::getenv);
  }

  void find_out_who_this_is() {
    // A command's default number of ranks only counts for ranks that it starts itself.
    if (!parsed_.given("devices") && (environment_.launched || environment_.unstarted_tasks > 0))
      settings_.devices.reset();
    launch::take_over_first_rank(parsed_, environment_);
    refuse_a_world_of_one(environment_, settings_, job_.subcommand, job_.saves_when_stopped);
    is_rank_ = environment_.launched && !launch::is_launcher_of_a_node(environment_, settings_);
    if (environment_.launched && !is_rank_ && settings_.num_nodes == 1) settings_.num_nodes = environment_.num_nodes;
    launch::refuse_elastic(settings_, environment_);
    if (is_rank_) launch::refuse_restarts(parsed_, environment_);
    is_rank_ ? take_over_ranks(environment_, settings_) : choose_ranks(settings_);
    if (!is_rank_) elastic_ = launch::elastic_of(settings_);
    const launch::LaunchSettings& l = settings_.launch;
    is_for_others_ = !is_rank_ && (l.print || l.hosts || l.hostfile);
  }

  void take_out_dir() {
    if (is_for_others_) return;
    if (is_first()) validate_places(settings_);
    if (job_.owns_out_dir) lock_.take(job_.subcommand, settings_, environment_, is_rank_, elastic_.has_value());
  }

  void complete_settings() {
    // A restart resumes from what earlier attempts saved, whatever the first one started from.
    if (environment_.restart_count > 0)
      if (const auto saved = train::find_saved_by_this_run(settings_.out_dir, environment_))
        settings_.resume = {train::Resume::From::folder, saved->string(), /*named=*/settings_.resume.folder};
    if (job_.owns_out_dir && (is_rank_ || !settings_.launch.print)) train::take_over_run(parsed_);
    if (elastic_) launch::fit_num_nodes(settings_, *elastic_);
    if (job_.complete) job_.complete(parsed_);
  }

  bool is_first() const { return !is_rank_ || environment_.global_rank == 0; }
  // The first process of a job on its machine: the launcher, or another launcher's rank 0.
  bool begins_job() const { return !is_rank_ || (environment_.launcher != "trireme" && environment_.global_rank == 0); }
  bool starts_here() const { return !is_rank_ && !is_for_others_; }
  bool launches() const { return !is_rank_ && (world_size(settings_) > 1 || elastic_ || needs_launcher()); }
  // Even of one rank.
  bool needs_launcher() const {
    return job_.owns_out_dir && (settings_.launch.log_link || settings_.launch.max_restarts > 0);
  }

  // Called early to refuse too many ranks, and again when memory is planned.
  void require_room() const {
    launch::require_room(
        {.num_ranks = static_cast<int>(settings_.devices.value_or(1)), .planned_bytes = planned_bytes_},
        settings_.launch.oversubscribe);
  }

  void plan_job() {
    if (job_.plan) planned_bytes_ = job_.plan(settings_);
    if (starts_here()) require_room();
    if (starts_here() && job_.plan) train::check_offload_disk(settings_);
  }

  int start_elsewhere() {
    return launch::start_on_hosts(
        settings_, job_.saves_when_stopped,
        [&](const launch::HostPlace& where) {
          return launch::words_on_host(job_.subcommand, settings_, arguments_, where);
        },
        [this] { plan_job(), job_.check(settings_); });
  }

  void check_machine() const {
    if (launches()) refuse_mpi_without_mpirun(settings_, job_.subcommand);
    if (!is_rank_ && !settings_.launch.rdzv_endpoint) launch::check_nodes(settings_, environment_);
    if (settings_.accelerator == engine::Accelerator::cuda)
      base::require_gpus(is_rank_ ? environment_.local_rank + 1 : static_cast<int>(settings_.devices.value_or(1)));
    const std::optional<int64_t> port = job_.owns_out_dir ? settings_.train.prometheus_port : std::nullopt;
    if (port && begins_job() && !elastic_ && launch::is_first_node(settings_, environment_))  // where rank 0 will be
      observe::check_prometheus_port(settings_.train.prometheus_address, static_cast<uint16_t>(*port));
  }

  int run_rank() {
    std::optional<launch::MeetingFile> meeting;
    if (environment_.has_no_token() && settings_.comm.backend != comm::Backend::mpi)
      meeting.emplace(environment_, launch::meeting_options(settings_));
    if (environment_.local_is_unknown || meets_others_by_hand()) {
      launch::find_local_ranks(environment_, settings_);
      share_threads(environment_, settings_);
    }
    if (environment_.launched && environment_.launcher != "trireme" && environment_.global_rank == 0)
      base::info("{}", describe_launcher(environment_));
    return job_.run(settings_, environment_);
  }

  const Job& job_;
  Arguments arguments_;
  ParsedSettings parsed_;
  Settings& settings_;  ///< parsed_'s
  launch::RankEnvironment environment_;
  bool is_rank_ = false;  ///< started by a launcher; else this process starts ranks, or is the only rank
  bool is_for_others_ = false;  ///< prints a job file, or starts ranks on other hosts only
  std::optional<launch::Elastic> elastic_;
  OutDirLock lock_;
  int64_t planned_bytes_ = 0;  ///< of all ranks on this machine
};

}  // namespace

void leave_out_optimizer(Settings& settings) { settings.optimizer = {.name = optim::Rule::sgd}; }

void refuse_gpus(const Settings& settings, const std::string& subcommand) {
  if (settings.accelerator == engine::Accelerator::cuda)
    throw UsageError(
        fmt::format("error: trireme {} computes on the CPU only; leave out --accelerator cuda, which only commands "
                    "that train take",
                    subcommand));
}

int start(const Job& job, Arguments arguments) {
  ParsedSettings parsed = read_for_ranks(job, arguments);
  return parsed.help ? print_help(job) : Start(job, arguments, std::move(parsed)).run();
}

}  // namespace trireme::cli
