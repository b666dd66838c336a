// A request to stop that leaves time to save: SIGTERM (the launcher, Slurm, Kubernetes, systemd), SIGINT (Ctrl-C),
// SIGUSR1 (Slurm's --signal=USR1@90), SIGHUP (a closed terminal), or a cloud's notice (notice.h).
//
// The training loop calls stop_requested() at its safe points, agrees with the other ranks, saves and exits with
// kStoppedEarly. A second SIGTERM, SIGINT or SIGHUP ends the process at once, with two exceptions. SIGUSR1 and notices
// only warn, so the signal after them counts as the first. And a signal within a second of the first is the same
// request, a SIGINT after a SIGINT within a tenth: systemd, Slurm, torchrun and timeout signal every process, and the
// launcher also passes the signal on.
#pragma once

#include <chrono>
#include <string>

#include "trireme/base/error.h"

namespace trireme::launch {

constexpr int kStoppedEarly = 75;  ///< exit code: stopped by request, may be given again (EX_TEMPFAIL)

/// What becomes of a command that is asked to stop, and of the same command when it is given again.
enum class WhenStopped {
  dies,     ///< the signal ends it
  ends,     ///< exits with kStoppedEarly, and has written nothing: it begins again
  goes_on,  ///< exits with kStoppedEarly, and what it has written stays: it goes on
  resumes,  ///< likewise with its state saved: it goes on with --resume auto
};

/// How long after a first signal, `first`, a signal `number` is the same request: timeout, systemd and Slurm may send
/// theirs twice. Ctrl-C after Ctrl-C is a user's second one, unless it comes sooner than fingers are: timeout -s INT
/// signals its child and then the child's group. Safe in signal handlers.
std::chrono::milliseconds same_request(int number, int first) noexcept;

// Reasons for a stop other than signals.
constexpr int kNoticeFile = 1001;
constexpr int kNoticeUrl = 1002;
constexpr int kOthersEnded = 1003;  ///< the launcher ends this rank, because others have failed

/// A stop was requested during a wait for other machines or ranks, before anything began, or in work of which nothing
/// is left. The program exits with kStoppedEarly.
struct Stopped : Error {
  using Error::Error;
};

/// Installs the handlers for the stop signals (base/stop_signals.h), and unblocks them. Ranks start with them blocked
/// (supervisor_start.cpp), so none is lost while the program loads. A signal that was ignored stays ignored.
void install_stop_signal();

/// From now until install_stop_signal(), a request to stop ends this process at once, with kStoppedEarly and one line.
/// For programs that still read settings and files, so that nothing has begun.
void leave_when_stopped();

/// Unblocks the signals, which by default end the process: for programs that have nothing to save.
void unblock_stop_signals();

/// Passes the request of signal `number`, or kOthersEnded, on to a rank: as SIGUSR1 or SIGTERM, with that number.
void pass_on_stop(int pid, int number) noexcept;

/// Whether a stop was requested; safe in any thread and in signal handlers.
bool stop_requested() noexcept;

/// The signal or notice that requested the stop (the launcher's signal if the launcher passed it on); 0: no request.
int stop_signal() noexcept;

/// Whether the parent process sent the signal.
bool stop_came_from_launcher() noexcept;

/// "SIGTERM", "the notice file": the name of stop_signal() in messages.
const char* name_of_stop(int reason) noexcept;

/// "stopped by request", or why this process ends instead: how the last words of a stopped process begin.
const char* head_of_last_words() noexcept;

/// Time since the request; 0 if there is none.
std::chrono::duration<double> time_since_stop_request() noexcept;

/// How long a rank that is asked to stop still waits for the others: nearly all of its grace. If it exited at once, the
/// others would wait for it in vain.
std::chrono::milliseconds patience_when_stopped(std::chrono::milliseconds grace);

/// Call it in waits. Errors    Stopped if a stop was requested at least `patience` ago, or if the others have ended
void end_wait_when_stopped(std::chrono::milliseconds patience, const std::string& waited_for);

/// Call it in work that leaves nothing behind if an exception ends it. Errors    Stopped if a stop was requested
void end_work_when_stopped();

/// Requests a stop from inside the program, like a first signal (a notice, a test). An earlier request stays.
void request_stop(int reason) noexcept;

/// Clears an earlier request, for tests.
void clear_stop_request() noexcept;

}  // namespace trireme::launch
