#include "trireme/launch/supervise/processes.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstring>

namespace trireme::launch {
namespace {
// "/proc/<pid>/<file>", made without allocations.
struct ProcPath {
  ProcPath(pid_t pid, const char* file) {
    std::strcpy(text, "/proc/");
    char* end = std::to_chars(text + 6, text + 32, pid).ptr;
    *end++ = '/';
    std::strcpy(end, file);
  }
  char text[64];
};

long read_some(int fd, char* into, std::size_t size) {
  long got;
  do {
    got = read(fd, into, size);
  } while (got < 0 && errno == EINTR);
  return got;
}

pid_t parse_pid(const char*& text) {
  pid_t value = 0;
  while (*text == ' ') ++text;
  while (*text >= '0' && *text <= '9') value = value * 10 + (*text++ - '0');
  return value;
}

// Fills parent and group from "/proc/<pid>/stat": "12 (name, may hold ) and blanks) S 1 12 ...".
bool read_stat(ProcessEntry& entry, Zombies zombies) {
  const int fd = open(ProcPath(entry.pid, "stat").text, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  char text[512];
  const long got = read_some(fd, text, sizeof text - 1);
  close(fd);
  if (got <= 0) return false;
  text[got] = '\0';
  const char* after_name = std::strrchr(text, ')');
  if (after_name == nullptr || after_name[1] != ' ') return false;
  const char state = after_name[2];
  if (state == '\0' || state == 'X' || (state == 'Z' && zombies == Zombies::no)) return false;
  const char* rest = after_name + 3;
  entry.parent = parse_pid(rest);
  entry.group = parse_pid(rest);
  return true;
}

struct DirectoryEntry {  // as getdents64(2) writes it
  std::uint64_t inode;
  std::int64_t offset;
  unsigned short length;
  unsigned char type;
  char name[1];
};
}  // namespace

std::optional<std::size_t> list_processes(std::span<ProcessEntry> table, Zombies zombies) {
  const int folder = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return std::nullopt;
  std::size_t count = 0;
  alignas(DirectoryEntry) char buffer[8192];
  long got;
  while ((got = syscall(SYS_getdents64, folder, buffer, sizeof buffer)) > 0) {
    for (long at = 0; at < got;) {
      const auto* found = reinterpret_cast<const DirectoryEntry*>(buffer + at);
      at += found->length;
      const char* name = found->name;
      ProcessEntry entry{.pid = parse_pid(name)};
      if (entry.pid > 0 && *name == '\0' && count < table.size() && read_stat(entry, zombies)) table[count++] = entry;
    }
  }
  close(folder);
  std::ranges::sort(table.first(count), {}, &ProcessEntry::pid);
  return count;
}

bool carries_marker(pid_t pid, std::string_view marker) {
  const int fd = open(ProcPath(pid, "environ").text, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  // The buffer keeps the tail of the previous read, so that a marker across two reads is found.
  char buffer[8192];
  buffer[0] = '\0';
  std::size_t kept = 1;
  bool found = false;
  long got;
  while (!found && (got = read_some(fd, buffer + kept, sizeof buffer - kept)) > 0) {
    const std::string_view text(buffer, kept + static_cast<std::size_t>(got));
    for (auto at = text.find(marker); at != std::string_view::npos && !found; at = text.find(marker, at + 1)) {
      const bool ends = at + marker.size() == text.size() || text[at + marker.size()] == '\0';
      found = at > 0 && text[at - 1] == '\0' && ends;
    }
    kept = std::min(text.size(), marker.size() + 2);
    std::memmove(buffer, text.data() + text.size() - kept, kept);
  }
  close(fd);
  return found;
}

void select_descendants(std::span<ProcessEntry> table) {
  const auto parent_selected = [&](const ProcessEntry& entry) {
    const auto parent = std::ranges::lower_bound(table, entry.parent, {}, &ProcessEntry::pid);
    return parent != table.end() && parent->pid == entry.parent && parent->selected;
  };
  for (bool changed = true; changed;) {
    changed = false;
    for (auto& entry : table)
      if (!entry.selected && parent_selected(entry)) changed = entry.selected = true;
  }
}

std::size_t kill_selected(std::span<const ProcessEntry> table) {
  std::size_t count = 0;
  for (const auto& entry : table) {
    if (!entry.selected || entry.pid == getpid()) continue;
    kill(entry.pid, SIGKILL);
    ++count;
  }
  return count;
}

}  // namespace trireme::launch
