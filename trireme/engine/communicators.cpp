#include "trireme/engine/communicators.h"

#include <fmt/format.h>

#include <numeric>

namespace trireme::engine {
namespace {

comm::GroupOptions options_of(const comm::GroupOptions& base, const std::string& name, int rank,
                              const std::vector<int>& members) {
  comm::GroupOptions options = base;
  options.bf16_sums = false;
  options.name = name + base.name;
  options.rank = plan::index_in(members, rank);
  options.size = static_cast<int>(members.size());
  options.global_ranks = members;
  return options;
}

std::vector<int> everyone(const plan::StepPlan& plan) {
  std::vector<int> ranks(static_cast<size_t>(plan.request.mesh.world_size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

}  // namespace

comm::CommunicatorPtr connect_world(const plan::StepPlan& plan, const comm::GroupOptions& base) {
  comm::GroupOptions options = options_of(base, "world", plan.request.rank, everyone(plan));
  options.on_device = false;
  if (base.on_device && base.backend == "nccl") options.backend = "auto";
  return comm::make_communicator(options);
}

Communicators connect(const plan::StepPlan& plan, const comm::GroupOptions& base, bool poison,
                      comm::CommunicatorPtr world) {
  const auto make = [&](const std::string& name, const std::vector<int>& members, bool sums_gradients = false) {
    comm::GroupOptions options = options_of(base, name, plan.request.rank, members);
    options.bf16_sums = base.bf16_sums && sums_gradients;
    return comm::make_communicator(options);
  };
  const plan::RankGroups& g = plan.groups;
  Communicators c;
  c.recorder = base.recorder;
  c.world = world ? std::move(world) : connect_world(plan, base);
  c.gather = make("gather", g.gather);
  c.reduce = make("reduce", g.reduce, true);
  c.replicas = make("replicas", g.replicas, true);
  // Nothing else uses the world while losses are gathered. On a GPU the world is on the host, but the losses are not.
  c.loss = g.loss == everyone(plan) && !base.on_device ? c.world : make("loss", g.loss);
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
