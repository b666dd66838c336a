#include "trireme/engine/communicators.h"

#include <fmt/format.h>

#include <numeric>

namespace trireme::engine {

Communicators connect(const plan::StepPlan& plan, const comm::GroupOptions& base, bool poison) {
  const int rank = plan.request.rank;
  const auto make = [&](const std::string& name, const std::vector<int>& members, bool sums_gradients = false,
                        bool on_device = true) {
    comm::GroupOptions options = base;
    options.on_device = base.on_device && on_device;
    if (base.on_device && !on_device && base.backend == "nccl") options.backend = "auto";
    options.bf16_sums = base.bf16_sums && sums_gradients;
    options.name = name + base.name;
    options.rank = plan::index_in(members, rank);
    options.size = static_cast<int>(members.size());
    options.global_ranks = members;
    return comm::make_communicator(options);
  };
  std::vector<int> everyone(plan.request.mesh.world_size());
  std::iota(everyone.begin(), everyone.end(), 0);
  const plan::RankGroups& g = plan.groups;
  Communicators c;
  c.recorder = base.recorder;
  c.world = make("world", everyone, false, /*on_device=*/false);
  c.gather = make("gather", g.gather);
  c.reduce = make("reduce", g.reduce, true);
  c.replicas = make("replicas", g.replicas, true);
  // Nothing else uses the world while losses are gathered. On a GPU the world is on the host, but the losses are not.
  c.loss = g.loss == everyone && !base.on_device ? c.world : make("loss", g.loss);
  c.stages[schedule::kActivations] = make("activations", g.stages);
  c.stages[schedule::kGradients] = make("gradients", g.stages);
  for (const comm::UnitAxisTraits& axis : comm::kUnitAxes) c.inside[axis.axis] = make(axis.name, g.inside[axis.axis]);
  for (int group : plan.tied_groups) {
    std::vector<int> members;
    for (int stage_rank : plan.holders(group)) members.push_back(g.stages[stage_rank]);
    c.tied[group] = make(fmt::format("tied{}", group), members, true);
  }
  if (poison) c.debug = make("debug", g.reduce);  // the ranks of g.gather are among them
  // While a rank waits in one queue, it makes progress in its others.
  std::vector<comm::CommunicatorPtr> all = {c.world, c.gather, c.reduce, c.replicas, c.loss, c.stages[0], c.stages[1]};
  all.insert(all.end(), c.inside.begin(), c.inside.end());
  for (const auto& [group, communicator] : c.tied) all.push_back(communicator);
  for (const auto& communicator : all) communicator->drive_while_waiting(all);
  return c;
}

}  // namespace trireme::engine
