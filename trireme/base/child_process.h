// A program of the user that this process starts, writes to, and may read from.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "trireme/base/files.h"

namespace trireme::base {

/// The program leads a process group of its own. The group is killed by end(). However this process ends, SIGKILL
/// included, a shell that waits in the group kills it; where there is no /bin/sh, the kernel kills the program alone.
/// What has left the group stays.
class ChildProcess {
 public:
  struct Options {
    std::string file;  ///< path of the program
    std::vector<std::string> words;  ///< its arguments, the first one its name
    std::vector<std::string> variables = {};  ///< of its environment beside this process's: "NAME=value"
    int64_t memory_limit = 0;  ///< bytes of its address space; 0: none
    bool is_read = false;  ///< output() is its standard output; otherwise it writes to this process's
  };
  /// Status of waitpid() if the file could not be run.
  static constexpr int kCannotStart = 127 << 8;

  /// Errors    Error: no descriptor or no process is left
  explicit ChildProcess(const Options& options);
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;
  ~ChildProcess() { end(std::chrono::milliseconds(0)); }

  /// A socket that does not block; use send() with MSG_NOSIGNAL.
  int input() const { return input_.get(); }
  int output() const { return output_.get(); }
  /// Whether it has ended; `status()` is then that of waitpid().
  bool has_ended();
  int status() const { return status_; }
  /// Closes its input, waits at most `grace` for its end, and kills what is left of its group.
  void end(std::chrono::milliseconds grace);

 private:
  void start_keeper();

  FileDescriptor input_, output_;
  FileDescriptor life_;  ///< of this process: the keeper reads its other end
  pid_t pid_ = -1, keeper_ = -1;
  int status_ = 0;
  bool ended_ = false;
};

/// Kills the groups of all programs that have not ended, for handlers of signals that end this process at once.
/// Safe in signal handlers.
void kill_child_groups() noexcept;

/// Waits for the end of a child, through signals that interrupt the wait. Returns its status, as waitpid() tells it.
int wait_for_end(pid_t child);

/// "ended with exit code 3", "was ended by signal 9".
std::string text_of_ending(int status);

}  // namespace trireme::base
