// A request to stop that leaves time to save: SIGTERM (the launcher, Slurm, Kubernetes, systemd), SIGINT (Ctrl-C),
// SIGUSR1 (Slurm's --signal=USR1@90), or a cloud's notice (notice.h).
//
// The training loop asks stop_requested() at its safe points, agrees with the other ranks, saves and exits with
// kStoppedEarly. A second SIGTERM or SIGINT ends the process at once, with two exceptions: SIGUSR1 and notices only
// warn, so the signal after them is a first one; and what comes within a second of a SIGTERM is the same request, since
// systemd, Slurm and torchrun send it to every process themselves besides the launcher's.
#pragma once

#include <chrono>
#include <string>

#include "trireme/base/error.h"

namespace trireme::launch {

constexpr int kStoppedEarly = 75;  ///< exit code: stopped by request, state saved, resume to go on (EX_TEMPFAIL)

/// Signals as close as this are one request: timeout, systemd and Slurm may send theirs twice.
inline constexpr std::chrono::seconds kSameRequest{1};

// What asked to stop, where no signal did.
constexpr int kNoticeFile = 1001;
constexpr int kNoticeUrl = 1002;

/// A wait for other machines or ranks has ended because a stop was requested; nothing was begun. The program ends with
/// kStoppedEarly.
struct Stopped : Error {
  using Error::Error;
};

/// Installs the handlers for SIGTERM, SIGINT and SIGUSR1, and lets those signals through if this process was started
/// with them blocked (spawn.h): none is lost while the program loads. A signal that was ignored stays ignored.
void install_stop_signal();

/// Until install_stop_signal() a request to stop ends this process at once with kStoppedEarly, in one line: nothing has
/// begun. For programs that will take requests, while they read settings and look at files.
void leave_when_stopped();

/// Lets the signals through, whose default is the process' end: for programs that have nothing to save.
void unblock_stop_signals();

/// Passes the request of signal `number` on to a rank: as SIGUSR1 or SIGTERM, with the signal's own name.
void pass_on_stop(int pid, int number) noexcept;

/// Whether a stop was requested; safe in any thread and in signal handlers.
bool stop_requested() noexcept;

/// The signal or notice that requested it, 0 when none did. What the launcher passes on is the signal that it got.
int stop_signal() noexcept;

/// Whether the process that started this one passed the request on; else this process was asked itself.
bool stop_came_from_launcher() noexcept;

/// "SIGTERM", "the notice file": what stop_signal() is called in a sentence.
const char* name_of_stop(int reason) noexcept;

/// Since the request; 0 when there is none.
std::chrono::duration<double> time_since_stop_request() noexcept;

/// A rank that is asked to stop still waits so long for others, which would otherwise wait for it: together they end in
/// a moment. Nearly all of the grace that it has.
std::chrono::milliseconds patience_when_stopped(std::chrono::milliseconds grace);

/// Errors    Stopped once a stop was requested `patience` ago: what the wait was for has not come
void end_wait_when_stopped(std::chrono::milliseconds patience, const std::string& waited_for);

/// Requests a stop from within, as a first signal would (a notice, a test). Keeps an earlier request.
void request_stop(int reason) noexcept;

/// Forgets an earlier request; for tests and for programs that train several times.
void clear_stop_request() noexcept;

}  // namespace trireme::launch
