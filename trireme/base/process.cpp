#include "trireme/base/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>

namespace trireme::base {

std::string this_host() {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return fmt::format("{} {}", std::string_view(name).substr(0, 26), boot);
}

namespace {

// Needs no /proc. A process that may not be signalled exists, too.
bool is_there(int64_t pid) { return pid > 0 && (kill(static_cast<pid_t>(pid), 0) == 0 || errno != ESRCH); }

}  // namespace

// Allocates nothing, because loops that wait call it.
std::optional<uint64_t> process_start_ticks(int64_t pid) {
  std::array<char, 64> name{};
  fmt::format_to_n(name.data(), name.size() - 1, "/proc/{}/stat", pid);
  const int fd = open(name.data(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return errno == ENOENT && !is_there(pid) ? std::optional<uint64_t>(0) : std::nullopt;
  std::array<char, 1024> line{};
  const ssize_t n = read(fd, line.data(), line.size() - 1);
  const bool ended_meanwhile = n < 0 && errno == ESRCH;
  close(fd);
  if (ended_meanwhile) return 0;
  // The program's name, in parentheses, may contain anything; the state follows the last ')'.
  const char* at = n > 0 ? std::strrchr(line.data(), ')') : nullptr;
  char state = 'X';
  unsigned long long start = 0;
  if (!at || std::sscanf(at, ") %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
                         &state, &start) != 2)
    return std::nullopt;
  return state == 'Z' || state == 'X' ? 0 : start;  // killed, and its parent has not waited for it yet
}

bool is_gone(int64_t pid, uint64_t start_ticks) {
  const auto now = process_start_ticks(pid);
  return now && (*now == 0 || (start_ticks != 0 && *now != start_ticks));
}

std::string why_not_started(int code) {
  return code == EAGAIN ? "the limit on processes is reached (ulimit -u, or pids.max of the control group)"
                        : std::strerror(code);
}

std::string why_no_descriptor(int code) {
  if (code == ENFILE) return "this machine's limit on open files is reached (fs.file-max); raise it";
  if (code != EMFILE) return std::strerror(code);
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  return fmt::format("this process may have {} open files (ulimit -n), and needs more; raise that limit",
                     limit.rlim_cur);
}

void allow_no_core_dumps() {
  // Programs that collect dumps ignore the limit, except a limit of one byte (core(5), fs/coredump.c).
  constexpr rlim_t kNone = 1;
  rlimit limit{};
  if (getrlimit(RLIMIT_CORE, &limit) != 0) return;
  limit.rlim_cur = std::min(kNone, limit.rlim_max);
  (void)setrlimit(RLIMIT_CORE, &limit);
}

}  // namespace trireme::base
