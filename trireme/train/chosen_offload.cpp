#include "trireme/train/chosen_offload.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/checkpoint/agree.h"
#include "trireme/costs/copy_distance.h"
#include "trireme/costs/hardware.h"
#include "trireme/plan/step_layouts.h"
#include "trireme/train/setup.h"

namespace trireme::train {
namespace {

using Fits = std::function<bool(int64_t distance)>;

// The distance that predicted steps ask for, or why there is no prediction.
struct Foretold {
  int64_t distance = 1;
  std::string why_not;
};

Foretold foretell(const Settings& settings, const model::Model& model, const plan::StepPlan& plan, const Fits& fits) {
  if (settings.num_nodes > 1) return {.why_not = "steps on several machines are not predicted"};
  try {
    const costs::Machines machines{.hardware = costs::read_hardware("this"),
                                   .ranks = plan.request.mesh.world_size(),
                                   .threads = at::get_num_threads()};
    return {.distance = costs::choose_distance(costs::steps_by_distance(model, plan, machines), fits)};
  } catch (const UsageError& error) {  // no file, or one without a figure that these values need
    constexpr std::string_view kError = "error: ";
    const std::string_view text = error.what();
    return {.why_not = std::string(text.starts_with(kError) ? text.substr(kError.size()) : text)};
  }
}

// Values of a GPU leave to host memory alone.
void require_host(int64_t needed, int64_t given) {
  if (needed <= given) return;
  const bool is_small = needed < int64_t{1} << 30;
  const int64_t unit = int64_t{1} << (is_small ? 20 : 30);
  throw UsageError(
      fmt::format("offload.fit: GPUs cannot use a disk, and {} of a rank have to leave; offload.host {}{} fits",
                  base::human_bytes(needed), (needed + unit - 1) / unit, is_small ? "MiB" : "GiB"));
}

ChosenOffload choose(const Settings& settings, const model::ModelConfig& config, int num_ranks) {
  ChosenOffload chosen{.offload = settings.offload};
  chosen.offload.fit.reset();
  chosen.offload.prefetch = settings.offload.distance();
  plan::StepRequest request = request_without_offload(settings, config, 0, num_ranks);
  request.offload = chosen.offload;
  const auto build = [&](const plan::StepRequest& r) { return build_run_model(settings, config, r); };
  std::optional<plan::UnlikeRanks> ranks;
  if (settings.offload.fit) {
    ranks.emplace(build, request);
    const bool has_disk = settings.accelerator == engine::Accelerator::cpu;
    chosen.rungs = plan::offload_rungs(*ranks, *settings.offload.fit,
                                       has_disk ? settings.offload.host : std::numeric_limits<int64_t>::max());
    request.offload = chosen.offload = chosen.rungs.back().offload;
    if (chosen.rungs.back().own > *settings.offload.fit) return chosen;
    if (!has_disk) require_host(chosen.rungs.back().host, settings.offload.host);
  }
  if (!chosen.offload.any()) return chosen;
  const model::Model model = build(request);
  plan::StepPlan plan = plan::plan_without_lists(model, request);
  if (!settings.offload.fit) {
    const plan::IdleKinds idle = plan::idle_kinds(model, plan);
    if (idle.all)
      throw UsageError(fmt::format("nothing leaves a rank's memory: {}; leave {} out", base::join(idle.sentences, "; "),
                                   idle.sentences.size() == 1 ? "it" : "them"));
    chosen.remarks = idle.sentences;
  }
  if (settings.offload.prefetch) return chosen;
  const Foretold foretold = foretell(settings, model, plan, [&](int64_t distance) {
    if (!ranks) return true;
    schedule::OffloadSettings tried = chosen.offload;
    tried.prefetch = distance;
    return ranks->measure(tried).own <= *settings.offload.fit;
  });
  chosen.offload.prefetch = foretold.distance;
  chosen.distance = fmt::format("copies begin {} ahead", base::plural(foretold.distance, "computation"));
  if (!foretold.why_not.empty()) chosen.remarks.push_back("offload.prefetch auto is 1: " + foretold.why_not);
  return chosen;
}

}  // namespace

ChosenOffload choose_offload(const Settings& settings, const model::ModelConfig& model, int num_ranks) {
  const schedule::OffloadSettings& o = settings.offload;
  if (!o.fit && !o.any()) return {.offload = o};
  static std::mutex mutex;
  struct Known {
    Settings settings;
    int threads;  ///< attention's scratch is planned for each
    ChosenOffload chosen;
  };
  static std::optional<Known> last;  // several functions ask for the same
  const std::lock_guard lock(mutex);
  if (!last || !(last->settings == settings) || last->threads != at::get_num_threads())
    last = Known{settings, at::get_num_threads(), choose(settings, model, num_ranks)};
  return last->chosen;
}

void require_same_distance(comm::Communicator& world, int64_t distance) {
  const std::vector<int64_t> each(static_cast<size_t>(world.size()), 1);
  std::vector<int64_t> all = checkpoint::all_gather_numbers(world, std::array{distance}, each);
  std::erase(all, 0);
  if (all.empty()) return;
  const auto [least, most] = std::ranges::minmax(all);
  if (least == most) return;
  throw UsageError(
      fmt::format("offload.prefetch auto is {} on some ranks and {} on others: they read different files of trireme "
                  "bench calibrate; say it, for instance --offload.prefetch {}",
                  least, most, least));
}

}  // namespace trireme::train
