// Starts the ranks of a job on this host and stays with them to the end.
//
// Ranks are the same program, started by exec, told who they are by the environment (environment.h) and meeting at a
// port that the kernel chose: the launcher binds the socket and rank 0 inherits it, so two jobs never collide. The
// launcher itself needs no LibTorch. What the user sees is rank 0 and, if a rank fails, the first failure; the rest
// is in <out_dir>/logs. Whatever happens to the launcher, no process of the job outlives it (guardian.h).
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

/// Where this machine stands among those of a job. Each has a launcher of its own for its ranks, which are
/// [rank * num_ranks, (rank + 1) * num_ranks) of the job's count * num_ranks.
struct Nodes {
  int count = 1;
  int rank = 0;
  std::string master_address = "127.0.0.1";  ///< of machine 0, as the others reach it
  int master_port = 0;  ///< 0 on a single machine: chosen by the kernel
  int store_fd = -1;    ///< machine 0 of several: listens at master_port, taken over by launch_ranks
  std::string job_id = {};  ///< the same on all machines; empty on a single one: drawn
  std::string token = {};   ///< likewise; empty on several: the ranks find it in a file (meeting_file.h)
  std::string run = {};     ///< name of what all attempts together do; empty: there is one attempt
};

class Rendezvous;

struct LaunchOptions {
  int num_ranks = 1;  ///< on this machine
  std::string executable = {};               ///< path; empty: this program
  std::vector<std::string> arguments = {};   ///< without the program's name
  std::vector<std::pair<std::string, std::string>> environment = {};  ///< added to the launcher's own
  std::filesystem::path out_dir = {};  ///< logs go to <out_dir>/logs/rank<N>.log; empty: no logs, all ranks are shown
  int threads_per_rank = 0;  ///< OMP_NUM_THREADS and MKL_NUM_THREADS; 0: the user's, else cores / ranks
  bool pin = true;  ///< whole cores for each rank; not done when ranks exceed cores
  std::chrono::milliseconds grace = std::chrono::seconds(3);  ///< after a failure: from SIGTERM to SIGKILL
  std::vector<int> log_ranks = {};  ///< ranks besides the machine's first whose output is shown too, after "[rank N] "
  bool quiet = false;  ///< no remarks of the launcher's own; failures are always told
  std::function<std::string()> failure_hint = {};  ///< last line of a failure's report: how to go on
  int answer_code = 0;  ///< exit code of a rank that is its answer and no failure: the job's, too; 0: there is none
  int max_restarts = 0;  ///< after a failure all ranks start again this often, later and later; with a rendezvous its
                         ///< decider counts
  std::int64_t planned_bytes = 0;  ///< of the arenas of all these ranks together, where it is known (room.h)
  bool tells_begin = false;  ///< ranks report_begun(): until all have, a stop ends them within two seconds
  bool oversubscribe = false;  ///< starts them although this machine has no room for them
  Nodes nodes = {};
  int lock_fd = -1;  ///< what keeps other jobs out of out_dir (folder_lock.h): ranks inherit it; -1: there is none
  int end_fd = -1;  ///< readable when ranks elsewhere have ended: those here are then stopped; -1: there are no others
  std::shared_ptr<Rendezvous> rendezvous = {};  ///< machines come and go: gives `nodes` and end_fd at each start
};

/// Runs the job and returns its exit code once no process of it is left.
///
/// Starts    a few ranks a core at a time, the next when one of those has loaded: the launcher hears signals all along
/// Restarts  ranks see restart_count in their environment (environment.h). A refusal of settings, a stop that was asked
///           for, and a failure that comes again at the same step with the same words are not tried again
/// Returns   0 when all ranks succeeded; 75 when ranks stopped early by request and saved, or before they had begun; 2
/// when a rank refused its
///           settings (its message is printed once, nothing else); otherwise the code of the first rank that failed,
///           128 + signal if a signal killed it; 128 + signal too when a stop was requested and a rank did not save
/// Signals   the first SIGINT, SIGTERM or SIGHUP is passed to every rank as SIGTERM; the second kills at once, unless
/// it
///           is no SIGINT and comes within a second (timeout, Slurm and systemd may send one request twice). SIGUSR1
///           is passed on as it is, and only warns: the signal after it is a first one
/// Ordering  call from the main thread before other threads exist, in a process with no other work: until it returns,
///           stop signals are its own, and children that appear meanwhile are taken for orphans of the job
/// Errors    UsageError for settings that cannot be (ranks for which there is no room, executable, out_dir); Error if
/// the system has no more
///           processes, sockets or descriptors; nothing is left running then
int launch_ranks(const LaunchOptions& options);

}  // namespace trireme::launch
