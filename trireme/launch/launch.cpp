#include "trireme/launch/launch.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <system_error>
#include <thread>

#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/launch/stop_signal.h"
#include "trireme/launch/supervisor.h"

namespace trireme::launch {
namespace {

constexpr int kMostRanksOnOneHost = 1024;
constexpr auto kFirstPause = std::chrono::seconds(1), kLongestPause = std::chrono::seconds(60);

int note(const std::string& text, int code = 0) {
  base::info("{}", text);
  return code;
}

void check(const LaunchOptions& options) {
  if (options.num_ranks < 1 || options.num_ranks > kMostRanksOnOneHost) {
    throw UsageError(
        fmt::format("cannot start {} ranks: --devices takes 1 to {}", options.num_ranks, kMostRanksOnOneHost));
  }
  if (options.threads_per_rank < 0) {
    throw UsageError(fmt::format("{} threads a rank make no sense: take 1 or more, or 0 for cores / ranks",
                                 options.threads_per_rank));
  }
  if (options.max_restarts < 0) throw UsageError(fmt::format("{} restarts make no sense", options.max_restarts));
  if (options.max_restarts > 0 && options.nodes.count > 1)
    throw UsageError(
        "restarts are for the ranks of one machine; over several machines let the scheduler start the job again");
  for (const int rank : options.log_ranks) {
    const int last = options.nodes.count * options.num_ranks - 1;
    if (rank < 0 || rank > last)
      throw UsageError(fmt::format("cannot show the output of rank {}: the ranks are 0 to {}", rank, last));
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
  std::string failed_before;
  for (int restarts = 0;; ++restarts) {
    std::optional<std::string> failure;
    const int code = Supervisor(options, restarts).run(failure);
    if (!failure || options.max_restarts == 0) return code;
    if (*failure == failed_before)
      return note(fmt::format("not started again: {}, for the second time", *failure), code);
    if (restarts == options.max_restarts)
      return note(fmt::format("not started again: {} used up",
                              restarts == 1 ? "the one restart is" : fmt::format("all {} restarts are", restarts)),
                  code);
    failed_before = *failure;
    const std::chrono::seconds pause = std::min(kLongestPause, kFirstPause * (1 << std::min(restarts, 10)));
    note(fmt::format("restart {} of {} in {} s", restarts + 1, options.max_restarts, pause.count()));
    for (const auto until = std::chrono::steady_clock::now() + pause; std::chrono::steady_clock::now() < until;) {
      if (stop_requested()) return note("stopped while waiting for the restart", kStoppedEarly);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }
}

}  // namespace trireme::launch
