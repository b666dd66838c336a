#include "trireme/launch/hang/process_look.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <fstream>
#include <sstream>
#include <thread>

#include "trireme/base/process.h"
#include "trireme/base/text.h"

namespace trireme::launch {
namespace {
using namespace std::chrono_literals;

constexpr auto kBetweenSamples = 200ms;
constexpr double kBusyCores = 0.05;  // below this a process counts as idle
constexpr std::size_t kShownFrames = 8, kNameChars = 80;

std::string read_line(std::int64_t pid, const char* name) {
  std::ifstream in(fmt::format("/proc/{}/{}", pid, name));
  std::string line;
  std::getline(in, line);
  return line;
}

// The words after the name in "/proc/<pid>/stat", "12 (name) S 1 ...": the state and numbers.
std::istringstream words_behind_name(std::int64_t pid) {
  const std::string line = read_line(pid, "stat");
  const auto end = line.rfind(')');
  return std::istringstream(end == std::string::npos ? "" : line.substr(end + 1));
}

// The state and the ticks of processor time: words 14 and 15 of the line.
struct Sample {
  char state = 0;
  long ticks = 0;
};

Sample sample(const ProcessId& process) {
  if (base::is_gone(process.pid, process.start_ticks)) return {};
  if (!base::process_start_ticks(process.pid)) return {.state = '?'};
  std::istringstream in = words_behind_name(process.pid);
  Sample s;
  std::string word;
  in >> s.state;
  for (int i = 4; i < 14; ++i) in >> word;
  long user = 0, system = 0;
  in >> user >> system;
  s.ticks = user + system;
  return s;
}
}  // namespace

bool waits_in_kernel(std::int64_t pid) {
  char state = 0;
  words_behind_name(pid) >> state;
  return state == 'D';
}

std::vector<ProcessLook> look_at(const std::vector<ProcessId>& processes) {
  std::vector<Sample> before;
  for (const auto& process : processes) before.push_back(sample(process));
  const auto start = std::chrono::steady_clock::now();
  std::this_thread::sleep_for(kBetweenSamples);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::vector<ProcessLook> looks;
  for (std::size_t i = 0; i < processes.size(); ++i) {
    const Sample now = sample(processes[i]);
    ProcessLook& look = looks.emplace_back();
    look.state = now.state;
    if (now.state == 0) continue;
    look.cores = double(now.ticks - before[i].ticks) / double(sysconf(_SC_CLK_TCK)) / seconds;
    if (now.state == 'S' || now.state == 'D') look.waits_in = read_line(processes[i].pid, "wchan");
    if (look.waits_in == "0") look.waits_in.clear();
  }
  return looks;
}

std::string describe(const ProcessLook& look) {
  const std::string in = look.waits_in.empty() ? "" : fmt::format(" in {}", look.waits_in);
  switch (look.state) {
    case 0:
    case 'Z':
    case 'X':
      return "has ended";
    case '?':
      return "is not shown to this user";
    case 'T':
      return "is stopped by a signal (SIGSTOP; kill -CONT would let it go on)";
    case 't':
      return "is stopped by a debugger";
    case 'D':
      return fmt::format("waits for a disk or a network file system{}", in);
    default:
      if (look.cores >= kBusyCores) return fmt::format("computes ({:.1f} cores busy)", look.cores);
      return fmt::format("sleeps{}", in);
  }
}

std::string describe_stack(const std::vector<std::string>& stack) {
  constexpr std::array<std::string_view, 3> kOutermost = {"main", "__libc_start_main", "_start"};
  std::vector<std::string> names;
  for (const std::string& name : stack) {
    if (std::ranges::find(kOutermost, name) != kOutermost.end() || names.size() == kShownFrames) break;
    names.push_back(name.size() > kNameChars ? name.substr(0, kNameChars) + "..." : name);
  }
  return base::join(names, " < ");
}

}  // namespace trireme::launch
