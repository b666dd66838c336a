#include "trireme/plan/step_layouts.h"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/optim/adamw8bit.h"
#include "trireme/optim/by_tensor.h"

namespace trireme::plan {

using comm::Axis;

namespace {

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
      fmt::format("quantize {}: weights in {} bits cannot be trained; train adapters beside them with trireme "
                  "finetune_lora or lora.r, or take the model with all its bits",
                  base::traits_of(model.config.quantized).name, base::traits_of(model.config.quantized).bits));
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
  schedule::check_chunks(s, plan.stages.chunks);
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

}  // namespace

StepPlan plan_without_lists(const model::Model& model, const StepRequest& request) {
  check_request(request);
  check_adapted(model, request);
  check_references(model, request);
  if (!(model.parallel == request.parallel()))
    throw UsageError(fmt::format(
        "the model is built for rank {} of tp {} and rank {} of cp {}, but the step is for rank {} of tp {} and "
        "rank {} of cp {}; build it with StepRequest::parallel(), of wrapped modules with that of tensor_ranks()",
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

}  // namespace trireme::plan
