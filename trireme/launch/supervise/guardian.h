// A small process that outlives the launcher by a moment and kills the processes that the launcher left behind.
//
// It holds the read end of a pipe whose only write end is the launcher's. However the launcher ends, kill -9 included,
// the pipe ends too. Then the guardian kills every process that has the job's marker in its environment, is in a rank's
// process group, or descends from one of those, and removes what they left unfinished. Ranks also ask the kernel to
// kill them when the launcher dies (PR_SET_PDEATHSIG); grandchildren rely on the guardian. While the launcher lives, it
// is the subreaper and ends grandchildren itself. One case is not covered, and only after a kill -9 of the launcher: a
// grandchild that has cleared its environment and has also left its process group and its parents.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "trireme/base/files.h"

namespace trireme::launch {

class Guardian {
 public:
  /// Forks the guardian. `marker` is "NAME=value" as it stands in the ranks' environment. The guardian calls `at_end`
  /// (if any) after the launcher has died and all processes of the job have ended; exceptions end it early.
  /// Errors    Error if no process or pipe can be made
  explicit Guardian(std::string marker, std::function<void()> at_end = {});
  ~Guardian();  ///< ends the guardian process, which kills nothing then

  /// Adds a rank, whose process group has the same id.
  void watch(pid_t rank_pid);

  /// Call it for a rank that has been reaped. Once the rank's process group is empty, forget_empty_groups() removes the
  /// group, because the kernel may give its id to another process.
  void ended(pid_t rank_pid) { ended_.push_back(rank_pid); }
  void forget_empty_groups();

  /// Starts a new guardian with the same ranks, after the old one was killed.
  void restart();
  /// Ends it. What a launcher leaves that dies after this is not cleaned up.
  void stop();

  pid_t pid() const { return pid_; }
  int pidfd() const { return pidfd_.get(); }

 private:
  void start();
  void announce(pid_t group) const;

  std::string marker_;
  std::function<void()> at_end_;
  std::vector<pid_t> watched_;
  std::vector<pid_t> ended_;  // ranks among them that the launcher has reaped
  pid_t pid_ = -1;
  base::FileDescriptor pidfd_, write_end_;
};

}  // namespace trireme::launch
