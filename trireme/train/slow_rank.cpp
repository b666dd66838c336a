#include "trireme/train/slow_rank.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <vector>

#include "trireme/observe/diagnosis.h"

namespace trireme::train {
namespace {

constexpr int64_t kStepsTogether = 20;
constexpr double kSlow = 0.15;

}  // namespace

std::string SlowRankWatch::after_step() {
  const auto ranks = static_cast<int64_t>(s_.environment.world_size);
  if (ranks < 2 || s_.device.is_cuda()) return "";  // the host's clock does not see what a GPU does
  const StepTime& last = s_.last_step;
  for (const base::Activity a : {base::Activity::products, base::Activity::attention, base::Activity::elementwise})
    compute_ += last.causes[static_cast<size_t>(a)];
  step_ += last.seconds;
  if (++steps_ % kStepsTogether != 0) return "";

  const double mine[] = {compute_, double(s_.engine->plan().request.coordinate(comm::Axis::pp)),
                         double(s_.environment.node_rank)};
  constexpr auto kNumbers = static_cast<int64_t>(std::size(mine));
  const at::Tensor own = at::empty({kNumbers}, at::kDouble), all = at::empty({ranks * kNumbers}, at::kDouble);
  std::copy(std::begin(mine), std::end(mine), own.data_ptr<double>());
  s_.world().all_gather(all, own, std::vector<int64_t>(static_cast<size_t>(ranks), kNumbers))->wait();
  const double step = step_ / double(kStepsTogether);
  compute_ = step_ = 0;
  if (!s_.is_first_rank()) return "";
  std::vector<observe::RankWindow> windows(static_cast<size_t>(ranks));
  const double* number = all.data_ptr<double>();
  for (size_t r = 0; r < windows.size(); ++r, number += kNumbers) {
    windows[r].causes[static_cast<size_t>(base::Activity::products)] = number[0];
    windows[r].stage = number[1];
    windows[r].rank = double(r);
  }
  const observe::SlowRank slow = observe::slow_rank(windows);
  if (slow.rank == nullptr || slow.seconds < kSlow * slow.median || slow.rank->rank == named_) return "";
  named_ = slow.rank->rank;
  const int64_t machine = int64_t(all.data_ptr<double>()[int64_t(named_) * kNumbers + 2]);
  return fmt::format(
      "slow     rank {:.0f}{} computed {:.0f} % longer than the others in the last {} steps; they wait for it, "
      "{:.0f} % of a step. Look for other programs there, and compare clocks: trireme doctor",
      named_, s_.environment.num_nodes > 1 ? fmt::format(" (machine {})", machine) : "",
      100 * slow.seconds / slow.median, kStepsTogether, 100 * slow.seconds / double(kStepsTogether) / step);
}

}  // namespace trireme::train
