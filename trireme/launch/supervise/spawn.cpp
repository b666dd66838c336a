#include "trireme/launch/supervise/spawn.h"

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
#include <charconv>

#include "trireme/base/error.h"
#include "trireme/base/process.h"
#include "trireme/launch/supervise/worker.h"

namespace trireme::launch {
namespace {
constexpr int kExecFailed = 127;

int last_possible_descriptor() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  return static_cast<int>(std::min<rlim_t>(limit.rlim_cur, 65536));
}

// Everything the child needs, made before the fork: afterwards only async-signal-safe calls are allowed.
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
  const char* end = std::to_chars(digits, digits + sizeof digits, error).ptr;
  iovec parts[2] = {{&header, sizeof header}, {digits, static_cast<std::size_t>(end - digits)}};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

[[noreturn]] void become_rank(const SpawnRequest& request, const Prepared& prepared) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != prepared.launcher) _exit(kExecFailed);  // it died before the line above took effect
  if (!prepared.cpu_mask.empty())
    syscall(SYS_sched_setaffinity, 0, prepared.cpu_mask.size() * sizeof(unsigned long), prepared.cpu_mask.data());
  const int null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
  dup2(request.stdin_fd >= 0 ? request.stdin_fd : null_fd, 0);
  if (request.stdout_fd != 1) dup2(request.stdout_fd, 1);
  if (request.stderr_fd != 2) dup2(request.stderr_fd, 2);
  if (syscall(SYS_close_range, 3, ~0u, CLOSE_RANGE_CLOEXEC) != 0)
    for (int fd = 3, end = last_possible_descriptor(); fd < end; ++fd) fcntl(fd, F_SETFD, FD_CLOEXEC);
  for (const int fd : request.kept_fds) fcntl(fd, F_SETFD, 0);
  // Ranks are in background process groups. With `stty tostop`, SIGTTOU would stop a rank at its first output.
  signal(SIGTTOU, SIG_IGN);
  signal(SIGXFSZ, SIG_DFL);  // the launcher ignores it, but other programs do not expect that
  sigprocmask(SIG_SETMASK, &request.signal_mask, nullptr);
  execve(prepared.executable, prepared.arguments.data(), prepared.environment.data());
  report_exec_error(request.error_fd, errno);
  _exit(kExecFailed);
}
}  // namespace

Pipe::Pipe(int read_flags) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw Error("launcher: no pipe left: " + base::why_no_descriptor(errno));
  read_end = base::FileDescriptor(ends[0]);
  write_end = base::FileDescriptor(ends[1]);
  if (read_flags != 0) fcntl(ends[0], F_SETFL, read_flags);
}

pid_t spawn_rank(const SpawnRequest& request) {
  const Prepared prepared{.executable = request.executable.c_str(),
                          .arguments = pointers_to(request.arguments),
                          .environment = pointers_to(request.environment),
                          .cpu_mask = mask_of(request.cpus),
                          .launcher = getpid()};
  const pid_t pid = fork();
  if (pid == 0) become_rank(request, prepared);
  if (pid < 0) throw Error(fmt::format("launcher: cannot start another process: {}", base::why_not_started(errno)));
  setpgid(pid, pid);  // parent and child both do this; the later call fails harmlessly
  return pid;
}

int open_pidfd(pid_t pid) { return static_cast<int>(syscall(SYS_pidfd_open, pid, 0)); }

void close_descriptors_from(int first) {
  if (syscall(SYS_close_range, first, ~0u, 0) == 0) return;
  for (int fd = first, end = last_possible_descriptor(); fd < end; ++fd) close(fd);
}

}  // namespace trireme::launch
