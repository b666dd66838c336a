#include "trireme/launch/identity/start_time.h"

#include <time.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <cstring>

#include "trireme/base/process.h"

namespace trireme::launch {

using Clock = std::chrono::steady_clock;

Clock::time_point process_start() {
  const auto ticks = base::process_start_ticks(getpid());  // since the machine's boot
  if (!ticks) return Clock::now();
  timespec uptime{};
  clock_gettime(CLOCK_BOOTTIME, &uptime);
  const std::chrono::duration<double> age(double(uptime.tv_sec) + 1e-9 * double(uptime.tv_nsec) -
                                          double(*ticks) / double(sysconf(_SC_CLK_TCK)));
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
