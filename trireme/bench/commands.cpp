#include "trireme/bench/commands.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <cstdio>

#include "trireme/base/named_file.h"

namespace trireme::bench {

void deliver(const Report& report, const Settings& settings) {
  fmt::print("{}", table_text(report));
  std::fflush(stdout);
  if (!settings.bench.json) return;
  base::write_named_file(*settings.bench.json, to_json(report));
  fmt::print("\nwrote {}\n", *settings.bench.json);
}

int use_threads(const Settings& settings) {
  const auto threads = static_cast<int>(settings.bench.threads.value_or(1));
  at::set_num_threads(threads);
  return threads;
}

}  // namespace trireme::bench
