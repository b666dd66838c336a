// Gathers whole weights before their readers: before each use for ZeRO-3 (full_shard), once a step for ZeRO-1 and
// ZeRO-2.
//
// An Unshard stands some computations before its reader (Prefetch). Readers of a group that are at most so far apart
// share one Unshard: a second Unshard would start before the bytes of the first are free.
#include <algorithm>
#include <map>

#include "trireme/schedule/draft.h"

namespace trireme::schedule {
namespace {

struct Instance {
  int group, number;
  int first_reader, last_reader;  // indices among computations
  int start = 0;
};

int depth_of(const Draft& reader, const Prefetch& p) {
  if (reader.kind == ActionKind::forward) return p.forward ? p.depth : 0;
  return p.backward == PrefetchBackward::pre ? p.depth : 0;
}

// Starts gathers later, so that what is unsharded at the same time fits the limit.
void hold_back(std::vector<Instance>& all, const StepDeclaration& step) {
  if (step.prefetch.limit <= 0) return;
  std::vector<size_t> near;  // earlier ones that may still be held: no later one starts before its reader's prefetch
  for (size_t i = 0; i < all.size(); ++i) {
    const int earliest = all[i].first_reader - step.prefetch.depth;
    std::erase_if(near, [&](size_t k) { return all[k].last_reader < earliest; });
    for (; all[i].start < all[i].first_reader; ++all[i].start) {
      int64_t beside = step.groups[all[i].group].numel;
      for (const size_t k : near)
        if (all[k].start <= all[i].start && all[i].start <= all[k].last_reader)
          beside += step.groups[all[k].group].numel;
      if (beside <= step.prefetch.limit) break;
    }
    if (i > 0) all[i].start = std::max(all[i].start, std::min(all[i - 1].start, all[i].first_reader));
    near.push_back(i);
  }
}

}  // namespace

void insert_unshards(DraftList& list, const StepDeclaration& step) {
  if (step.sharding.gather == Gather::never) return;
  const bool once = step.sharding.gather == Gather::once;
  std::vector<Draft*> readers;
  for (Draft& d : list.drafts)
    if (is_computation(d.kind)) readers.push_back(&d);
  std::vector<Instance> all;
  std::map<int, int> latest, count;  // group -> its latest instance in `all`, number of instances
  for (int k = 0; k < static_cast<int>(readers.size()); ++k) {
    const UnitDeclaration& unit = step.units[readers[k]->owner];
    for (int g : unit.groups_read_by(readers[k]->kind)) {
      const auto held = latest.find(g);
      if (held == latest.end() || (!once && k - all[held->second].last_reader > step.prefetch.depth + 1)) {
        latest[g] = static_cast<int>(all.size());
        all.push_back({g, count[g]++, k, k, std::max(0, k - depth_of(*readers[k], step.prefetch))});
      }
      all[latest[g]].last_reader = k;
      readers[k]->parameters[g] = all[latest[g]].number;
    }
  }
  hold_back(all, step);
  std::map<int, std::vector<Draft>> before;  // draft id -> unshards that start there
  for (const Instance& i : all) {
    const Draft& reader = *readers[i.first_reader];
    Draft u = list.make(ActionKind::unshard, i.group, reader.micro_batch);
    u.instance = i.number;
    u.completes_before = reader.id;
    u.before_reduction = step.prefetch.backward == PrefetchBackward::post && reader.kind != ActionKind::forward;
    before[readers[i.start]->id].push_back(std::move(u));
  }
  std::vector<Draft> out;
  for (Draft& d : list.drafts) {
    const auto found = before.find(d.id);
    if (found != before.end())
      for (Draft& u : found->second) out.push_back(std::move(u));
    out.push_back(std::move(d));
  }
  list.drafts = std::move(out);
}

Prefetch prefetch_of(const ScheduleSettings& settings) {
  return {.depth = static_cast<int>(settings.prefetch),
          .forward = settings.prefetch_forward,
          .backward = settings.prefetch_backward,
          .limit = settings.limit_unsharded.value_or(0)};
}

}  // namespace trireme::schedule
