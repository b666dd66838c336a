#include "trireme/plan/offload_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "trireme/base/text.h"
#include "trireme/plan/step_layouts.h"

namespace trireme::plan {
namespace {

using comm::Axis;
using schedule::OffloadSettings;
using schedule::Tier;
using schedule::ValueKind;

struct Kind {
  Tier OffloadSettings::* tier;
  const char *name, *setting;
  const char* idle;  ///< why there may be nothing of it
};

constexpr const char* kShared = "ranks share all that there is";

// In the order in which they leave.
constexpr std::array<Kind, 5> kKinds = {{
    {&OffloadSettings::optimizer, "moments", "offload.optimizer", "the optimizer keeps no moments"},
    {&OffloadSettings::master, "masters", "offload.master",
     "units compute with the very weights that the optimizer updates"},
    {&OffloadSettings::gradients, "gradients", "offload.gradients",
     "ranks share all that there is, or optimizer.in_backward uses it at once"},
    {&OffloadSettings::activations, "activations", "offload.activations",
     "backward passes follow before copies could leave"},
    {&OffloadSettings::parameters, "parameters", "offload.parameters", kShared},
}};

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

// The kind by which a value of `plan` has left.
Tier OffloadSettings::* kind_of(const StepPlan& plan, const schedule::Value& v) {
  switch (v.kind) {
    case ValueKind::optimizer_first:
    case ValueKind::optimizer_second:
    case ValueKind::compensation:
      return &OffloadSettings::optimizer;
    case ValueKind::master: {
      const GroupStorage& storage = plan.storage[static_cast<size_t>(v.owner)];
      return storage.mixed() && storage.trained ? &OffloadSettings::master : &OffloadSettings::parameters;
    }
    case ValueKind::weights:
    case ValueKind::compute_shard:
      return &OffloadSettings::parameters;
    case ValueKind::gradient:
      return &OffloadSettings::gradients;
    default:
      return v.persistent ? nullptr : &OffloadSettings::activations;  // not the copy for saving
  }
}

// The kinds of which something moves to or from a tier, on any stage. Of groups that have less to divide than there are
// ranks, the last shard owns a part.
std::vector<bool> moving_kinds(const model::Model& model, StepPlan plan) {
  std::vector<bool> moving(kKinds.size());
  plan.request.rank = plan.request.mesh.group(plan.request.rank, {Axis::shard, Axis::cp}).back();
  plan.groups = rank_groups(plan.request);
  for (const schedule::Schedule& list : stage_lists(model, plan, schedule::List::train))
    for (const schedule::Action& a : list.actions) {
      if (!schedule::is_transfer(a.kind)) continue;
      const schedule::Value& v = list.values[static_cast<size_t>(a.owner)];
      const auto kind = std::ranges::find(kKinds, kind_of(plan, v), &Kind::tier);
      if (kind != kKinds.end()) moving[static_cast<size_t>(kind - kKinds.begin())] = true;
    }
  return moving;
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

IdleKinds idle_kinds(const model::Model& model, const StepPlan& plan) {
  IdleKinds idle;
  const OffloadSettings& offload = plan.request.offload;
  const std::vector<bool> moving = moving_kinds(model, plan);
  StepPlan whole = plan;
  whole.request.offload.ratio = 1;
  std::vector<bool> could;  // all of which could move; made where it is asked for
  for (size_t k = 0; k < kKinds.size(); ++k) {
    if (offload.*kKinds[k].tier == Tier::none || moving[k]) continue;
    if (could.empty()) could = offload.ratio < 1 ? moving_kinds(model, whole) : moving;
    idle.sentences.push_back(
        fmt::format("{} has nothing to move: {}", kKinds[k].setting,
                    could[k] ? fmt::format("a share of {:g} (offload.ratio) is less than a group", offload.ratio)
                             : kKinds[k].idle));
  }
  idle.all = offload.any() && std::ranges::none_of(moving, std::identity());
  return idle;
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
  const bool is_small = rungs.front().own < int64_t{1} << 30;
  const char* const unit = is_small ? "MiB" : "GiB";
  const auto in_unit = [&](int64_t bytes) { return double(bytes) / double(int64_t{1} << (is_small ? 20 : 30)); };
  std::string out =
      fmt::format("{:<64}{:>7} {}{:>7} {}{:>7} {}\n", "what leaves", "own", unit, "host", unit, "disk", unit);
  for (const OffloadRung& r : rungs)
    out += fmt::format("{:<64}{:>11.2f}{:>11.2f}{:>11.2f}{}\n", describe(r.offload), in_unit(r.own), in_unit(r.host),
                       in_unit(r.disk), r.own <= own ? "  fits" : "");
  if (rungs.back().own > own)
    out += fmt::format("nothing fits in {}: try --recompute full, a smaller --train.micro_batch_size, or more ranks\n",
                       base::human_bytes(own));
  return out;
}

}  // namespace trireme::plan
