#include "trireme/bench/machine.h"

#include <fmt/format.h>
#include <sys/utsname.h>
#include <torch/headeronly/version.h>
#include <unistd.h>

#include <ctime>
#include <iterator>
#include <thread>

#include "trireme/base/text.h"
#include "trireme/base/usable_cpus.h"

namespace trireme::bench {

std::string machine_name() {
  utsname name{};
  uname(&name);
  const int64_t bytes = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGE_SIZE);
  return fmt::format("{} {} {}, {}", name.sysname, name.release, name.machine, base::human_bytes(bytes));
}

int64_t machine_cores() { return sysconf(_SC_NPROCESSORS_ONLN); }

int64_t usable_cores() {
  const auto cpus = std::ssize(base::usable_cpus());
  return cpus > 0 ? cpus : std::thread::hardware_concurrency();
}

std::string libtorch_version() { return TORCH_VERSION; }

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

}  // namespace trireme::bench
