#include "trireme/launch/launch.h"

#include <fmt/format.h>

#include <system_error>

#include "trireme/base/error.h"
#include "trireme/launch/supervisor.h"

namespace trireme::launch {
namespace {

constexpr int kMostRanksOnOneHost = 1024;

void check(const LaunchOptions& options) {
  if (options.num_ranks < 1 || options.num_ranks > kMostRanksOnOneHost) {
    throw UsageError(
        fmt::format("cannot start {} ranks: --devices takes 1 to {}", options.num_ranks, kMostRanksOnOneHost));
  }
  if (options.threads_per_rank < 0) {
    throw UsageError(fmt::format("{} threads a rank make no sense: take 1 or more, or 0 for cores / ranks",
                                 options.threads_per_rank));
  }
  for (const int rank : options.log_ranks) {
    const int first = options.nodes.rank * options.num_ranks, last = first + options.num_ranks - 1;
    if (rank < first || rank > last)
      throw UsageError(fmt::format("cannot show the output of rank {}: the ranks are {} to {}", rank, first, last));
  }
}

}  // namespace

int launch_ranks(const LaunchOptions& options) {
  check(options);
  if (!options.out_dir.empty()) {
    const auto logs = options.out_dir / "logs";
    std::error_code error;
    std::filesystem::create_directories(logs, error);
    if (error) {
      throw UsageError(fmt::format("cannot make the folder {} for the ranks' logs: {}; choose another --out_dir",
                                   logs.string(), error.message()));
    }
  }
  return Supervisor(options).run();
}

}  // namespace trireme::launch
