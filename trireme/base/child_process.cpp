#include "trireme/base/child_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/close_range.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <string_view>

#include "trireme/base/error.h"
#include "trireme/base/process.h"
#include "trireme/base/stop_signals.h"

namespace trireme::base {
namespace {

// Groups of programs that have not ended; 0: a free place. A program that finds none is only killed by end().
std::array<std::atomic<pid_t>, 64> living_groups{};
static_assert(std::atomic<pid_t>::is_always_lock_free, "a signal handler may only touch lock-free atomics");

void replace_group(pid_t before, pid_t now) {
  for (std::atomic<pid_t>& group : living_groups)
    if (pid_t found = before; group.compare_exchange_strong(found, now)) return;
}

struct Becoming {
  const char* file;
  char** arguments;
  char** environment;
  int input, output;  ///< output -1: this process's
  rlim_t memory;
  pid_t parent;
};

// Runs in the child, between fork and exec: only calls that are safe there.
[[noreturn]] void become(const Becoming& b) {
  constexpr int kExitCode = ChildProcess::kCannotStart >> 8;
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != b.parent) _exit(kExitCode);  // it died before the line above took effect
  dup2(b.input, 0);
  if (b.output >= 0) dup2(b.output, 1);
  if (b.memory > 0) {
    const rlimit limit{b.memory, b.memory};
    setrlimit(RLIMIT_AS, &limit);
  }
  syscall(SYS_close_range, 3, ~0u, CLOSE_RANGE_CLOEXEC);
  for (const int number : kStopSignals)
    if (signal(number, SIG_DFL) == SIG_IGN && number == SIGHUP) signal(number, SIG_IGN);  // nohup's stays ignored
  for (const int number : {SIGPIPE, SIGTTOU, SIGXFSZ}) signal(number, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  execve(b.file, b.arguments, b.environment);
  _exit(kExitCode);
}

// Likewise. Another program, because a copy of this process would keep the pages that this one changes from now on.
[[noreturn]] void become_keeper(pid_t group, int life) {
  constexpr int kExitCode = ChildProcess::kCannotStart >> 8;
  if (setpgid(0, group) != 0) _exit(kExitCode);  // it must not kill another group
  for (const int number : kStopSignals) signal(number, SIG_IGN);
  signal(SIGQUIT, SIG_IGN);
  dup2(life, 0);
  syscall(SYS_close_range, 1, ~0u, 0);  // nobody who reads this process's output waits for the keeper
  const char* const words[] = {"sh", "-c", "read -r line; kill -KILL 0", nullptr};
  execve("/bin/sh", const_cast<char**>(words), environ);
  _exit(kExitCode);
}

}  // namespace

ChildProcess::ChildProcess(const Options& options) {
  int input[2], output[2] = {-1, -1};
  // A socket, because writing to a program that has gone would send this process a signal otherwise.
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, input) != 0)
    throw Error("cannot be started: " + why_no_descriptor(errno));
  input_ = FileDescriptor(input[0]);
  const FileDescriptor its_input(input[1]);
  fcntl(input_.get(), F_SETFL, O_NONBLOCK);
  if (options.is_read && pipe2(output, O_CLOEXEC) != 0) throw Error("cannot be started: " + why_no_descriptor(errno));
  const FileDescriptor its_output(output[1]);
  if (options.is_read) {
    output_ = FileDescriptor(output[0]);
    fcntl(output_.get(), F_SETFL, O_NONBLOCK);
  }
  std::vector<char*> arguments, environment;
  for (const std::string& word : options.words) arguments.push_back(const_cast<char*>(word.c_str()));
  for (const std::string& variable : options.variables) environment.push_back(const_cast<char*>(variable.c_str()));
  const auto is_replaced = [&](std::string_view inherited) {
    const std::string_view name = inherited.substr(0, inherited.find('=') + 1);
    return std::ranges::any_of(options.variables, [&](const std::string& own) { return own.starts_with(name); });
  };
  for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable)
    if (!is_replaced(*variable)) environment.push_back(*variable);
  arguments.push_back(nullptr);
  environment.push_back(nullptr);
  const Becoming becoming{.file = options.file.c_str(),
                          .arguments = arguments.data(),
                          .environment = environment.data(),
                          .input = its_input.get(),
                          .output = its_output.get(),
                          .memory = static_cast<rlim_t>(options.memory_limit),
                          .parent = getpid()};
  pid_ = fork();
  if (pid_ == 0) become(becoming);
  if (pid_ < 0) throw Error(fmt::format("cannot be started: {}", why_not_started(errno)));
  setpgid(pid_, pid_);  // parent and child both do this; the later call fails harmlessly
  replace_group(0, pid_);
  start_keeper();
}

// Without descriptors or processes for it, the program works all the same.
void ChildProcess::start_keeper() {
  int life[2];
  if (pipe2(life, O_CLOEXEC) != 0) return;
  const FileDescriptor its_end(life[0]);
  life_ = FileDescriptor(life[1]);
  keeper_ = fork();
  if (keeper_ == 0) become_keeper(pid_, its_end.get());
}

bool ChildProcess::has_ended() {
  if (!ended_ && waitpid(pid_, &status_, WNOHANG) == pid_) ended_ = true;
  return ended_;
}

void ChildProcess::end(std::chrono::milliseconds grace) {
  constexpr useconds_t kLook = 2000;
  if (pid_ <= 0) return;
  // What it has not read yet stays readable for it.
  shutdown(input_.get(), grace.count() > 0 ? SHUT_WR : SHUT_RDWR);
  const auto last = std::chrono::steady_clock::now() + grace;
  while (!has_ended() && std::chrono::steady_clock::now() < last) usleep(kLook);
  kill(-pid_, SIGKILL);
  replace_group(pid_, 0);
  if (keeper_ > 0) {
    kill(keeper_, SIGKILL);  // it may not have come into the group yet
    wait_for_end(keeper_);
  }
  if (!ended_) status_ = wait_for_end(pid_);
  pid_ = keeper_ = -1;
  life_ = {};
}

void kill_child_groups() noexcept {
  for (const std::atomic<pid_t>& group : living_groups)
    if (const pid_t leader = group.load(); leader > 0) kill(-leader, SIGKILL);
}

int wait_for_end(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

std::string text_of_ending(int status) {
  if (WIFSIGNALED(status))
    return fmt::format("was ended by signal {} ({})", WTERMSIG(status), strsignal(WTERMSIG(status)));
  return fmt::format("ended with exit code {}", WEXITSTATUS(status));
}

}  // namespace trireme::base
