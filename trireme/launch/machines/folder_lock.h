// Keeps a second job out of an out_dir: a lock on the file out_dir/.lock, whose text names the job that holds it.
//
// Two jobs in one folder would delete each other's checkpoints and overwrite each other's metrics. The lock is the
// kernel's (flock). It ends with the processes that hold it, however they end, and it works between machines if the
// file system has such locks (NFS, Lustre with -o flock). The lock belongs to the open file. The launcher takes it and
// its ranks inherit the file, so the lock lasts as long as any of them. Without Trireme's launcher rank 0 takes it. On
// a file system without locks the job prints a warning and goes on.
//
// The empty file stays when the job has ended. If it were removed, two jobs could each lock a file of their own.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/files.h"
#include "trireme/launch/identity/job_name.h"

namespace trireme::launch {

inline constexpr const char* kLockName = ".lock";

/// The holder of a folder, according to the lock's file.
struct LockHolder {
  JobName name;
  std::string job_id;  ///< RankEnvironment::job_id; empty without another launcher
  std::string command;  ///< "trireme pretrain"
  std::string host;
  std::string machine;  ///< base::this_host()
  int64_t pid = 0;
  uint64_t start_ticks = 0;  ///< of that process
  std::string started;  ///< "2026-03-01 09:30:12 UTC"

  /// "Slurm job 4711 (austen), trireme pretrain, process 812 on node1 since 2026-03-01 09:30:12 UTC"
  std::string text() const;
};

struct LockOptions {
  std::filesystem::path folder;  ///< created if it is missing
  std::string command;
  std::string job_id = {};
  bool waits_for_its_own = false;  ///< waits until an earlier start of the same job has ended
  bool waits_for_anybody = false;  ///< waits for any holder: at a restart, the earlier rank may still be ending
  std::chrono::milliseconds patience = std::chrono::minutes(10);  ///< the longest wait
};

class FolderLock {
 public:
  /// Takes the lock. A wait is reported after a second and then twice a minute.
  /// Errors    UsageError naming the other job, if this job does not wait for it or has waited too long; FileError if
  ///           the folder or the file cannot be created; Stopped if a stop is requested meanwhile
  explicit FolderLock(const LockOptions& options);
  /// Removes the folder if begin() was not called, the folder was created for the lock, and it holds nothing else.
  ~FolderLock();

  /// Call it when the job has begun: then the folder stays.
  void begin() { made_.clear(); }
  /// The open file, for the ranks that a launcher starts (TRIREME_LOCK_FD).
  int descriptor() const { return file_.get(); }

 private:
  bool take(const LockOptions& options);
  void make_folder(const std::filesystem::path& folder);

  std::filesystem::path path_;
  base::FileDescriptor file_;
  std::vector<std::filesystem::path> made_;  // folders, outermost first
};

/// Whether this process has inherited a lock. Its own children do not inherit it.
bool inherits_folder_lock();

/// The holder that the lock's file in `folder` names; empty if the file is missing or empty.
std::optional<LockHolder> lock_holder(const std::filesystem::path& folder);

/// Waits until the job `job_id` holds `folder`: its other ranks must touch nothing there before rank 0 has the lock.
/// Returns at once if the job has no id.
/// Errors    Error after `patience`; Stopped
void wait_for_rank_0_to_lock(const std::filesystem::path& folder, const std::string& job_id,
                             std::chrono::milliseconds patience);

/// For commands that rewrite checkpoints. Errors    UsageError if a job holds `folder`
void refuse_while_in_use(const std::filesystem::path& folder);

}  // namespace trireme::launch
