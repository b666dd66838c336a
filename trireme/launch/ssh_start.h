// Starts a job's launchers on a list of machines by ssh, and stays with them to the end.
//
// On each machine ssh runs `trireme on_host`, which is told everything through its standard input: the job's token, the
// folder, the words of the command, the settings of this environment. So nothing secret, and nothing that a shell could
// misread, stands on a command line. That input stays open: a letter asks the machine's launcher to stop, and its end,
// however it comes about (Ctrl-C, kill -9, a lost connection), does the same.
#pragma once

#include <chrono>
#include <string>
#include <utility>
#include <vector>

namespace trireme::launch {

/// What `trireme on_host` is told.
struct HostOrder {
  std::string token;  ///< of the job; empty: none
  std::string folder;  ///< where the command runs
  std::vector<std::string> arguments;  ///< the subcommand and its settings
  std::vector<std::pair<std::string, std::string>> environment;  ///< added to the machine's own
};

std::string write_order(const HostOrder& order);

/// Reads write_order's text from a descriptor, and not a byte more.
/// Errors    Error where it ends too early or is none
HostOrder read_order(int fd);

struct SshJob {
  struct Host {
    std::string name;  ///< as ssh takes it
    HostOrder order;
  };
  std::vector<Host> hosts;
  std::string ssh;  ///< path of ssh: find_ssh()
  std::string program;  ///< path of trireme, the same everywhere
  std::chrono::milliseconds grace{30'000};  ///< from a request to stop to the end of a connection
};

/// The ssh on PATH. Errors    UsageError where there is none
std::string find_ssh();

/// The first machine's output is shown as it is, that of others line by line after "[name] ".
///
/// Returns   0 when all machines' launchers succeeded, 75 where they stopped early, else the code of the first that
///           failed
/// Signals   the first SIGINT, SIGTERM, SIGHUP or SIGUSR1 asks all machines to stop and save; the second ends the
///           connections, counted as in stop_signal.h
/// Errors    Error if the system has no more processes
int start_by_ssh(const SshJob& job);

/// `trireme on_host`: reads its order from standard input, runs it as a child with the token in a file of memory
/// (launch.token_file), and asks it to stop when the input says so or ends, or a SIGTERM, SIGINT or SIGHUP comes.
///
/// Returns   the child's exit code; kStoppedEarly where it was asked before it took requests; 128 + signal where
///           another signal killed it
/// Errors    Error for an order that is none; UsageError for a folder that does not exist on this machine
int run_on_host();

}  // namespace trireme::launch
