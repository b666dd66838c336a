// Supervises one job's ranks from start to end: one thread with a loop over all events (a rank ends, reports or prints;
// a signal arrives; the guardian dies; a deadline passes).
#pragma once

#include <signal.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/cgroup.h"
#include "trireme/base/files.h"
#include "trireme/launch/hang/hang.h"
#include "trireme/launch/identity/rank_setup.h"
#include "trireme/launch/supervise/guardian.h"
#include "trireme/launch/supervise/headline.h"
#include "trireme/launch/supervise/launch.h"
#include "trireme/launch/supervise/output.h"
#include "trireme/launch/supervise/processes.h"

namespace trireme::launch {

/// Changes the launcher process for the duration of one job: signals arrive on a descriptor, orphans of the job become
/// the launcher's children, descriptors 0 to 2 are open.
class ProcessState {
 public:
  ProcessState();
  ~ProcessState();

  int signal_fd() const { return signal_fd_.get(); }
  const sigset_t& mask_before() const { return mask_before_; }
  /// Whether `pid` was a child of this process before the job.
  bool had_child(pid_t pid) const;

 private:
  sigset_t mask_before_{};
  base::FileDescriptor signal_fd_;
  int was_subreaper_ = 0;
  std::vector<pid_t> children_before_;
};

class Supervisor {
 public:
  /// `restart_count` attempts were made before.
  explicit Supervisor(const LaunchOptions& options, int restart_count = 0);
  ~Supervisor();

  /// A failure in a few words. Equal words mean the same failure at the same step.
  struct Failure {
    std::string who;  ///< "rank 3"; empty: no rank in particular
    std::string words;
    bool is_consequence = false;  ///< of a failure on another machine
    bool is_known = true;  ///< a step or a reason is: else equal words need not mean the same failure
  };

  /// Starts the ranks, waits for all of them, reports, and returns the attempt's exit code. `failure` is set if another
  /// attempt may help.
  int run(std::optional<Failure>& failure);

  /// After run(): the errno of standard output if it lost what the ranks printed there; 0: it has all of it.
  int lost_output() const { return out_.lost(); }

 private:
  using Clock = std::chrono::steady_clock;

  struct Rank {
    RankOutcome outcome;
    base::FileDescriptor pidfd, report_fd;
    std::vector<RankStream> streams;
    RankLog log;
    std::string tail;  // the end of its output, for the report
    std::chrono::steady_clock::time_point started_at;
    bool loaded = false, begun = false;  // as reported
    bool alive() const { return outcome.pid > 0 && !outcome.wait_status; }
  };

  void start_rank(int rank);
  void start_more_ranks();
  bool starts_more() const;
  int num_loading() const;
  bool all_begun() const;
  bool any_alive() const;
  bool is_alone() const { return options_.nodes.count == 1 && !options_.rendezvous; }  ///< no other machines

  void wait_for_event();
  int poll_timeout_ms() const;
  void read_signals();
  void ask_to_stop(int number);
  bool read_stream(Rank& rank, RankStream& stream);
  void keep(Rank& rank, std::string_view text);
  void read_reports(Rank& rank);
  void reap();
  void reap_orphans_behind();
  bool is_known(pid_t pid) const;
  void on_end(Rank& rank, int wait_status, std::int64_t peak_bytes);
  void act_on_failure();
  bool is_unbegun() const;
  bool ends_unbegun() const;
  void end_what_has_not_begun();
  void look_for_hang();
  void keep_verdict() const;
  std::string describe_silent_ranks() const;

  void suspend_with_ranks();
  void kill_ranks();
  void abandon_stuck_ranks();
  void kill_orphans();
  void name_what_stays(std::span<const ProcessEntry> table);
  void drain();
  void say_refusals(std::span<const RankOutcome> outcomes);
  int report(std::optional<Failure>& failure);

  void say(const std::string& text);
  int first_rank() const { return options_.nodes.rank * options_.num_ranks; }  ///< of this machine

  const LaunchOptions& options_;
  const int restart_count_;
  const Clock::time_point started_ = Clock::now();
  const std::string launcher_id_ = new_job_id();
  ProcessState process_;
  Guardian guardian_;
  MeetingPoint meeting_point_;
  base::FileDescriptor token_;  // empty: the ranks read the job's token from a file
  CoreShare share_;
  Program program_;
  base::Cgroup cgroup_ = base::Cgroup::of_this_process();
  std::optional<std::uint64_t> oom_kills_before_ = cgroup_.oom_kills();
  Screen out_{1}, err_{2};
  std::vector<Rank> ranks_;

  int num_started_ = 0;
  int stop_signal_ = 0;  // the user's signal; 0: none yet
  Clock::time_point stop_asked_at_;
  bool kill_requested_ = false;  // by a second signal
  bool ended_unbegun_ = false;  // ended by the first signal, because there was nothing to save
  bool some_failure_ = false;
  bool looked_for_hang_ = false;
  std::optional<HangVerdict> hang_;
  std::string silent_;  // lines about ranks that have not given up, if there is no verdict
  bool ended_elsewhere_ = false;
  std::optional<Clock::time_point> stop_at_;  // after a failure: when to send SIGTERM
  std::optional<Clock::time_point> kill_at_;  // when to send SIGKILL
  std::chrono::milliseconds grace_{0};  // between SIGTERM and SIGKILL
  std::optional<Clock::time_point> killed_at_;
  Clock::time_point looked_behind_;  // when reap_orphans_behind() last listed processes
  bool term_sent_ = false, kill_sent_ = false, wait_told_ = false;
  std::vector<pid_t> stay_;  // processes that were killed and named, but have not ended
  int guardian_restarts_ = 0;
};

}  // namespace trireme::launch
