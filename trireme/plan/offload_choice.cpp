#include "trireme/plan/offload_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "trireme/base/text.h"
#include "trireme/plan/stage_plans.h"

namespace trireme::plan {
namespace {

using comm::Axis;
using schedule::OffloadSettings;
using schedule::Tier;

struct Kind {
  Tier OffloadSettings::* tier;
  const char* name;
};

// In the order in which they leave.
constexpr Kind kKinds[] = {{&OffloadSettings::optimizer, "moments"},
                           {&OffloadSettings::master, "masters"},
                           {&OffloadSettings::gradients, "gradients"},
                           {&OffloadSettings::activations, "activations"},
                           {&OffloadSettings::parameters, "parameters"}};

bool may_leave(const StepRequest& r, const OffloadSettings& offload) {
  return !check_offload(r.strategy, r.num_shards(), int64_t{r.num_shards()} * r.num_replicas(), offload);
}

// What a rank's plan depends on beside the request: its stage, its place inside units, and how much it owns and reduces
// of each group.
std::vector<int64_t> likeness_of(const StepPlan& plan, const StepRequest& r) {
  std::vector<int64_t> likeness = {r.coordinate(Axis::pp), r.coordinate(Axis::tp)};
  const int part = r.shard_index() * r.num_replicas() + r.replica_index(), parts = r.num_shards() * r.num_replicas();
  for (const shard::FlatLayout& layout : plan.layouts) {
    likeness.push_back(layout.owned(r.shard_index(), r.num_shards()).size());
    likeness.push_back(layout.owned(part, parts).size());
  }
  return likeness;
}

}  // namespace

UnlikeRanks::UnlikeRanks(const BuildModel& build, const StepRequest& request) {
  std::vector<StepPlan> plans;  // one for each model, for its layouts
  std::set<std::vector<int64_t>> known;
  for (int rank = 0; rank < request.mesh.world_size(); ++rank) {
    const StepRequest r = request.of_rank(rank);
    const model::Parallel parallel = r.parallel();
    auto model = std::ranges::find_if(models_, [&](const auto& m) { return m->parallel == parallel; });
    if (model == models_.end()) {
      models_.push_back(std::make_unique<model::Model>(build(r)));
      model = models_.end() - 1;
      plans.push_back(plan_without_lists(**model, r));
    }
    if (known.insert(likeness_of(plans[static_cast<size_t>(model - models_.begin())], r)).second)
      ranks_.push_back({model->get(), r});
  }
}

OffloadRung UnlikeRanks::measure(const OffloadSettings& offload) const {
  OffloadRung rung{.offload = offload};
  for (const Rank& rank : ranks_) {
    StepRequest r = rank.request;
    r.offload = offload;
    const StepPlan plan = make_step_plan(*rank.model, r);
    rung.own = std::max(rung.own, plan.arena.total());
    rung.host = std::max(rung.host, plan.arena.of(schedule::Memory::host));
    rung.disk = std::max(rung.disk, plan.arena.of(schedule::Memory::disk));
  }
  return rung;
}

std::vector<OffloadRung> offload_rungs(const UnlikeRanks& ranks, int64_t own, int64_t host) {
  OffloadSettings offload = ranks.request().offload;
  for (const Kind& kind : kKinds) offload.*kind.tier = Tier::none;
  std::vector<OffloadRung> rungs{ranks.measure(offload)};
  std::vector<const Kind*> gone;
  for (const Kind& kind : kKinds) {
    if (rungs.back().own <= own) break;
    OffloadSettings next = offload;
    next.*kind.tier = host > 0 ? Tier::cpu : Tier::disk;
    if (!may_leave(ranks.request(), next)) continue;
    OffloadRung rung = ranks.measure(next);
    if (rung.own == rungs.back().own) continue;  // there is nothing of this kind
    gone.push_back(&kind);
    for (const Kind* first : gone) {
      if (rung.host <= host) break;
      if (next.*first->tier == Tier::disk) continue;
      next.*first->tier = Tier::disk;
      rung = ranks.measure(next);
    }
    offload = next;
    rungs.push_back(rung);
  }
  return rungs;
}

std::string describe(const OffloadSettings& offload) {
  std::string out;
  for (const auto& [tier, where] : {std::pair{Tier::cpu, "in host memory"}, {Tier::disk, "on disk"}}) {
    std::vector<std::string> names;
    for (const Kind& kind : kKinds)
      if (offload.*kind.tier == tier) names.emplace_back(kind.name);
    if (!names.empty()) out += fmt::format("{}{} {}", out.empty() ? "" : ", ", base::join(names, ", "), where);
  }
  return out.empty() ? "nothing" : out;
}

std::string render_rungs(const std::vector<OffloadRung>& rungs, int64_t own) {
  const auto gib = [](int64_t bytes) { return double(bytes) / double(int64_t{1} << 30); };
  std::string out = fmt::format("{:<64}{:>11}{:>11}{:>11}\n", "what leaves", "own GiB", "host GiB", "disk GiB");
  for (const OffloadRung& r : rungs)
    out += fmt::format("{:<64}{:>11.2f}{:>11.2f}{:>11.2f}{}\n", describe(r.offload), gib(r.own), gib(r.host),
                       gib(r.disk), r.own <= own ? "  fits" : "");
  if (rungs.back().own > own)
    out += fmt::format("nothing fits in {}: try --recompute full, a smaller --train.micro_batch_size, or more ranks\n",
                       base::human_bytes(own));
  return out;
}

}  // namespace trireme::plan
