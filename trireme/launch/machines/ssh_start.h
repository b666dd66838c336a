// Starts a job's launchers on a list of machines by ssh, and supervises them to the end.
//
// On each machine ssh runs `trireme on_host`, which reads its order from standard input: the job's token, the folder,
// the words of the command, the settings of this environment. So no command line holds a secret, or words that a shell
// could misread. The input stays open. A byte asks the machine's launcher to stop; so does the end of the input,
// whatever its cause (Ctrl-C, kill -9, a lost connection).
#pragma once

#include <chrono>
#include <string>
#include <utility>
#include <vector>

namespace trireme::launch {

/// What `trireme on_host` reads.
struct HostOrder {
  std::string token;  ///< of the job; empty: none
  std::string folder;  ///< where the command runs
  std::vector<std::string> arguments;  ///< the subcommand and its settings
  std::vector<std::pair<std::string, std::string>> environment;  ///< added to the machine's own
};

std::string write_order(const HostOrder& order);

/// Reads write_order's text from a descriptor, and no byte after it.
/// Errors    Error if the text ends too early or is malformed
HostOrder read_order(int fd);

struct SshJob {
  struct Host {
    std::string name;  ///< as ssh takes it
    HostOrder order;
  };
  std::vector<Host> hosts;
  std::string ssh;  ///< path of ssh: find_ssh()
  std::string program;  ///< path of trireme, the same everywhere
  std::chrono::milliseconds grace{30'000};  ///< from a request to stop until connections are ended
  bool saves = true;  ///< asked to stop, the command finishes its step and saves
};

/// The ssh on PATH. Errors    UsageError if there is none
std::string find_ssh();

/// Runs the job. The first machine's output is shown as it is, the others' output line by line after "[name] ".
///
/// Returns   0 if the launchers of all machines succeeded, 75 if they stopped early, else the exit code of the first
///           launcher that failed; 1 if it was ssh itself that failed
/// Signals   the first SIGINT, SIGTERM, SIGHUP or SIGUSR1 asks all machines to stop and save; the second ends the
///           connections. stop_signal.h says which signals count as one request
/// Errors    Error if the system has no more processes; FileError if all succeeded and standard output lost their words
int start_by_ssh(const SshJob& job);

/// `trireme on_host`: reads its order from standard input and runs it as a child. The token is in a file in memory
/// (launch.token_file). The child is asked to stop at a byte or the end of the input, and at a stop signal.
///
/// Returns   the child's exit code; kStoppedEarly if the request ended the child before it had signal handlers; else
///           128 + signal if a signal killed it
/// Errors    Error for a malformed order; UsageError for a folder that does not exist on this machine
int run_on_host();

}  // namespace trireme::launch
