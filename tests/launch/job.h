// A launcher under test: a process of its own, so that it can be killed, with its output in files.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace trireme::launch::testing {

class Job {
 public:
  struct Options {
    std::vector<std::string> arguments;                ///< of launch_rank
    std::map<std::string, std::string> environment = {};  ///< set besides the test's own
    int stdout_fd = -1;                                ///< instead of the file
    int extra_fd = -1;                                 ///< leaked into the launcher on purpose
    std::string cgroup_procs = {};  ///< the launcher moves into this control group first
  };

  explicit Job(Options options);
  explicit Job(std::vector<std::string> arguments) : Job(Options{.arguments = std::move(arguments)}) {}
  ~Job();  ///< kills what is left
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  /// The launcher's exit code, 128 + signal if one killed it, -1 if it did not end in time.
  int wait(std::chrono::milliseconds timeout = std::chrono::seconds(15));

  void signal(int number) const;

  /// Waits until stdout and stderr together hold `text` `times` times; false when that takes too long.
  bool wait_for(const std::string& text, int times = 1) const;

  /// Makes the file for which ranks wait by the action "await".
  void make(const std::string& name) const;

  /// Waits until `condition` holds.
  template <typename Condition>
  static bool eventually(Condition condition, std::chrono::milliseconds timeout = std::chrono::seconds(10)) {
    const auto end = std::chrono::steady_clock::now() + timeout;
    while (!condition()) {
      if (std::chrono::steady_clock::now() > end) return false;
      pause_briefly();
    }
    return true;
  }

  std::string out() const;
  std::string err() const;
  std::string log(int rank) const;
  std::filesystem::path out_dir() const { return folder_ / "run"; }
  pid_t pid() const { return pid_; }

  /// Running processes that inherited this job's mark: the launcher itself, ranks, grandchildren, the guardian.
  std::vector<pid_t> processes() const;
  /// The guardian's id once there is one besides `other`; 0 when that takes too long.
  pid_t await_guardian(pid_t other = 0) const;

 private:
  static void pause_briefly();
  std::filesystem::path folder_;
  std::string mark_;
  pid_t pid_ = -1;
  int code_ = -1;
};

/// Sends `number` to one process. Throws for 0, 1 and negative ids, with which kill(2) means a group or everybody.
void send_signal(pid_t pid, int number);

/// How often `text` occurs in `in`.
int count(const std::string& in, const std::string& text);

}  // namespace trireme::launch::testing
