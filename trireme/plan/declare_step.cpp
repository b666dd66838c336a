#include "trireme/plan/declare_step.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "trireme/optim/by_tensor.h"

namespace trireme::plan {

using comm::Axis;
using schedule::List;

namespace {

std::vector<schedule::TensorDeclaration> declare(const model::Slots& specs) {
  std::vector<schedule::TensorDeclaration> out;
  for (const model::TensorSpec& s : specs) out.push_back({s.name, s.bytes()});
  return out;
}

// The strategies, as the passes see them.
schedule::Sharding sharding_of(const StepRequest& r) {
  schedule::Sharding s;
  s.several_ranks = r.num_shards() * r.num_replicas() > 1;
  s.ordered = r.reduce == Reduce::ordered;
  s.local = r.accumulation == Accumulation::local;
  s.whole_gradients = r.whole_gradients();
  if (r.num_shards() > 1)
    s.gather = on_one_copy(r.strategy) == Strategy::full_shard ? schedule::Gather::each_use : schedule::Gather::once;
  s.replicas = !s.whole_gradients && r.num_replicas() > 1;
  return s;
}

std::vector<int> recomputed(const model::Unit& unit, const StepRequest& r, int& index_of_saver) {
  if (r.recompute.mode == schedule::Recompute::none) return {};
  if (unit.values(r.shape, r.precision).saved.empty()) return {};
  if (index_of_saver++ % r.recompute.every != 0) return {};
  const bool full = r.recompute.mode == schedule::Recompute::full;
  if (!full && unit.recomputable().empty()) return {};
  return model::recompute_set(unit, r.shape, r.precision, full ? std::vector<std::string>{} : r.recompute.values);
}

// The axes that these passes communicate on.
comm::PerUnitAxis<bool> met_by(std::initializer_list<const std::vector<model::TrafficRow>*> passes) {
  comm::PerUnitAxis<bool> met;
  for (const auto* rows : passes)
    for (const model::TrafficRow& row : *rows) met[row.axis] = true;
  return met;
}

// The share of a unit's parameters that is trained: only these have a weight gradient.
double trained_share(const model::Model& model, size_t unit) {
  double trained = 0, all = 0;
  for (const model::ParameterPlace& place : model.places[unit]) {
    const model::ParameterGroup& group = model.groups[static_cast<size_t>(place.group)];
    const auto numel = double(group.parameters[static_cast<size_t>(place.index)].numel());
    all += numel;
    if (group.trained) trained += numel;
  }
  return all > 0 ? trained / all : 1;
}

// Of a unit's groups, those of which its backward reads no parameter.
std::vector<int> forward_groups(const model::Model& model, size_t unit) {
  std::vector<int> groups = model.groups_of(static_cast<int>(unit));
  for (size_t i = 0; i < model.places[unit].size(); ++i)
    if (model.units[unit]->reads_in_backward(static_cast<int>(i))) std::erase(groups, model.places[unit][i].group);
  return groups;
}

// Spreads what leaves evenly over the groups, by bytes.
void choose_groups(schedule::StepDeclaration& d) {
  double owed = 0;
  for (schedule::GroupDeclaration& g : d.groups) {
    const double bytes = double(g.owned * g.state_bytes);
    owed += d.offload.ratio * bytes;
    g.leaves = owed >= bytes / 2;
    if (g.leaves) owed -= bytes;
  }
}

}  // namespace

std::vector<schedule::UnitDeclaration> declare_units(const model::Model& model, const StepPlan& plan, List list) {
  const StepRequest& r = plan.request;
  const bool train = schedule::traits_of(list).trains, generate = list == List::generate;
  const model::BatchShape shape = r.shape_of(list);
  std::vector<schedule::UnitDeclaration> units;
  int savers = 0;
  for (size_t u = 0; u < model.units.size(); ++u) {
    const model::Unit& unit = model.unit(static_cast<int>(u), generate);
    if (!r.wants(list)) {  // only what persistent values depend on
      units.push_back({.name = unit.name(),
                       .groups = model.groups_of(static_cast<int>(u)),
                       .num_measures = static_cast<int>(unit.measures().size())});
      continue;
    }
    const model::UnitValues v = plan.values_of(static_cast<int>(u), list);
    model::UnitTraffic traffic = unit.traffic(shape, r.precision);
    if (generate) traffic = {.forward = unit.generation_traffic(r.generation, r.precision)};
    const double flops = unit.forward_flops(shape);
    const std::vector<int> groups = model.groups_of(static_cast<int>(u));
    // With nothing to train there is no weight half: backward is the input half.
    const bool trains = std::ranges::any_of(groups, [&](int g) { return model.groups[g].trained; });
    units.push_back({.name = unit.name(),
                     .groups = groups,
                     .forward_groups = forward_groups(model, u),
                     .output_bytes = v.output.bytes(),
                     .cache_bytes = generate ? plan.cache_bytes(static_cast<int>(u)) : 0,
                     .saved = declare(v.saved),
                     .forward_work = declare(v.forward_work),
                     .backward_work = declare(v.backward_work),
                     .deferred = declare(v.deferred),
                     .input_work = declare(v.input_work),
                     .weight_work = declare(v.weight_work),
                     .saved_for_weight = v.saved_for_weight,
                     .recomputed = train ? recomputed(unit, r, savers) : std::vector<int>{},
                     .reads_documents = unit.reads_documents(),
                     .reads_targets = unit.reads_targets(),
                     .num_measures = static_cast<int>(unit.measures().size()),
                     .backward_includes_forward = unit.backward_includes_forward(),
                     .splits_backward = unit.splits_backward() && trains,
                     .meets = met_by({&traffic.forward, &traffic.backward}),
                     .meets_in_weight_half = met_by({&traffic.backward_weight}),
                     .forward_cost = flops,
                     .input_cost = flops,
                     .weight_cost = flops * trained_share(model, u),
                     .recompute_cost = flops});
  }
  return units;
}

schedule::StepDeclaration declare_step(const model::Model& model, const StepPlan& plan, List list,
                                       std::vector<schedule::UnitDeclaration> units) {
  const StepRequest& r = plan.request;
  schedule::StepDeclaration d;
  d.is_wanted = r.wants(list);
  const model::BatchShape shape = r.shape_of(list);
  d.units = std::move(units);
  for (int g = 0; g < static_cast<int>(plan.layouts.size()); ++g) {
    const GroupStorage& storage = plan.storage[g];
    d.groups.push_back({.name = plan.layouts[g].name(),
                        .numel = plan.layouts[g].numel(),
                        .owned = plan.held(g).size(),
                        .tied_over_stages = plan.holders(g).size() > 1,
                        .trained = storage.trained,
                        .compute_bytes = static_cast<int64_t>(c10::elementSize(storage.compute)),
                        .state_bytes = static_cast<int64_t>(c10::elementSize(storage.master)),
                        .slot_bytes = static_cast<int64_t>(c10::elementSize(plan.request.precision.gradient())),
                        .gradient_bytes = static_cast<int64_t>(c10::elementSize(storage.gradient)),
                        .optimizer_state = storage.optimizer_state,
                        .compensated = storage.compensated,
                        .whole_state_bytes = plan.whole_state_bytes(g),
                        .step_tile = plan.step_tile(g),
                        .step_work_bytes = storage.trained ? optim::step_work_bytes(storage.rule, plan.segments(g),
                                                                                    storage.master, storage.compute)
                                                           : 0});
    d.groups.back().meets_in_step[comm::UnitAxis::tp] = storage.trained && r.size(Axis::tp) > 1 &&
                                                        optim::is_by_tensor(storage.rule) &&
                                                        storage.rule != optim::Rule::adamw8bit;  // it has no sums
  }
  d.sharding = sharding_of(r);
  d.num_micro_batches = r.micro_batches(list);
  d.input_bytes = model.inputs(shape, list == List::generate).bytes();
  d.target_bytes = model.targets(shape, list == List::generate).bytes();
  if (r.documents_of(list).any()) d.document_bytes = model::documents_of(shape).bytes();
  d.prefetch = r.prefetch;
  d.reduce_lag = r.reduce_lag;
  d.steps_in_backward = r.steps_in_backward;
  d.stages = plan.stages;
  d.pipeline_rank = r.coordinate(Axis::pp);
  d.first_unit = plan.first_unit;
  for (int member : plan.groups.loss)
    d.all_losses += d.num_micro_batches * schedule::sums_of_rank(d, r.mesh.coordinate(member, Axis::pp));
  for (int g = 0; g < static_cast<int>(plan.layouts.size()); ++g)
    if (plan.storage[g].trained) d.norm_blocks = std::max(d.norm_blocks, plan.saved(g).size() / shard::kBlockElements);
  d.norm_ranks = r.mesh.world_size();
  d.offload = r.offload;
  choose_groups(d);
  if (r.save_copy) d.save_copy_bytes = plan.save_copy_bytes(schedule::local_groups(d));
  return d;
}

schedule::PipelineTiming timing_of(const StepPlan& plan, List list) {
  const StepRequest& r = plan.request;
  if (!r.wants(list))
    return {.cells = std::vector<std::vector<schedule::Cell>>(static_cast<size_t>(plan.stages.ranks))};
  const int mbs = r.micro_batches(list);
  const bool train = schedule::traits_of(list).trains;
  // On one rank 1f1b is forward and backward of one micro-batch after the other.
  const auto& s = schedule::pipeline_schedule(plan.stages.ranks == 1 ? "1f1b" : r.pipeline.schedule);
  return train ? schedule::time_pipeline(s, plan.stages.ranks, plan.stages.chunks, mbs)
               : schedule::time_forward_only(s, plan.stages.ranks, plan.stages.chunks, mbs);
}

}  // namespace trireme::plan
