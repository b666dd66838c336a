// One job at a time in an out_dir: a lock on out_dir/.lock, which says who holds it.
//
// Two jobs in one folder would delete each other's checkpoints and write over each other's metrics. The lock is the
// kernel's (flock): it dies with the processes that hold it, however they end, and it works between machines where the
// file system has such locks (NFS, Lustre with -o flock). It belongs to the open file: the launcher takes it and hands
// it on to its ranks, so it lasts as long as any of them; without a launcher of ours rank 0 takes it. Where the file
// system knows no locks one line says so, and the job goes on.
//
// The file stays when the job has ended, empty: to remove a lock's file is to let two jobs hold two files.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/files.h"
#include "trireme/launch/job_name.h"

namespace trireme::launch {

inline constexpr const char* kLockName = ".lock";

/// Who holds a folder, as its file says.
struct LockHolder {
  JobName name;
  std::string job_id;   ///< RankEnvironment::job_id; empty where a launcher of ours, or nobody, started the ranks
  std::string command;  ///< "trireme pretrain"
  std::string host;
  std::string machine;  ///< base::this_host()
  int64_t pid = 0;
  uint64_t start_ticks = 0;  ///< of that process
  std::string started;       ///< "2026-03-01 09:30:12 UTC"

  /// "Slurm job 4711 (austen), trireme pretrain, process 812 on node1 since 2026-03-01 09:30:12 UTC"
  std::string text() const;
};

struct LockOptions {
  std::filesystem::path folder;  ///< made where it is missing
  std::string command;
  std::string job_id = {};
  bool waits_for_its_own = false;  ///< for an earlier start of a job of the same name, until that has ended
  bool waits_for_anybody = false;  ///< the ranks of this job are started again: the rank before this one is ending
  std::chrono::milliseconds patience = std::chrono::minutes(10);
};

class FolderLock {
 public:
  /// Takes the lock. Waiting is told at once and then twice a minute.
  ///
  /// Errors    UsageError naming the other job, where there is one and it is not waited for, or not any longer;
  ///           FileError where the folder or the file cannot be made; Stopped where a stop is requested meanwhile
  explicit FolderLock(const LockOptions& options);
  /// Where begin() was not called: the folder goes again, if it was made for the lock and holds nothing else.
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

  /// The job has begun: what it leaves in the folder stays.
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

/// Closes an inherited lock to this process' own children; false where this process has inherited none.
bool inherits_folder_lock();

/// What the file of `folder` says; nothing where it says nothing.
std::optional<LockHolder> lock_holder(const std::filesystem::path& folder);

/// Returns once `folder` is held by the job `job_id`: a rank that rank 0's launcher has started beside it touches
/// nothing there before. Returns at once where the job has no id.
///
/// Errors    Error after `patience`; Stopped
void wait_for_rank_0_to_lock(const std::filesystem::path& folder, const std::string& job_id,
                             std::chrono::milliseconds patience);

/// For commands that rewrite checkpoints beside a run.
///
/// Errors    UsageError where a job holds `folder`
void refuse_while_in_use(const std::filesystem::path& folder);

}  // namespace trireme::launch
