#include "trireme/plan/step_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <numeric>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/side_by_side.h"
#include "trireme/optim/adafactor.h"
#include "trireme/optim/adamw8bit.h"
#include "trireme/optim/by_tensor.h"
#include "trireme/plan/stage_plans.h"
#include "trireme/schedule/quick_placement.h"
#include "trireme/schedule/validate.h"

namespace trireme::plan {

using comm::Axis;
using schedule::List;

namespace {

std::vector<schedule::TensorDeclaration> declare(const model::Slots& specs) {
  std::vector<schedule::TensorDeclaration> out;
  for (const model::TensorSpec& s : specs) out.push_back({s.name, s.bytes()});
  return out;
}

// A frozen group is kept in the compute dtype: it needs no more bits, because nothing is added to it.
GroupStorage storage_of(const model::ParameterGroup& group, const StepRequest& r) {
  if (group.quantized)
    return {.trained = false,
            .quantized = group.parameters.front().quantized.format,
            .packed = group.parameters.front().packed.has_value(),
            .compute = at::kByte,
            .master = at::kByte};
  if (!group.trained) return {.trained = false, .compute = r.precision.compute, .master = r.precision.compute};
  const optim::Rule rule = group.companion ? optim::Rule::adamw : r.optimizer.rule;
  return {.compute = r.precision.compute,
          .master = r.precision.master(),
          .gradient = r.precision.gradient_sum(),
          .rule = rule,
          .optimizer_state = optim::state_names(optim::options_of_group(r.optimizer, rule)),
          .compensated = r.precision.rounding == model::Rounding::kahan};
}

void check_shapes(const model::ParameterGroup& group, const GroupStorage& storage, const StepRequest& r) {
  if (!storage.trained) return;
  if (storage.rule == optim::Rule::adamw8bit && storage.master != at::kFloat)
    throw UsageError("AdamW8bit updates weights in float32: take precision 32-true, bf16-mixed or 16-mixed, or AdamW");
  for (const model::ParameterSpec& p : group.parameters) {
    if (storage.rule == optim::Rule::adamw8bit && optim::cuts_state_blocks(p))
      throw UsageError(fmt::format(
          "AdamW8bit keeps moments in blocks of {} elements of whole tensors, and mesh.tp {} cuts blocks of "
          "{}; leave mesh.tp out, or take AdamW",
          optim::kStateBlock, r.size(Axis::tp), p.name));
    const size_t dims = p.whole_shape().size();
    if (storage.rule == optim::Rule::adafactor && (dims == 0 || dims > 2))
      throw UsageError(fmt::format(
          "Adafactor updates vectors and matrices, and {} has {} dimensions; take another optimizer", p.name, dims));
    if (storage.rule == optim::Rule::muon && dims != 2)
      throw UsageError(
          fmt::format("Muon updates matrices, and {} is none; group the model with Grouping::matrices_apart, so that "
                      "AdamW updates the rest",
                      p.name));
  }
}

// Weights in a few bits learn nothing by themselves.
void check_adapted(const model::Model& model, const StepRequest& request) {
  if (!request.trains || model.config.quantized == base::BlockFormat::none || !model.adapters.empty()) return;
  throw UsageError(
      fmt::format("quantize {}: weights in 4 bits cannot be trained; train adapters beside them with trireme "
                  "finetune_lora or lora.r, or take the model with all its bits",
                  base::traits_of(model.config.quantized).name));
}

// What autograd refers to must stay where it is.
void check_references(const model::Model& model, const StepRequest& request) {
  const schedule::OffloadSettings& o = request.offload;
  if (o.activations == schedule::Tier::none && o.parameters == schedule::Tier::none) return;
  for (const auto& unit : model.units)
    if (unit->keeps_references())
      throw UsageError(fmt::format(
          "the wrapped module '{}' refers to its inputs and weights until its backward pass, so they cannot "
          "leave: leave offload.activations and offload.parameters out",
          unit->name()));
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

// How the pipeline is cut: the schedule's stages, given or balanced by cost.
void cut_stages(const model::Model& model, StepPlan& plan) {
  const StepRequest& r = plan.request;
  const auto num_units = static_cast<int>(model.units.size());
  plan.stages = {};
  plan.first_unit = {0, num_units};
  const int ranks = r.size(Axis::pp);
  if (ranks == 1) return;
  const schedule::PipelineSchedule& s = schedule::pipeline_schedule(r.pipeline.schedule);
  plan.stages = {.ranks = ranks,
                 .chunks = r.pipeline.chunks > 0 ? static_cast<int>(r.pipeline.chunks) : s.default_chunks,
                 .v_shape = s.v_shape};
  const int stages = plan.stages.num_stages();
  if (!r.pipeline.split) {
    std::vector<double> costs;
    for (const auto& unit : model.units) costs.push_back(unit->forward_flops(r.shape));
    plan.first_unit = schedule::balance_stages(costs, stages);
    return;
  }
  const std::vector<int64_t>& split = *r.pipeline.split;
  int64_t sum = 0;
  plan.first_unit = {0};
  for (const int64_t n : split) plan.first_unit.push_back(static_cast<int>(sum += n));
  const bool positive = std::ranges::all_of(split, [](int64_t n) { return n > 0; });
  if (static_cast<int>(split.size()) != stages || sum != num_units || !positive)
    throw UsageError(
        fmt::format("pipeline.split gives {} stages with {} units in all, but the pipeline has {} stages and "
                    "the model {} units (embedding, {} blocks, head)",
                    split.size(), sum, stages, num_units, num_units - 2));
}

void find_holders(const model::Model& model, StepPlan& plan) {
  plan.holder_table.resize(model.groups.size());
  for (int stage = 0; stage < plan.stages.num_stages(); ++stage)
    for (int u = plan.first_unit[stage]; u < plan.first_unit[stage + 1]; ++u)
      for (int g : model.groups_of(u)) plan.holder_table[g].push_back(plan.stages.rank_of(stage));
  for (std::vector<int>& ranks : plan.holder_table) {
    std::sort(ranks.begin(), ranks.end());
    ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  }
}

// Checks that weights on several pipeline ranks are tied weights, all held by the same ranks.
void check_holders(const StepPlan& plan) {
  int tied = -1;
  for (int g = 0; g < static_cast<int>(plan.layouts.size()); ++g) {
    if (plan.holders(g).size() < 2) continue;
    if (plan.layouts[g].tensors().size() > 1)
      throw UsageError(
          fmt::format("group '{}' holds parameters of several pipeline stages; take a smaller "
                      "wrap.min_num_params, or leave wrap.units out, so that a group stays on one stage",
                      plan.layouts[g].name()));
    if (tied >= 0 && plan.holders(tied) != plan.holders(g))
      throw UsageError(
          fmt::format("groups '{}' and '{}' are tied over different pipeline stages; use fewer stages, or a "
                      "pipeline.split that puts both on the same ones",
                      plan.layouts[tied].name(), plan.layouts[g].name()));
    tied = g;
  }
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

// The lists share their persistent values, so loss slots are sized for the longest list.
void equalize_persistent(schedule::PerList<schedule::Schedule>& lists) {
  const std::vector<schedule::Value>& first = lists.begin()->values;
  for (size_t v = 0; v < first.size() && first[v].persistent; ++v) {
    int64_t bytes = 0;
    for (const schedule::Schedule& s : lists) bytes = std::max(bytes, s.values[v].bytes);
    for (schedule::Schedule& s : lists) s.values[v].bytes = bytes;
  }
}

void require_none(const std::string& name, const std::vector<std::string>& problems) {
  if (!problems.empty())
    throw InternalError(fmt::format("the {} schedule is wrong: {}{}", name, problems[0],
                                    problems.size() > 1 ? fmt::format(" (and {} more)", problems.size() - 1) : ""));
}

// `lists` is indexed by pipeline rank.
void check_meetings(const StepPlan& plan, const char* name, const std::vector<schedule::Schedule>& lists) {
  require_none(name, schedule::validate_meetings(rank_programs(plan, lists)));
}

// All that comes before the lists. Ranks of one pipeline have the same but for their coordinate.
StepPlan plan_without_lists(const model::Model& model, const StepRequest& request) {
  check_request(request);
  check_adapted(model, request);
  check_references(model, request);
  if (!(model.parallel == request.parallel()))
    throw UsageError(fmt::format(
        "the model is built for rank {} of tp {} and rank {} of cp {}, but the step is for rank {} of tp {} and "
        "rank {} of cp {}; build it with StepRequest::parallel()",
        model.parallel.tp_rank, model.parallel.tp_size, model.parallel.cp_rank, model.parallel.cp_size,
        request.parallel().tp_rank, request.parallel().tp_size, request.parallel().cp_rank,
        request.parallel().cp_size));
  StepPlan plan;
  plan.model = &model;
  plan.request = request;
  plan.request.precision.units_sum_gradients = request.accumulation == Accumulation::local;
  plan.request.precision.any_order = request.reduce == Reduce::fast;
  plan.groups = rank_groups(request);
  for (const model::ParameterGroup& g : model.groups) {
    std::vector<shard::FlatTensorSpec> specs;
    for (const model::ParameterSpec& p : g.parameters)
      if (p.is_record())
        specs.push_back({p.name, {p.record_bytes()}, false});
      else
        specs.push_back({p.name, p.shape, p.decay, p.joined});
    const GroupStorage storage = storage_of(g, plan.request);
    check_shapes(g, storage, plan.request);
    const bool whole = storage.trained && optim::is_by_tensor(storage.rule);
    plan.layouts.emplace_back(g.name, specs, whole ? shard::Cut::tensors : shard::Cut::blocks);
    plan.storage.push_back(storage);
  }
  cut_stages(model, plan);
  find_holders(model, plan);
  check_holders(plan);
  return plan;
}

// What the lists are made of. Ranks of one pipeline share it.
struct ListParts {
  schedule::PerList<std::vector<schedule::UnitDeclaration>> units;
  schedule::PerList<schedule::PipelineTiming> timing;
};

ListParts list_parts(const model::Model& model, const StepPlan& plan) {
  ListParts parts;
  for (const schedule::ListTraits& list : schedule::kLists) {
    parts.units[list.list] = declare_units(model, plan, list.list);
    parts.timing[list.list] = timing_of(plan, list.list);
  }
  return parts;
}

// This rank's lists.
void add_lists(StepPlan& plan, const ListParts& parts) {
  for (const schedule::ListTraits& list : schedule::kLists) {
    const schedule::StepDeclaration d = declare_step(*plan.model, plan, list.list, parts.units[list.list]);
    plan.lists[list.list] = schedule::make_list(list.list, d, parts.timing[list.list]);
    plan.local_groups = schedule::local_groups(d);
  }
  for (int g : plan.local_groups)
    if (plan.storage[g].trained && plan.holders(g).size() > 1) plan.tied_groups.push_back(g);
  equalize_persistent(plan.lists);
}

// Of lists that are placed: room for what a caller keeps between them.
void lend_memory(StepPlan& plan) {
  if (plan.request.lent_bytes == 0) return;
  int64_t& own = plan.arena.bytes[static_cast<size_t>(schedule::Memory::own)];
  own = std::max(own, plan.lent_begin() + schedule::aligned(plan.request.lent_bytes));
}

void place_lists(StepPlan& plan) {
  plan.arena = schedule::place(plan.lists.values, plan.request.guard_bytes);
  lend_memory(plan);
}

// Each list alone.
void check_lists(const StepPlan& plan) {
  for (const schedule::Schedule& s : plan.lists) require_none(s.name, schedule::validate_list(s, plan.arena));
}

// No placement of the lists is smaller.
int64_t least_bytes(const StepPlan& plan) {
  std::array<int64_t, schedule::kNumMemories> most{};
  for (const schedule::Schedule& s : plan.lists)
    for (const auto& live : schedule::live_bytes(s))
      for (size_t m = 0; m < most.size(); ++m) most[m] = std::max(most[m], live[m]);
  return schedule::own_bytes(most);
}

// The lists of all pipeline ranks, not placed.
std::vector<schedule::Schedule> lists_of_stages(const model::Model& model, const StepPlan& plan, List list,
                                                const ListParts& parts) {
  schedule::StepDeclaration d = declare_step(model, plan, list, parts.units[list]);
  std::vector<schedule::Schedule> lists;
  for (int rank = 0; rank < plan.stages.ranks; ++rank) {
    d.pipeline_rank = rank;
    lists.push_back(schedule::make_list(list, d, parts.timing[list]));
  }
  return lists;
}

}  // namespace

std::vector<schedule::Schedule> stage_lists(const model::Model& model, const StepPlan& plan, List list) {
  ListParts parts;
  parts.units[list] = declare_units(model, plan, list);
  parts.timing[list] = timing_of(plan, list);
  return lists_of_stages(model, plan, list, parts);
}

std::vector<schedule::RankProgram> rank_programs(const StepPlan& plan, const std::vector<schedule::Schedule>& lists) {
  std::vector<schedule::RankProgram> programs;
  std::vector<int> everyone(static_cast<size_t>(plan.request.mesh.world_size()));
  std::iota(everyone.begin(), everyone.end(), 0);
  for (int rank = 0; rank < plan.request.mesh.world_size(); ++rank) {
    const RankGroups g = rank_groups(plan.request.of_rank(rank));
    const int stage = plan.request.mesh.coordinate(rank, Axis::pp);
    schedule::RankProgram p{.schedule = &lists[stage],
                            .members = {{schedule::QueueKind::gather, g.gather},
                                        {schedule::QueueKind::reduce, g.reduce},
                                        {schedule::QueueKind::replicas, g.replicas},
                                        {schedule::QueueKind::loss, g.loss},
                                        {schedule::QueueKind::norm, everyone}},
                            .stages = g.stages,
                            .inside = g.inside};
    // All tied groups have the same holders (check_holders).
    for (int group = 0; group < static_cast<int>(plan.layouts.size()); ++group) {
      const std::vector<int>& holders = plan.holders(group);
      if (holders.size() < 2 || std::count(holders.begin(), holders.end(), stage) == 0) continue;
      std::vector<int>& members = p.members[schedule::QueueKind::tied];
      members.clear();
      for (int h : holders) members.push_back(g.stages[h]);
    }
    programs.push_back(std::move(p));
  }
  return programs;
}

StepPlan make_step_plan(const model::Model& model, const StepRequest& request) {
  StepPlan plan = plan_without_lists(model, request);
  const ListParts parts = list_parts(model, plan);
  add_lists(plan, parts);
  place_lists(plan);
  check_lists(plan);
  if (request.mesh.world_size() == 1) return plan;
  for (const schedule::ListTraits& list : schedule::kLists)
    if (request.wants(list.list)) check_meetings(plan, list.name, lists_of_stages(model, plan, list.list, parts));
  return plan;
}

std::vector<StepPlan> make_stage_plans(const model::Model& model, const StepRequest& request, PlacedStages placed) {
  const StepPlan first = plan_without_lists(model, request);
  const ListParts parts = list_parts(model, first);
  std::vector<StepPlan> plans(static_cast<size_t>(first.stages.ranks), first);
  std::vector<int64_t> least(plans.size());
  base::side_by_side(plans.size(), [&](size_t stage) {
    plans[stage].request.rank = first.groups.stages[stage];
    plans[stage].groups = rank_groups(plans[stage].request);
    add_lists(plans[stage], parts);
    least[stage] = least_bytes(plans[stage]);
  });
  // A quick placement is no smaller than the one that a run has: below what one stage needs, it is not the largest.
  const auto candidate = static_cast<size_t>(std::ranges::max_element(least) - least.begin());
  const auto is_placed = [&](size_t stage) { return placed == PlacedStages::all || stage == candidate; };
  base::side_by_side(plans.size(), [&](size_t i) {
    const size_t stage = (candidate + i) % plans.size();  // what takes longest begins first
    if (is_placed(stage)) return place_lists(plans[stage]);
    plans[stage].arena = schedule::place_quickly(plans[stage].lists.values, request.guard_bytes);
    lend_memory(plans[stage]);
  });
  const int64_t most = plans[candidate].arena.total();
  base::side_by_side(plans.size(), [&](size_t stage) {
    if (!is_placed(stage) && plans[stage].arena.total() >= most) place_lists(plans[stage]);
    check_lists(plans[stage]);
  });
  if (request.mesh.world_size() == 1) return plans;
  for (const schedule::ListTraits& list : schedule::kLists) {
    if (!request.wants(list.list)) continue;
    std::vector<schedule::Schedule> lists;
    for (StepPlan& plan : plans) lists.push_back(std::move(plan.lists[list.list]));
    check_meetings(first, list.name, lists);
    for (size_t stage = 0; stage < plans.size(); ++stage) plans[stage].lists[list.list] = std::move(lists[stage]);
  }
  return plans;
}

}  // namespace trireme::plan
