#include "trireme/plan/offload_choice.h"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/text.h"

namespace trireme::plan {
namespace {

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

// The most that a rank of any pipeline stage needs.
OffloadRung measure(const model::Model& model, const StepRequest& request, const OffloadSettings& offload) {
  OffloadRung rung{.offload = offload};
  StepRequest r = request;
  r.offload = offload;
  for (int stage = 0; stage < r.size(comm::Axis::pp); ++stage) {
    r.rank = r.mesh.group(request.rank, {comm::Axis::pp})[static_cast<size_t>(stage)];
    const StepPlan plan = make_step_plan(model, r);
    rung.own = std::max(rung.own, plan.arena.total());
    rung.host = std::max(rung.host, plan.arena.of(schedule::Memory::host));
    rung.disk = std::max(rung.disk, plan.arena.of(schedule::Memory::disk));
  }
  return rung;
}

}  // namespace

std::vector<OffloadRung> offload_rungs(const model::Model& model, const StepRequest& request, int64_t own,
                                       int64_t host) {
  OffloadSettings offload = request.offload;
  for (const Kind& kind : kKinds) offload.*kind.tier = Tier::none;
  std::vector<OffloadRung> rungs{measure(model, request, offload)};
  std::vector<const Kind*> gone;
  for (const Kind& kind : kKinds) {
    if (rungs.back().own <= own) break;
    OffloadSettings next = offload;
    next.*kind.tier = host > 0 ? Tier::cpu : Tier::disk;
    if (!may_leave(request, next)) continue;
    OffloadRung rung = measure(model, request, next);
    if (rung.own == rungs.back().own) continue;  // there is nothing of this kind
    gone.push_back(&kind);
    for (const Kind* first : gone) {
      if (rung.host <= host) break;
      if (next.*first->tier == Tier::disk) continue;
      next.*first->tier = Tier::disk;
      rung = measure(model, request, next);
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
