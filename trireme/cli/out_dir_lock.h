// The lock on out_dir, so that no other job works in it (launch/machines/folder_lock.h). One process of a job takes it:
// the launcher of rank 0, which hands it on to its ranks; or rank 0 itself, if another launcher started it or the job
// is elastic. Whoever holds the lock checks whether out_dir is empty, holds the run to be resumed, or another run.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "trireme/launch/identity/environment.h"
#include "trireme/launch/machines/folder_lock.h"
#include "trireme/settings/settings.h"

namespace trireme::cli {

/// For commands that write a checkpoint: refuses to write over a running job's folder, or a step folder into it.
///
/// Errors    UsageError naming the job
void refuse_in_a_running_jobs_folder(const std::filesystem::path& written);

/// For commands that write weights alone: refuses to write them as a step of a run. They would count as its newest
/// checkpoint by their name, and no run can go on from them.
///
/// Errors    UsageError naming the run's folder
void refuse_weights_among_a_runs_steps(const std::filesystem::path& written);

class OutDirLock {
 public:
  /// Returns when a process of this job holds the lock on out_dir.
  ///
  /// Errors    UsageError naming the other job, or a folder in which nothing can be written; Stopped
  void take(const std::string& subcommand, const Settings& settings, const launch::RankEnvironment& environment,
            bool is_rank, bool is_elastic);

  /// Checks what out_dir holds, except after a restart.
  ///
  /// Errors    UsageError: another run's checkpoints (train/out_dir.h)
  void look(const Settings& settings) const;

  /// Call it when all settings have been accepted. With overwrite, removes an earlier run.
  void begin(const Settings& settings);

  /// The lock's open file, for the ranks that this process starts; -1: it holds no lock.
  int descriptor() const { return lock_ ? lock_->descriptor() : -1; }

 private:
  std::optional<launch::FolderLock> lock_;
  bool is_first_start_ = false;
};

}  // namespace trireme::cli
