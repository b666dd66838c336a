#include "trireme/costs/step_costs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "trireme/base/error.h"
#include "trireme/comm/collective.h"
#include "trireme/optim/settings.h"
#include "trireme/plan/activity.h"
#include "trireme/plan/stage_plans.h"

namespace trireme::costs {
namespace {

using schedule::Action;
using schedule::ActionKind;

comm::Operation operation_of(ActionKind kind) {
  switch (kind) {
    case ActionKind::reduce_gradient:
      return comm::Operation::reduce_scatter;
    case ActionKind::all_reduce_gradient:
    case ActionKind::reduce_replicas:
    case ActionKind::reduce_tied:
      return comm::Operation::all_reduce;
    case ActionKind::send:
    case ActionKind::receive:
      return comm::Operation::send;
    default:
      return comm::Operation::all_gather;
  }
}

std::vector<int> ranks_of(const plan::StepPlan& plan, const Action& a) {
  switch (a.queue.kind) {
    case schedule::QueueKind::gather:
      return plan.groups.gather;
    case schedule::QueueKind::reduce:
      return plan.groups.reduce;
    case schedule::QueueKind::replicas:
      return plan.groups.replicas;
    case schedule::QueueKind::loss:
      return plan.groups.loss;
    case schedule::QueueKind::norm: {
      std::vector<int> all(static_cast<size_t>(plan.request.mesh.world_size()));
      std::iota(all.begin(), all.end(), 0);
      return all;
    }
    case schedule::QueueKind::send:
    case schedule::QueueKind::receive:
      return plan.groups.stages;
    case schedule::QueueKind::tied: {
      std::vector<int> holders;
      for (const int stage : plan.holders(a.owner)) holders.push_back(plan.groups.stages[static_cast<size_t>(stage)]);
      return holders;
    }
    default:
      return {};
  }
}

/// What ranks on processors wait for each other, and for the shortest message: the smallest call that was measured.
double meeting(const Machines& machines, comm::Operation operation, const std::vector<int>& ranks) {
  if (ranks.size() < 2 || comm::is_message(operation)) return 0;
  const MeasuredCollective* smallest = nullptr;
  for (const MeasuredCollective& m : machines.hardware.measured_collectives)
    if (m.name == comm::to_string(operation) && (smallest == nullptr || m.bytes < smallest->bytes)) smallest = &m;
  return smallest == nullptr ? 0 : smallest->seconds;
}

/// Of "move" rows, those of the nearest number of ranks; 0 without any.
double seconds_a_moved_byte(const Hardware& h, int64_t ranks) {
  const MeasuredCollective* nearest = nullptr;
  for (const MeasuredCollective& m : h.measured_collectives)
    if (m.name == "move" && (nearest == nullptr || std::abs(m.ranks - ranks) < std::abs(nearest->ranks - ranks)))
      nearest = &m;
  return nearest == nullptr ? 0 : nearest->seconds / double(nearest->bytes);
}

/// Bytes that a rank of `ranks` reads and writes in shared memory for a call of a unit.
double moved_by(const model::TrafficRow& row, double ranks) {
  const double bytes = double(row.elements) * double(c10::elementSize(row.dtype));
  return row.operation == comm::Operation::reduce_scatter ? (1 + 1 / ranks) * bytes : 2 * bytes;
}

struct Flops {
  double all = 0, recomputed = 0;
};

class Coster {
 public:
  Coster(const plan::StepPlan& plan, const Machines& machines) : plan_(plan), machines_(machines), recorder_(plan) {}

  /// Whose lists come next.
  void set_stage(size_t stage) { stage_ = stage; }

  /// What an action takes, and by cause of its `compute` part; its operations are added to `flops`.
  schedule::ActionCost cost(const schedule::Schedule& s, const Action& a, CauseSeconds& causes, Flops& flops) {
    if (schedule::is_computation(a.kind)) return {.compute = computation(s, a, causes, flops)};
    switch (a.kind) {
      case ActionKind::load_batch:
        return {.compute = add(causes, base::Activity::data, 1e-6 * machines_.hardware.launch)};
      case ActionKind::step:
        return {.compute = add(causes, base::Activity::optimizer, step(a.owner, a.part)) +
                           add(causes, base::Activity::products, orthogonalizing(a.owner))};
      case ActionKind::clip:
        return {};
      case ActionKind::sum_squares:
        return {.compute = add(causes, base::Activity::optimizer, squares(a.owner))};
      case ActionKind::fetch:
      case ActionKind::evict:
        return transfer(a, causes);
      default:
        return communication(s, a, causes);
    }
  }

 private:
  static double add(CauseSeconds& causes, base::Activity activity, double seconds) {
    causes[static_cast<size_t>(activity)] += seconds;
    return seconds;
  }

  double computation(const schedule::Schedule& s, const Action& a, CauseSeconds& causes, Flops& flops) {
    const Work& work = recorder_.of(schedule::List::train, s, a);
    double seconds = 0;
    for (const ops::Operation& o : work.operations)
      seconds += add(causes, activity_of(o), operation_seconds(machines_, o));
    for (const model::TrafficRow& row : work.traffic) {
      const std::vector<int>& ranks = plan_.groups.inside[row.axis];
      const double bytes = double(row.elements) * double(c10::elementSize(row.dtype));
      seconds += add(causes, base::Activity::communication,
                     machines_.hardware.shares_cores ? moving(moved_by(row, double(ranks.size())), std::ssize(ranks)) +
                                                           meeting(machines_, row.operation, ranks)
                                                     : collective_seconds(machines_, row.operation, bytes, ranks));
    }
    flops.all += work.flops();
    flops.recomputed += a.kind == ActionKind::recompute ? work.flops() : work.recomputed_flops();
    return seconds;
  }

  double step(int g, int part) const {
    const plan::GroupStorage& storage = plan_.storage[static_cast<size_t>(g)];
    const auto bytes = [](at::ScalarType dtype) { return double(c10::elementSize(dtype)); };
    const double states = double(storage.optimizer_state.size()) + (storage.compensated ? 1 : 0);
    const double each = 2 * bytes(storage.master) * (1 + states) + bytes(storage.gradient) +
                        (storage.mixed() ? bytes(storage.compute) : 0);
    const int64_t elements = plan_.tile(g, part).size();
    return operation_seconds(machines_, {.name = "optimizer_step",
                                         .dtype = storage.master,
                                         .m = elements,
                                         .n = 1,
                                         .k = 1,
                                         .bytes = double(elements) * each});
  }

  // Muon's products (optim/by_tensor.cpp).
  double orthogonalizing(int g) const {
    constexpr int kSteps = 5;
    const plan::GroupStorage& storage = plan_.storage[static_cast<size_t>(g)];
    if (storage.rule != optim::Rule::muon) return 0;
    const at::ScalarType dtype = storage.compute == at::kBFloat16 ? storage.compute : storage.master;
    const auto product = [&](const char* name, int64_t m, int64_t n, int64_t k) {
      return operation_seconds(machines_, {.name = name,
                                           .dtype = dtype,
                                           .m = m,
                                           .n = n,
                                           .k = k,
                                           .flops = 2 * double(m) * double(n) * double(k),
                                           .bytes = double(m * k + k * n + m * n) * double(c10::elementSize(dtype))});
    };
    double seconds = 0;
    for (const optim::DecaySegment& s : plan_.segments(g)) {
      if (s.parameter == nullptr) continue;
      const auto [small, large] = std::ranges::minmax(s.parameter->whole_shape());
      seconds += kSteps * (product("product_nt", small, small, large) + product("product_nn", small, small, small) +
                           product("product_nn", small, large, small));
    }
    return seconds;
  }

  double squares(int g) const {
    const int64_t elements = plan_.layouts[g].numel() / (plan_.request.num_shards() * plan_.request.num_replicas());
    return operation_seconds(machines_,
                             {.name = "norm_partials",
                              .dtype = plan_.storage[g].gradient,
                              .m = elements,
                              .n = 1,
                              .k = 1,
                              .bytes = double(elements) * double(c10::elementSize(plan_.storage[g].gradient))});
  }

  // Of the gradients that GatherNorm reads: others have a SumSquares of their own.
  double norm_partials(const schedule::Schedule& s, const Action& a) const {
    double seconds = 0;
    for (const schedule::Use& u : a.uses)
      if (const schedule::Value& v = s.values[u.value]; v.kind == schedule::ValueKind::gradient)
        seconds += squares(v.owner);
    return seconds;
  }

  // Processors copy with a thread beside those that compute. It takes a core from them, or the memory's rate; while
  // they wait for a disk anyway, that costs nothing.
  schedule::ActionCost transfer(const Action& a, CauseSeconds& causes) const {
    const Hardware& h = machines_.hardware;
    const double bytes = double(a.bytes);
    if (a.queue.lane == schedule::kDiskLane) {
      const double ranks = double(std::min<int64_t>(machines_.ranks, plan_.request.mesh.world_size()));
      const double work = h.shares_cores ? add(causes, base::Activity::offload, 1e-9 * bytes * h.disk_work) : 0;
      return {.compute = work, .transfer = bytes * ranks / (1e9 * h.disk_rate)};
    }
    if (h.shares_cores) return {.compute = add(causes, base::Activity::offload, moving(2 * bytes, 1))};
    return {.transfer = bytes / (1e9 * h.host_rate)};
  }

  schedule::ActionCost communication(const schedule::Schedule& s, const Action& a, CauseSeconds& causes) {
    schedule::ActionCost cost;
    if (a.kind == ActionKind::gather_norm) cost.compute = add(causes, base::Activity::optimizer, norm_partials(s, a));
    std::vector<int> ranks = ranks_of(plan_, a);
    if (a.queue.peer >= 0)
      ranks = {plan_.groups.stages[stage_], plan_.groups.stages[static_cast<size_t>(a.queue.peer)]};
    const bool is_norm = a.kind == ActionKind::gather_norm;
    const base::Activity sums = is_norm ? base::Activity::communication : plan::activity_of(plan_, a);
    if (machines_.hardware.shares_cores) {
      const double seconds = moving(moved_bytes(plan_, a), std::ssize(ranks));
      cost.compute += add(causes, sums, seconds + meeting(machines_, operation_of(a.kind), ranks));
      return cost;
    }
    if (ranks.size() > 1)
      cost.transfer = collective_seconds(machines_, operation_of(a.kind), double(a.bytes), ranks);
    else  // a rank alone still adds its micro-batch's gradient to the sum
      cost.compute += add(causes, sums, moving(moved_bytes(plan_, a), 1));
    return cost;
  }

  /// Of a rank among `ranks` that moves bytes in memory.
  double moving(double bytes, int64_t ranks) const {
    if (bytes == 0) return 0;
    const Hardware& h = machines_.hardware;
    const double measured = seconds_a_moved_byte(h, ranks);
    return measured > 0 ? bytes * measured : bytes / (1e9 * h.memory_rate * h.share.memory);
  }

  const plan::StepPlan& plan_;
  const Machines& machines_;
  WorkRecorder recorder_;
  size_t stage_ = 0;
};

bool is_on_disk(const Action& a) { return schedule::is_transfer(a.kind) && a.queue.lane == schedule::kDiskLane; }

/// Seconds between two times in which one of `spans` lasts. They begin and end in their order.
double seconds_within(const std::vector<schedule::Span>& spans, double begin, double end) {
  double seconds = 0;
  for (auto s = std::ranges::lower_bound(spans, begin, {}, &schedule::Span::end);
       s != spans.end() && s->begin < end && begin < end; ++s) {
    const double from = std::max(begin, s->begin), until = std::min(end, s->end);
    seconds += std::max(0.0, until - from);
    begin = std::max(begin, until);
  }
  return seconds;
}

/// A disk moves more or less in one direction alone than in both at once, and when which is under way follows from the
/// step: `p` was simulated with the rate of both, which a transfer now keeps while there is one the other way.
void cost_lone_transfers(const Hardware& h, Prediction& p) {
  std::set<const schedule::Schedule*> seen;
  for (size_t r = 0; r < p.programs.size(); ++r) {
    const schedule::Schedule* list = p.programs[r].schedule;
    if (!seen.insert(list).second) continue;
    const std::vector<schedule::Span>& spans = p.simulation.spans[r];
    std::map<ActionKind, std::vector<schedule::Span>> there;
    for (size_t i = 0; i < spans.size(); ++i)
      if (is_on_disk(list->actions[i])) there[list->actions[i].kind].push_back(spans[i]);
    for (size_t i = 0; i < spans.size(); ++i) {
      if (!is_on_disk(list->actions[i])) continue;
      const bool fetch = list->actions[i].kind == ActionKind::fetch;
      const double rate = fetch ? h.disk_read_rate : h.disk_write_rate;
      if (rate <= 0) continue;
      double& seconds = p.costs.at(list)[i].transfer;
      const double beside =
          seconds_within(there[fetch ? ActionKind::evict : ActionKind::fetch], spans[i].end - seconds, spans[i].end);
      seconds = beside + (seconds - beside) * h.disk_rate / rate;
    }
  }
}

}  // namespace

double moved_bytes(const plan::StepPlan& plan, const Action& a) {
  const double ranks = std::max<double>(1, double(ranks_of(plan, a).size())), bytes = double(a.bytes);
  switch (a.kind) {
    case ActionKind::unshard:
      return 2 * bytes / ranks;
    case ActionKind::reduce_gradient:
    case ActionKind::all_reduce_gradient: {
      const auto g = static_cast<size_t>(a.owner);
      const double sums = double(plan.layouts[g].numel()) / ranks * double(c10::elementSize(plan.storage[g].gradient));
      return bytes + (a.accumulate ? 2 : 1) * sums;
    }
    case ActionKind::gather_replicas:
    case ActionKind::reduce_replicas:
    case ActionKind::reduce_tied:
    case ActionKind::send:
    case ActionKind::receive:
      return ranks > 1 ? 2 * bytes : 0;
    default:
      return 0;
  }
}

double moved_bytes(const plan::StepPlan& plan) {
  WorkRecorder recorder(plan);
  double bytes = 0;
  for (const Action& a : plan.train().actions) {
    if (!schedule::is_computation(a.kind)) {
      bytes += moved_bytes(plan, a);
      continue;
    }
    for (const model::TrafficRow& row : recorder.of(schedule::List::train, plan.train(), a).traffic)
      bytes += moved_by(row, double(plan.groups.inside[row.axis].size()));
  }
  return bytes;
}

void check_figures(const plan::StepRequest& request, const Machines& machines) {
  const Hardware& h = machines.hardware;
  const int64_t world = request.mesh.world_size();
  if (request.precision.compute == at::kDouble && h.peak.fp64 <= 0 && h.measured_operations.empty())
    throw UsageError(fmt::format(
        "the hardware {} has no peak.fp64, which precision 64-true needs; add it to the hardware's file, or "
        "take another precision",
        h.name));
  const bool uses_disk = request.offload.uses(schedule::Tier::disk);
  if (uses_disk && h.disk_rate <= 0 && !h.shares_cores)
    throw UsageError(fmt::format(
        "a GPU's values leave to host memory, not to a disk: on {} take cpu instead of disk in offload.*", h.name));
  if (uses_disk && h.disk_rate <= 0)
    throw UsageError(
        fmt::format("the hardware {} has no disk.rate, which offloading to a disk needs; trireme bench calibrate "
                    "measures this machine's",
                    h.name));
  if (request.offload.uses(schedule::Tier::cpu) && !h.shares_cores && h.host_rate <= 0)
    throw UsageError(
        fmt::format("the hardware {} has no host.rate, which offloading to host memory needs; trireme bench calibrate "
                    "--accelerator cuda measures this machine's",
                    h.name));
  if (h.shares_cores && world > machines.ranks)
    throw UsageError(fmt::format("the hardware {} was measured on one machine, and {} ranks need {} of them", h.name,
                                 world, (world + machines.ranks - 1) / machines.ranks));
  if (h.shares_cores || world == 1) return;
  if (h.inside.rate <= 0 && machines.ranks > 1)
    throw UsageError(fmt::format("the hardware {} has no inside.rate, which several ranks of a machine need", h.name));
  if (world > machines.ranks && h.between.rate <= 0)
    throw UsageError(fmt::format("the hardware {} has no between.rate, which ranks on several machines need", h.name));
}

Prediction predict(const model::Model& model, const plan::StepPlan& plan, const Machines& machines) {
  check_figures(plan.request, machines);
  Prediction p;
  p.lists = plan::stage_lists(model, plan, schedule::List::train);
  p.programs = plan::rank_programs(plan, p.lists);
  // Where tensors stay whole, ranks own unlike amounts, and the step takes as long as the fullest one.
  plan::StepPlan fullest = plan;
  if (optim::is_by_tensor(plan.request.optimizer.rule)) fullest.request.rank = plan::fullest_alike(plan);
  Coster coster(fullest, machines);
  std::vector<CauseSeconds> causes(p.lists.size());
  for (size_t i = 0; i < p.lists.size(); ++i) {
    const schedule::Schedule& list = p.lists[i];
    std::vector<schedule::ActionCost> costs;
    Flops flops;
    coster.set_stage(i);
    for (const Action& a : list.actions) costs.push_back(coster.cost(list, a, causes[i], flops));
    p.costs[&list] = std::move(costs);
    const double ranks = double(plan.request.mesh.world_size()) / double(p.lists.size());
    p.executed_flops += ranks * flops.all;
    p.model_flops += ranks * (flops.all - flops.recomputed);
  }
  p.simulation = schedule::simulate(p.programs, p.costs);
  if (plan.request.offload.uses(schedule::Tier::disk)) {
    cost_lone_transfers(machines.hardware, p);
    p.simulation = schedule::simulate(p.programs, p.costs);
  }
  p.step = p.simulation.length();
  p.causes = causes.front();
  double busy = 0;
  for (const double seconds : p.causes) busy += seconds;
  // What a step would take if nothing waited for host memory or a disk.
  schedule::Costs at_once = p.costs;
  for (auto& [list, costs] : at_once)
    for (size_t i = 0; i < costs.size(); ++i)
      if (schedule::is_transfer(list->actions[i].kind)) costs[i].transfer = 0;
  const double waited = plan.request.offload.any() ? p.step - schedule::simulate(p.programs, at_once).length() : 0;
  p.causes[static_cast<size_t>(base::Activity::offload)] += waited;
  p.causes[static_cast<size_t>(base::Activity::other)] = std::max(0.0, p.step - busy - waited);
  return p;
}

}  // namespace trireme::costs
