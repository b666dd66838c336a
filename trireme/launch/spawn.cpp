#include "trireme/launch/spawn.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/close_range.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "trireme/base/error.h"
#include "trireme/launch/report_channel.h"

namespace trireme::launch {
namespace {

constexpr int kExecFailed = 127;

int last_possible_descriptor() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  return static_cast<int>(std::min<rlim_t>(limit.rlim_cur, 65536));
}

// Everything the child needs, laid out before the fork: after it, only async-signal-safe calls.
struct Prepared {
  const char* executable;
  std::vector<char*> arguments, environment;
  std::vector<unsigned long> cpu_mask;
  pid_t launcher;
};

std::vector<char*> pointers_to(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (const auto& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

std::vector<unsigned long> mask_of(const std::vector<int>& cpus) {
  constexpr int kBits = 8 * sizeof(unsigned long);
  std::vector<unsigned long> mask;
  for (const int cpu : cpus) {
    const auto word = static_cast<std::size_t>(cpu / kBits);
    if (mask.size() <= word) mask.resize(word + 1);
    mask[word] |= 1ul << (cpu % kBits);
  }
  return mask;
}

void report_exec_error(int fd, int error) {
  ReportHeader header{ReportKind::exec_failed, 0};
  char digits[16];
  char* first = digits + sizeof digits;
  do {
    *--first = static_cast<char>('0' + error % 10);
    error /= 10;
  } while (error > 0);
  iovec parts[2] = {{&header, sizeof header}, {first, static_cast<std::size_t>(digits + sizeof digits - first)}};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

void close_on_exec_from(int first) {
  if (syscall(SYS_close_range, first, ~0u, CLOSE_RANGE_CLOEXEC) == 0) return;
  for (int fd = first, end = last_possible_descriptor(); fd < end; ++fd) fcntl(fd, F_SETFD, FD_CLOEXEC);
}

[[noreturn]] void become_rank(const SpawnRequest& request, const Prepared& prepared) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != prepared.launcher) _exit(kExecFailed);  // it died before the line above took effect
  if (!prepared.cpu_mask.empty()) {
    syscall(SYS_sched_setaffinity, 0, prepared.cpu_mask.size() * sizeof(unsigned long), prepared.cpu_mask.data());
  }
  const int null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
  dup2(request.stdin_fd >= 0 ? request.stdin_fd : null_fd, 0);
  if (request.stdout_fd != 1) dup2(request.stdout_fd, 1);
  if (request.stderr_fd != 2) dup2(request.stderr_fd, 2);
  close_on_exec_from(3);
  for (const int fd : request.kept_fds) fcntl(fd, F_SETFD, 0);
  // In a background process group, `stty tostop` would halt a rank at its first line of output.
  signal(SIGTTOU, SIG_IGN);
  signal(SIGXFSZ, SIG_DFL);  // ignored in ours, which another program does not expect
  sigprocmask(SIG_SETMASK, &request.signal_mask, nullptr);
  execve(prepared.executable, prepared.arguments.data(), prepared.environment.data());
  report_exec_error(request.error_fd, errno);
  _exit(kExecFailed);
}

}  // namespace

pid_t spawn_rank(const SpawnRequest& request) {
  const Prepared prepared{.executable = request.executable.c_str(),
                          .arguments = pointers_to(request.arguments),
                          .environment = pointers_to(request.environment),
                          .cpu_mask = mask_of(request.cpus),
                          .launcher = getpid()};
  const pid_t pid = fork();
  if (pid == 0) become_rank(request, prepared);
  if (pid < 0) throw Error(fmt::format("launcher: cannot start another process: {}", std::strerror(errno)));
  setpgid(pid, pid);  // whichever of the two is first; the other fails harmlessly
  return pid;
}

int open_pidfd(pid_t pid) { return static_cast<int>(syscall(SYS_pidfd_open, pid, 0)); }

void close_descriptors_from(int first) {
  if (syscall(SYS_close_range, first, ~0u, 0) == 0) return;
  for (int fd = first, end = last_possible_descriptor(); fd < end; ++fd) close(fd);
}

}  // namespace trireme::launch
