// What a StepPlan says of its groups and units: who holds which elements, sizes, and places of sums.
#include <algorithm>

#include "trireme/base/round_up.h"
#include "trireme/optim/adafactor.h"
#include "trireme/optim/by_tensor.h"
#include "trireme/plan/step_plan.h"

namespace trireme::plan {

using comm::Axis;
using schedule::List;

model::UnitValues StepPlan::values_of(int unit, List list) const {
  const model::Unit& u = model->unit(unit, list == List::generate);
  return list == List::generate ? u.generation_values(request.generation, request.precision)
                                : u.values(request.shape, request.precision);
}

int64_t StepPlan::cache_bytes(int unit) const {
  return 2 * request.generation.pages * ops::kAttentionPage * model->unit(unit, true).cache_width() *
         static_cast<int64_t>(c10::elementSize(request.precision.compute));
}

shard::Range StepPlan::held(int g) const { return layouts[g].owned(request.shard_index(), request.num_shards()); }

shard::Range StepPlan::reduced(int g) const {
  if (request.whole_gradients()) return {0, layouts[g].numel()};
  if (request.reduce == Reduce::fast) return held(g);
  return layouts[g].owned(index_in(groups.reduce, request.rank), static_cast<int>(groups.reduce.size()));
}

// Replicas share the work; of the stages that hold tied weights, the first writes them.
shard::Range StepPlan::saved(int g) const {
  if (holders(g).front() != request.coordinate(Axis::pp)) return {};
  const int parts = request.num_shards() * request.num_replicas();
  return layouts[g].owned(request.shard_index() * request.num_replicas() + request.replica_index(), parts);
}

// Weight matrices decay, but not padding, norms and biases.
std::vector<optim::DecaySegment> StepPlan::segments(int g) const {
  const shard::Range range = held(g);
  std::vector<optim::DecaySegment> segments;
  int64_t at = range.begin;
  const auto cut = [&](int64_t end, const model::ParameterSpec* parameter) {
    end = std::min(end, range.end);
    if (end > at)
      segments.push_back({.begin = at - range.begin,
                          .end = end - range.begin,
                          .decay = parameter != nullptr && parameter->decay,
                          .rate = parameter != nullptr ? parameter->rate : 1,
                          .weight_decay = parameter != nullptr ? parameter->weight_decay : std::nullopt,
                          .parameter = parameter});
    at = std::max(at, end);
  };
  for (size_t i = 0; i < layouts[g].tensors().size(); ++i) {
    const shard::FlatTensor& t = layouts[g].tensors()[i];
    cut(t.offset, nullptr);
    cut(t.offset + t.numel, &model->groups[g].parameters[i]);
  }
  cut(layouts[g].numel(), nullptr);
  return segments;
}

int64_t StepPlan::step_tile(int g) const {
  constexpr int64_t kLeastElements = int64_t{1} << 20, kMostTiles = 512;
  const schedule::OffloadSettings& o = request.offload;
  const bool leaves = o.optimizer != schedule::Tier::none || o.master != schedule::Tier::none;
  const bool has_tiles = !storage[g].optimizer_state.empty() || storage[g].compensated || storage[g].mixed();
  if (!leaves || !has_tiles || !storage[g].trained || optim::is_by_tensor(storage[g].rule)) return 0;
  int64_t all = 0;
  for (int other = 0; other < std::ssize(layouts); ++other) all += held(other).size();
  const int64_t tile = base::round_up(std::max(kLeastElements, all / kMostTiles), shard::kBlockElements);
  return held(g).size() > tile ? tile : 0;
}

shard::Range StepPlan::tile(int g, int part) const {
  const int64_t each = step_tile(g), all = held(g).size();
  return each == 0 ? shard::Range{0, all} : shard::Range{part * each, std::min(all, (part + 1) * each)};
}

int64_t StepPlan::whole_state_bytes(int g) const {
  if (!storage[g].trained) return 0;
  return optim::whole_state_elements(storage[g].rule, segments(g)) *
         static_cast<int64_t>(c10::elementSize(storage[g].master));
}

std::vector<model::TrafficRow> StepPlan::step_traffic(int g) const {
  if (!storage[g].trained || request.size(Axis::tp) == 1) return {};
  return optim::step_traffic(storage[g].rule, segments(g), storage[g].master);
}

int64_t StepPlan::save_copy_bytes(int g) const {
  return schedule::aligned(saved(g).size() * static_cast<int64_t>(c10::elementSize(storage[g].master)));
}

int64_t StepPlan::save_copy_bytes(const std::vector<int>& of_groups) const {
  int64_t bytes = 0;
  for (int g : of_groups)
    bytes += static_cast<int64_t>(1 + storage[g].optimizer_state.size() + storage[g].compensated) * save_copy_bytes(g) +
             schedule::aligned(whole_state_bytes(g));
  return bytes;
}

std::vector<int64_t> StepPlan::gather_counts(int g) const { return layouts[g].counts(request.num_shards()); }
std::vector<int64_t> StepPlan::reduce_counts(int g) const {
  return layouts[g].counts(static_cast<int>(groups.reduce.size()));
}
std::vector<int64_t> StepPlan::replica_counts(int g) const {
  const int replicas = request.num_replicas(), parts = request.num_shards() * replicas;
  std::vector<int64_t> counts;
  for (int r = 0; r < replicas; ++r)
    counts.push_back(layouts[g].owned(request.shard_index() * replicas + r, parts).size());
  return counts;
}

int64_t StepPlan::num_sums(int unit) const {
  return std::ssize(model->units[unit]->measures()) + (unit + 1 == std::ssize(model->units) ? 1 : 0);
}

int StepPlan::stage_rank_of(int unit) const {
  const auto after = std::upper_bound(first_unit.begin(), first_unit.end(), unit);
  return stages.rank_of(static_cast<int>(after - first_unit.begin()) - 1);
}

int64_t StepPlan::lent_begin() const {
  return schedule::aligned(arena.persistent[static_cast<size_t>(schedule::Memory::own)]);
}

int64_t StepPlan::first_sum(int unit) const {
  int64_t before = 0;
  for (int u = 0; u < unit; ++u)
    if (stage_rank_of(u) == stage_rank_of(unit)) before += num_sums(u);
  return before;
}

int64_t StepPlan::sums_of_rank(int stage_rank) const {
  int64_t sums = 0;
  for (int u = 0; u < static_cast<int>(model->units.size()); ++u)
    if (stage_rank_of(u) == stage_rank) sums += num_sums(u);
  return sums;
}

}  // namespace trireme::plan
