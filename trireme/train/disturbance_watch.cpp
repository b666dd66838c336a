#include "trireme/train/disturbance_watch.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "trireme/base/checksum.h"
#include "trireme/base/stopwatch.h"
#include "trireme/base/text.h"
#include "trireme/base/usable_cpus.h"
#include "trireme/machine/nvml.h"
#include "trireme/ops/cuda/kernels.h"

namespace trireme::train {
namespace {

constexpr int64_t kStepsTogether = 20;
constexpr double kSlow[] = {0.30, 0.25, 0.15};  // in one look, in each of two in a row, of three
constexpr double kSeconds = 5;  // that a look goes back at least: shorter disturbances come and go

double key_of_cpus() {
  const std::vector<int> cpus = base::usable_cpus();
  constexpr uint64_t kExactInADouble = uint64_t{1} << 53;
  return double(base::checksum(std::as_bytes(std::span(cpus))) % kExactInADouble);
}

}  // namespace

DisturbanceWatch::DisturbanceWatch(Session& session)
    : s_(session),
      gpu_(session.device.is_cuda() ? ops::cuda_kernels().device_bus_id() : ""),
      cpus_(key_of_cpus()),
      before_(observe::read_host_usage()),
      saves_before_(session.saves) {}

std::string DisturbanceWatch::after_step() {
  const observe::StepTime& last = s_.last_step;
  for (const base::Activity a : {base::Activity::products, base::Activity::attention, base::Activity::elementwise})
    compute_ += last.causes[static_cast<size_t>(a)];
  in_steps_ += last.seconds;
  data_ += last.causes[static_cast<size_t>(base::Activity::data)];
  if (++steps_ % kStepsTogether != 0) return "";

  static_assert(std::is_trivially_copyable_v<Figures> && sizeof(Figures) % sizeof(double) == 0);
  constexpr int64_t kNumbers = sizeof(Figures) / sizeof(double);
  const std::optional<observe::HostUsage> now =
      watch_.seconds() >= kSeconds ? std::optional(observe::read_host_usage()) : std::nullopt;
  const Figures mine = figures(now);
  const auto ranks = static_cast<int64_t>(s_.environment.world_size);
  const at::Tensor own = at::empty({kNumbers}, at::kDouble), all = at::empty({ranks * kNumbers}, at::kDouble);
  std::memcpy(own.data_ptr(), &mine, sizeof mine);
  s_.world().all_gather(all, own, std::vector<int64_t>(static_cast<size_t>(ranks), kNumbers))->wait();
  std::vector<Figures> gathered(static_cast<size_t>(ranks));
  std::memcpy(gathered.data(), all.const_data_ptr(), gathered.size() * sizeof mine);
  // Ranks' clocks differ by a little: a look is over when it is due on all of them.
  if (std::ranges::any_of(gathered, [](const Figures& f) { return f.host.seconds <= 0; })) return "";
  const double steps = std::exchange(in_steps_, 0);
  before_ = *now;
  watch_ = base::Stopwatch();
  compute_ = data_ = 0;
  saves_before_ = s_.saves;
  const int64_t number = std::exchange(steps_, 0);
  if (!s_.is_first_rank()) return "";

  std::vector<std::string> lines;
  if (std::string line = slow_rank(gathered, steps, number); !line.empty()) lines.push_back(std::move(line));
  std::vector<observe::HostWindow> hosts;
  for (const Figures& f : gathered) hosts.push_back(f.host);
  for (std::string& line : disturbances_.see(hosts)) lines.push_back(std::move(line));
  return base::join(lines, "\n");
}

DisturbanceWatch::Figures DisturbanceWatch::figures(const std::optional<observe::HostUsage>& now) const {
  Figures f{.compute = compute_, .stage = double(s_.engine->plan().request.coordinate(comm::Axis::pp))};
  f.host.rank = s_.environment.global_rank, f.host.node = s_.environment.node_rank;
  if (!now) return f;  // with zeros: the look is not over
  const observe::HostUsage used = *now - before_;
  if (const auto wait = used.waited_seconds.find(gettid()); wait != used.waited_seconds.end()) f.waited = wait->second;
  const int64_t saves = s_.saves.count - saves_before_.count;
  f.host.seconds = watch_.seconds();
  f.host.step = in_steps_ / double(steps_);
  f.host.data = data_;
  f.host.save = saves > 0 ? (s_.saves.seconds - saves_before_.seconds) / double(saves) : 0;
  f.host.cpus = cpus_;
  f.host.busy = used.busy_seconds, f.host.own = used.own_seconds, f.host.waited = used.longest_wait();
  f.host.throttled = used.throttled_seconds, f.host.disk = used.waited_for_disk(), f.host.stolen = used.stolen_seconds;
  f.host.major_faults = double(used.major_faults), f.host.swapped_bytes = double(used.swapped_bytes);
  f.host.megahertz = used.megahertz;
  if (!gpu_.empty())
    if (const auto gpu = machine::read_gpu(gpu_)) f.host.megahertz = double(gpu->megahertz);
  return f;
}

std::string DisturbanceWatch::slow_rank(const std::vector<Figures>& all, double seconds, int64_t steps) {
  if (all.size() < 2 || s_.device.is_cuda()) return "";  // the host's clock does not see what a GPU does
  std::vector<observe::RankWindow> windows(all.size());
  for (size_t r = 0; r < windows.size(); ++r) {
    windows[r].causes[static_cast<size_t>(base::Activity::products)] = all[r].compute;
    windows[r].stage = all[r].stage;
    windows[r].rank = double(r);
  }
  const observe::SlowRank slow = observe::slow_rank(windows);
  const double rank = slow.rank == nullptr ? -1 : slow.rank->rank;
  // What its thread waited for a core is another program's doing, and is named as that.
  const double lost =
      slow.rank == nullptr ? 0 : std::max(0.0, slow.seconds - all[static_cast<size_t>(slow.rank->rank)].waited);
  const double more = lost > 0 ? lost / slow.median : 0;
  if (std::exchange(suspect_, rank) != rank) looks_ = {};
  std::shift_right(looks_.begin(), looks_.end(), 1);
  looks_[0] = more;
  bool lasts = false;
  double least = more;
  for (size_t i = 0; i < looks_.size(); ++i) {
    least = std::min(least, looks_[i]);
    lasts |= least >= kSlow[i];
  }
  if (!lasts || !named_.insert(suspect_).second) return "";
  return fmt::format(
      "slow     rank {:.0f}{} computed {:.0f} % longer than the others in the last {} steps; they wait for it, "
      "{:.0f} % of a step. Look for other programs there, and compare clocks: trireme doctor",
      slow.rank->rank,
      observe::machine_text(all[static_cast<size_t>(slow.rank->rank)].host.node, s_.environment.num_nodes > 1),
      100 * more, steps, 100 * lost / seconds);
}

}  // namespace trireme::train
