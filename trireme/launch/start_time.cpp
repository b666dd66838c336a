#include "trireme/launch/start_time.h"

#include <time.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>

namespace trireme::launch {

using Clock = std::chrono::steady_clock;

Clock::time_point process_start() {
  std::ifstream file("/proc/self/stat");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  // The second field is the program's name in brackets, and may hold anything; the start is the 20th behind it.
  std::istringstream fields(text.substr(std::min(text.rfind(')') + 1, text.size())));
  std::string field;
  for (int i = 0; i < 20; ++i) fields >> field;
  long long ticks = 0;  // since the machine started
  if (std::from_chars(field.data(), field.data() + field.size(), ticks).ec != std::errc()) return Clock::now();
  timespec uptime{};
  clock_gettime(CLOCK_BOOTTIME, &uptime);
  const std::chrono::duration<double> age(double(uptime.tv_sec) + 1e-9 * double(uptime.tv_nsec) -
                                          double(ticks) / double(sysconf(_SC_CLK_TCK)));
  return Clock::now() - std::chrono::duration_cast<Clock::duration>(age);
}

std::string start_variable(Clock::time_point start) {
  return std::to_string(std::chrono::duration_cast<std::chrono::nanoseconds>(start.time_since_epoch()).count());
}

std::optional<Clock::time_point> job_start() {
  const char* text = std::getenv("TRIREME_STARTED_NS");
  if (text == nullptr) return std::nullopt;
  long long ns = 0;
  if (std::from_chars(text, text + std::strlen(text), ns).ec != std::errc()) return std::nullopt;
  return Clock::time_point(std::chrono::nanoseconds(ns));
}

}  // namespace trireme::launch
