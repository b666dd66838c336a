// A small process that outlives the launcher by a moment and ends whatever the launcher left behind.
//
// It holds the read end of a pipe whose only write end is the launcher's. However the launcher ends, kill -9
// included, the pipe ends too, and the guardian kills every process that carries the job's marker in its
// environment, belongs to a rank's process group or descends from one of those. Ranks also ask the kernel to die
// with the launcher (PR_SET_PDEATHSIG), so either net alone holds them; grandchildren hang on this one. While the
// launcher lives it is itself the subreaper that collects them. Not caught, and only after a kill -9 of the
// launcher: a grandchild that cleared its environment and also left its process group and its parents.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace trireme::launch {

class Guardian {
 public:
  /// Forks the guardian. `marker` is "NAME=value" as it stands in the ranks' environment.
  ///
  /// Errors    Error if no process or pipe can be made
  explicit Guardian(std::string marker);
  ~Guardian();  ///< ends it quietly: call when no process of the job is left
  Guardian(const Guardian&) = delete;
  Guardian& operator=(const Guardian&) = delete;

  /// Tells it of a rank, whose process group has the same id.
  void watch(pid_t rank_pid);

  /// Tells it, once the rank's process group is empty, not to kill that: its id may be given to somebody else then.
  void ended(pid_t rank_pid) { ended_.push_back(rank_pid); }
  void forget_empty_groups();

  /// Starts a new one, with the same ranks, after somebody killed the old.
  void restart();

  pid_t pid() const { return pid_; }
  int pidfd() const { return pidfd_; }

 private:
  void start();
  void stop();

  std::string marker_;
  std::vector<pid_t> watched_;
  std::vector<pid_t> ended_;  // of them, ranks that the launcher has reaped
  pid_t pid_ = -1;
  int pidfd_ = -1;
  int write_end_ = -1;
};

}  // namespace trireme::launch
