// Starts the ranks of a job on this host and supervises them to the end.
//
// A rank is the same program, started by exec; the environment tells it its rank (environment.h). Ranks meet at a port
// that the kernel chose: the launcher binds the socket and rank 0 inherits it, so two jobs never use the same port. The
// launcher itself needs no LibTorch. The user sees the output of rank 0 and, if a rank fails, the first failure; the
// rest is in <out_dir>/logs. However the launcher ends, no process of the job outlives it (guardian.h).
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace trireme::launch {

/// This machine among a job's machines. Each machine has its own launcher, for the ranks
/// [rank * num_ranks, (rank + 1) * num_ranks) of the job's count * num_ranks.
struct Nodes {
  int count = 1;
  int rank = 0;
  std::string master_address = "127.0.0.1";  ///< of machine 0, as the others reach it
  int master_port = 0;  ///< 0 on a single machine: chosen by the kernel
  int store_fd = -1;  ///< machine 0 of several: a socket that listens at master_port; launch_ranks takes it over
  std::string job_id = {};  ///< the same on all machines; empty on a single machine: a random id
  std::string token = {};  ///< the same on all machines; empty: ranks of several machines read a file (meeting_file.h)
  std::string run = {};  ///< the run's name, the same for all attempts; empty: there is one attempt
};

class Rendezvous;

inline constexpr int kUsageError = 2;  ///< exit code: settings or files were refused

struct LaunchOptions {
  int num_ranks = 1;  ///< on this machine
  std::string executable = {};  ///< path; empty: this program
  std::vector<std::string> arguments = {};  ///< without the program's name
  std::vector<std::pair<std::string, std::string>> environment = {};  ///< added to the launcher's own
  std::filesystem::path out_dir = {};  ///< logs go to <out_dir>/logs/rank<N>.log; empty: no logs, all ranks are shown
  std::string log_link = {};  ///< a link in out_dir to the log of rank 0; empty: none
  int threads_per_rank = 0;  ///< OMP_NUM_THREADS and MKL_NUM_THREADS; 0: the user's, else cores / ranks
  bool pin = true;  ///< whole cores for each rank; not done when ranks exceed cores
  std::chrono::milliseconds grace = std::chrono::seconds(3);  ///< after a failure: from SIGTERM to SIGKILL
  std::vector<int> log_ranks = {};  ///< further ranks whose output is shown, after "[rank N] "
  bool quiet = false;  ///< the launcher prints failures only
  std::function<std::string()> failure_hint = {};  ///< last line of a failure's report: how to continue
  /// Removes unfinished files that killed ranks have left. Called after each attempt, once no process of it is left: by
  /// the launcher, or by its guardian if the launcher was killed. Paths in it are absolute. Empty: nothing is removed
  std::function<void()> remove_leftovers = {};
  int answer_code = 0;  ///< a rank's exit code that is a result, not a failure; the job returns it too; 0: none
  int max_restarts = 0;  ///< how often all ranks restart after a failure; with a rendezvous its decider counts
  std::int64_t planned_bytes = 0;  ///< of the arenas of all these ranks together, if known (room.h)
  bool tells_begin = false;  ///< ranks call report_begun(): until all have, a stop ends them within two seconds
  std::chrono::milliseconds stop_patience = std::chrono::seconds(29);  ///< patience_when_stopped() of its ranks: told
  bool saves = true;  ///< asked to stop, ranks finish their step and save; else they only end, and messages say that
  bool oversubscribe = false;  ///< starts them even if this machine has no room for them
  Nodes nodes = {};
  int lock_fd = -1;  ///< the lock on out_dir (folder_lock.h), which ranks inherit; -1: none
  int end_fd = -1;  ///< readable when ranks of other machines have ended; then these ranks are stopped; -1: none
  std::shared_ptr<Rendezvous> rendezvous = {};  ///< if machines come and go: sets `nodes` and end_fd at each start
};

/// Runs the job and returns its exit code once no process of it is left. Processes that wait in the kernel, so that no
/// signal ends them, are named and left.
///
/// Starts    a few ranks per core at a time; the next starts when one of them has loaded. Signals are handled meanwhile
/// Restarts  after growing pauses; ranks see restart_count in their environment (environment.h). There is no restart
///           after refused settings, a requested stop, or the same failure (step and words) for the second time
/// Returns   0 if all ranks succeeded; 75 if ranks stopped early by request and saved, or had not begun; 2 if a rank
///           refused its settings (then only its message is printed, once); otherwise the code of the first rank that
///           failed, 128 + signal if a signal killed it; also 128 + signal if a stop was requested and a rank did not
///           save
/// Signals   the first SIGINT, SIGTERM or SIGHUP is passed to every rank as SIGTERM. The second kills at once, if it is
///           another request (stop_signal.h, same_request()): timeout, Slurm and systemd may send theirs twice.
///           SIGUSR1 is passed on as it is, and only warns: the signal after it counts as the first
/// Ordering  call it from the main thread before other threads exist, in a process with no other work: until it
///           returns, it handles all stop signals, and new children count as orphans of the job
/// Errors    FileError if all ranks succeeded and standard output lost what they printed (its reader may go away);
///           UsageError for impossible settings (no room for the ranks, executable, out_dir); Error if the system has
///           no more processes, sockets or descriptors; nothing is left running then
int launch_ranks(const LaunchOptions& options);

}  // namespace trireme::launch
