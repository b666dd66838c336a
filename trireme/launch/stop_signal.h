// A polite request to stop: SIGTERM (from the launcher, Slurm, systemd) or SIGINT (Ctrl-C on a world of one).
//
// The loop asks stop_requested() once a step; when it is true it saves and exits with kStoppedEarly, which tells
// the launcher and the job's owner "resumable". A second Ctrl-C ends the process at once; a second SIGTERM does
// not, since systemd and Slurm may send it to every process themselves besides the launcher's.
#pragma once

namespace trireme::launch {

constexpr int kStoppedEarly = 75;  ///< exit code: stopped by request, state saved, resume to go on (EX_TEMPFAIL)

/// Installs the handlers for SIGTERM and SIGINT; call once, early in main. A signal that was ignored stays ignored.
void install_stop_signal();

/// Whether a stop was requested; safe in any thread and in signal handlers.
bool stop_requested() noexcept;

/// The signal that requested it, 0 when none did.
int stop_signal() noexcept;

/// Requests a stop from within, as a signal would (a wall-clock limit, a test).
void request_stop(int signal_number) noexcept;

/// Forgets an earlier request; for tests and for programs that train several times.
void clear_stop_request() noexcept;

}  // namespace trireme::launch
