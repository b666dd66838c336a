#include "trireme/cli/out_dir_lock.h"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/checkpoint/folders.h"
#include "trireme/checkpoint/manifest.h"
#include "trireme/launch/machines/nodes.h"
#include "trireme/settings/validate.h"
#include "trireme/train/out_dir.h"

namespace trireme::cli {
namespace {

// How long to wait until rank 0 of the previous attempt has ended.
constexpr std::chrono::milliseconds kLastAttempt = std::chrono::seconds(30);

}  // namespace

void refuse_in_a_running_jobs_folder(const std::filesystem::path& written) {
  const auto named = written.has_filename() ? written : written.parent_path();
  launch::refuse_while_in_use(named);
  if (named.filename().string().starts_with("step-"))
    launch::refuse_while_in_use(named.has_parent_path() ? named.parent_path() : ".");
}

void refuse_weights_among_a_runs_steps(const std::filesystem::path& written) {
  if (!checkpoint::step_of(written)) return;
  const std::filesystem::path run = base::parent_of(written.has_filename() ? written : written.parent_path());
  for (const checkpoint::StepFolder& step : checkpoint::list_step_folders(run))
    if (base::is_file(step.path / checkpoint::kStateName))
      throw UsageError(
          fmt::format("error: {} would be a step of the run in {}, and weights alone are none; give the folder another "
                      "name, or another place",
                      written.string(), run.string()));
}

void OutDirLock::take(const std::string& subcommand, const Settings& settings,
                      const launch::RankEnvironment& environment, bool is_rank, bool is_elastic) {
  if (launch::inherits_folder_lock()) return;
  const bool takes_it =
      is_rank ? environment.global_rank == 0 : !is_elastic && launch::is_first_node(settings, environment);
  if (!takes_it) {
    if (environment.launched && environment.launcher != "trireme")
      launch::wait_for_rank_0_to_lock(settings.out_dir, environment.job_id, settings.launch.join_timeout);
    return;
  }
  validate_out_dir(settings.out_dir);
  train::refuse_models_folder(settings.out_dir);
  train::refuse_folder_of_data(settings);
  const bool is_restart = environment.restart_count > 0;
  lock_.emplace(launch::LockOptions{
      .folder = settings.out_dir,
      .command = "trireme " + subcommand,
      .job_id = environment.job_id,
      .waits_for_its_own = settings.resume.from == train::Resume::From::newest_if_any,
      .waits_for_anybody = is_restart,
      .patience = is_restart ? std::min(kLastAttempt, settings.launch.join_timeout) : settings.launch.join_timeout});
  is_first_start_ = !is_restart;
}

void OutDirLock::look(const Settings& settings) const {
  if (lock_ && is_first_start_) train::refuse_another_runs_folder(settings);
}

void OutDirLock::begin(const Settings& settings) {
  if (!lock_) return;
  lock_->begin();
  if (is_first_start_) train::remove_earlier_run(settings);
}

}  // namespace trireme::cli
