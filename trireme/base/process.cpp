#include "trireme/base/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

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

// Waits look here every now and then; so it allocates nothing.
std::optional<uint64_t> process_start_ticks(int64_t pid) {
  std::array<char, 64> name{};
  fmt::format_to_n(name.data(), name.size() - 1, "/proc/{}/stat", pid);
  const int fd = open(name.data(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return errno == ENOENT ? std::optional<uint64_t>(0) : std::nullopt;
  std::array<char, 1024> line{};
  const ssize_t n = read(fd, line.data(), line.size() - 1);
  if (n < 0 && errno != ESRCH) {
    close(fd);
    return std::nullopt;
  }
  close(fd);
  // The program's name, in parentheses, may hold anything; the state follows the last ')'.
  const char* at = n > 0 ? std::strrchr(line.data(), ')') : nullptr;
  char state = 'X';
  unsigned long long start = 0;
  if (!at || std::sscanf(at, ") %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
                         &state, &start) != 2)
    return 0;
  return state == 'Z' || state == 'X' ? 0 : start;  // killed and not yet reaped by its parent
}

}  // namespace trireme::base
