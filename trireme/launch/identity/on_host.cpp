// The part of ssh_start.h that runs on each machine.
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/stop_signals.h"
#include "trireme/launch/identity/rank_setup.h"
#include "trireme/launch/machines/ssh_start.h"
#include "trireme/launch/supervise/spawn.h"
#include "trireme/launch/supervise/stop_signal.h"
#include "trireme/store/token.h"

namespace trireme::launch {
namespace {
void enter(const std::string& folder) {
  std::error_code problem;
  std::filesystem::current_path(folder, problem);
  if (problem)
    throw UsageError(fmt::format("error: this machine has no folder {} ({}); all machines of a job see the same files",
                                 folder, problem.message()));
}

// This process's variables, overridden by the order's.
std::vector<std::string> variables(const HostOrder& order) {
  auto all = own_environment();
  for (const auto& [name, value] : order.environment) all[name] = value;
  return as_entries(all);
}

// The end of the ssh session would kill this process, and the child with it, before the child has saved.
base::FileDescriptor take_signals() {
  sigset_t ours;
  sigemptyset(&ours);
  for (const int number : base::kStopSignals) sigaddset(&ours, number);
  sigprocmask(SIG_BLOCK, &ours, nullptr);
  return base::FileDescriptor(signalfd(-1, &ours, SFD_CLOEXEC | SFD_NONBLOCK));
}

// Waits for the child. A byte of standard input, the end of the input, or a signal asks the child to stop.
int wait_with_input(pid_t child, int pidfd, int signal_fd) {
  bool listening = true, asked = false;
  for (;;) {
    pollfd ready[3] = {{pidfd, POLLIN, 0}, {listening ? STDIN_FILENO : -1, POLLIN, 0}, {signal_fd, POLLIN, 0}};
    poll(ready, 3, pidfd >= 0 ? -1 : 200);
    int status = 0;
    if (waitpid(child, &status, WNOHANG) == child) {
      if (!WIFSIGNALED(status)) return WEXITSTATUS(status);
      // The child had no handlers yet, so nothing had begun.
      if (asked && WTERMSIG(status) == SIGTERM) return kStoppedEarly;
      return 128 + WTERMSIG(status);
    }
    signalfd_siginfo info{};
    if (read(signal_fd, &info, sizeof info) == static_cast<long>(sizeof info)) {
      asked = true;
      kill(child, SIGTERM);
    }
    if (!listening || ready[1].revents == 0) continue;
    char byte = 0;
    const ssize_t got = read(STDIN_FILENO, &byte, 1);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    listening = got > 0;
    asked = true;
    kill(child, SIGTERM);  // a second one, after a second byte, ends it at once
  }
}
}  // namespace

int run_on_host() {
  const HostOrder order = read_order(STDIN_FILENO);
  enter(order.folder);
  const Program program = find_program({});
  SpawnRequest request{.executable = program.path, .arguments = {program.name}, .environment = variables(order)};
  request.arguments.insert(request.arguments.end(), order.arguments.begin(), order.arguments.end());
  base::FileDescriptor token;
  if (!order.token.empty()) {
    token = store::token_descriptor(order.token);
    fchmod(token.get(), 0600);  // launch.token_file takes no file that others may read
    request.kept_fds = {token.get()};
    request.environment.push_back(fmt::format("TRIREME_LAUNCH_TOKEN_FILE=/proc/self/fd/{}", token.get()));
  }
  sigprocmask(SIG_SETMASK, nullptr, &request.signal_mask);
  const base::FileDescriptor signals = take_signals();
  const pid_t child = spawn_rank(request);
  return wait_with_input(child, open_pidfd(child), signals.get());
}

}  // namespace trireme::launch
