// Who of a job's processes takes its out_dir, so that no other job works in it (launch/folder_lock.h): the launcher
// that starts rank 0, which hands the lock on to its ranks; rank 0 itself where another launcher started it, or where
// machines come and go. Under the lock out_dir is looked at: it holds nothing, the run that this one goes on with, or
// another one.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "trireme/config/settings.h"
#include "trireme/launch/environment.h"
#include "trireme/launch/folder_lock.h"

namespace trireme::cli {

/// For commands that write a checkpoint: none replaces a running job's folder, or appears as a step among its own.
///
/// Errors    UsageError naming the job
void refuse_in_a_running_jobs_folder(const std::filesystem::path& written);

class OutDirLock {
 public:
  /// Returns when this process' job has out_dir, whoever of its processes took it.
  ///
  /// Errors    UsageError naming the other job; Stopped
  void take(const std::string& subcommand, const config::Settings& settings, const launch::RankEnvironment& environment,
            bool is_rank, bool is_elastic);

  /// Looks at what lies there, where this is no restart.
  ///
  /// Errors    UsageError: another run's checkpoints (train/out_dir.h)
  void look(const config::Settings& settings) const;

  /// All settings have been accepted: an earlier run goes, where overwrite says so.
  void begin(const config::Settings& settings);

  /// For the ranks that this process starts; -1: it has taken none.
  int descriptor() const { return lock_ ? lock_->descriptor() : -1; }

 private:
  std::optional<launch::FolderLock> lock_;
  bool is_first_start_ = false;
};

}  // namespace trireme::cli
