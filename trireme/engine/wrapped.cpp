#include "trireme/engine/wrapped.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <set>

#include "trireme/base/error.h"

namespace trireme::engine {

using schedule::ActionKind;

namespace {

/// A parameter's place in the flat layout of a group that this rank has.
struct Place {
  const GroupState* group;
  const shard::FlatTensor* tensor;
};

std::map<std::string, Place> places_of(const std::vector<GroupState>& state) {
  std::map<std::string, Place> places;
  for (const GroupState& g : state)
    for (const shard::FlatTensor& t : g.layout->tensors()) places[t.name] = {&g, &t};
  return places;
}

/// Calls visit(part of the flat whole parameter, part of the group's held tensor) for the elements in `range`.
template <class Visit>
void for_part(const Place& place, const shard::Range& range, const at::Tensor& whole, const at::Tensor& held,
              Visit visit) {
  const shard::FlatTensor& t = *place.tensor;
  const int64_t begin = std::max(range.begin, t.offset), end = std::min(range.end, t.offset + t.numel);
  if (begin >= end) return;
  visit(whole.narrow(0, begin - t.offset, end - begin), held.narrow(0, begin - place.group->held.begin, end - begin));
}

/// The first rank that has this rank's part of `parameter`; all ranks receive all parts, one after the other.
at::Tensor broadcast_parts(const model::ParameterSpec& parameter, const at::Tensor& mine,
                           const plan::StepRequest& request, comm::Communicator& world) {
  at::Tensor kept = mine;
  if (world.size() == 1) return kept;
  const std::vector<int> holders = request.mesh.group(0, {comm::Axis::tp});
  const size_t parts = parameter.split_dim < 0 ? 1 : holders.size();
  for (size_t p = 0; p < parts; ++p) {
    const at::Tensor part = mine.clone();
    world.broadcast(part, holders[p])->wait();
    if (parts == 1 || request.coordinate(comm::Axis::tp) == static_cast<int>(p)) kept = part;
  }
  return kept;
}

// Does nothing for a built-in unit.
void load_unit(const model::Unit& unit, const std::map<std::string, Place>& places, comm::Communicator& world,
               const plan::StepRequest& request, std::set<std::string>& loaded) {
  const std::vector<at::Tensor>* values = unit.initial();
  for (size_t i = 0; values != nullptr && i < unit.parameters().size(); ++i) {
    const std::string& name = unit.parameters()[i].name;
    if (!loaded.insert(name).second) continue;
    const at::Tensor mine = (*values)[i].detach().to(request.precision.state).contiguous().view({-1});
    const at::Tensor whole = broadcast_parts(unit.parameters()[i], mine, request, world);
    const auto place = places.find(name);
    if (place == places.end()) continue;  // of another pipeline stage
    const GroupState& g = *place->second.group;
    for_part(place->second, g.held, whole, g.master, [](const at::Tensor& from, at::Tensor to) { to.copy_(from); });
  }
}

// Copies what this rank writes to a checkpoint of the parameter into its place in the flat `whole`.
void copy_saved(const model::ParameterSpec& p, const Place& place, const at::Tensor& whole) {
  const shard::FlatTensor& t = *place.tensor;
  const shard::Range& saved = place.group->saved;
  const int64_t begin = std::max(saved.begin, t.offset), end = std::min(saved.end, t.offset + t.numel);
  if (begin >= end) return;
  const int64_t held = place.group->held.begin - t.offset;  // the local element where this rank's memory begins
  model::for_each_run(p, begin - t.offset, end - t.offset, [&](int64_t local, int64_t full, int64_t count) {
    whole.narrow(0, full, count).copy_(place.group->master.narrow(0, local - held, count));
  });
}

// Buffers of units of other pipeline stages: this rank has not computed with its own. They are those of the first data
// rank there.
void take_buffers(const plan::StepPlan& plan, int unit, comm::Communicator& world) {
  const plan::StepRequest& request = plan.request;
  const int stage = plan.stage_rank_of(unit), tp = request.size(comm::Axis::tp),
            own_stage = request.coordinate(comm::Axis::pp);
  std::set<const void*> own;  // a part of this rank's stage may have the buffer, too
  for (int u = 0; u < static_cast<int>(plan.model->units.size()); ++u)
    if (plan.stage_rank_of(u) == own_stage)
      for (const at::Tensor& buffer : plan.model->units[static_cast<size_t>(u)]->buffers())
        own.insert(buffer.unsafeGetTensorImpl());
  for (const at::Tensor& buffer : plan.model->units[static_cast<size_t>(unit)]->buffers()) {
    if (buffer.numel() == 0) continue;
    for (int part = 0; part < tp; ++part) {
      comm::ProcessMesh::Coordinates place{};
      place[static_cast<int>(comm::Axis::pp)] = stage;
      place[static_cast<int>(comm::Axis::tp)] = part;
      const at::Tensor theirs = buffer.detach().reshape({-1}).clone();
      world.broadcast(theirs.view(at::kByte), request.mesh.global_rank(place))->wait();
      if (!own.contains(buffer.unsafeGetTensorImpl()) && request.coordinate(comm::Axis::tp) == part)
        at::Tensor(buffer).copy_(theirs.view(buffer.sizes()));
    }
  }
}

std::set<int> recomputed_units(const schedule::Schedule& s) {
  std::set<int> units;
  for (const schedule::Action& a : s.actions)
    if (a.kind == ActionKind::recompute) units.insert(a.owner);
  return units;
}

}  // namespace

void load_parameters(Engine& engine) {
  const at::NoGradGuard no_grad;
  const plan::StepPlan& plan = engine.plan();
  const auto& units = plan.model->units;
  for (const auto& unit : units)
    if (const auto* values = unit->initial(); values != nullptr && values->size() != unit->parameters().size())
      throw UsageError("[wrap] the values of '" + unit->name() +
                       "' were loaded before and freed; build the model again to start from new ones");
  const std::vector<GroupState> state = engine.state();
  const auto places = places_of(state);
  for (const GroupState& g : state)
    for (const OptimizerTensor& state : g.optimizer) at::Tensor(state.tensor).zero_();
  std::set<std::string> loaded;
  for (const auto& unit : units) load_unit(*unit, places, *engine.communicators().world, plan.request, loaded);
  engine.refresh_weights();
  const std::set<int> again = recomputed_units(plan.train());
  for (size_t u = 0; u < units.size(); ++u) {
    units[u]->release();
    units[u]->keep_graphs(!again.contains(static_cast<int>(u)));
  }
}

std::vector<model::NamedTensor> gather_parameters(Engine& engine) {
  const at::NoGradGuard no_grad;
  const plan::StepPlan& plan = engine.plan();
  const std::vector<GroupState> state = engine.state();
  const auto places = places_of(state);
  std::vector<model::NamedTensor> out;
  for (const model::ParameterGroup& group : plan.model->groups)
    for (const model::ParameterSpec& p : group.parameters) {
      const at::Tensor whole = at::zeros(p.whole_shape(), plan.request.precision.state);
      // One rank writes each element to a checkpoint, so the sum of these parts is exact.
      if (const auto place = places.find(p.name); place != places.end() && p.counted)
        copy_saved(p, place->second, whole.view({-1}));
      if (auto& world = *engine.communicators().world; world.size() > 1)
        world.all_reduce(whole.view({-1}), whole.view({-1}), {})->wait();
      out.push_back({p.name, whole});
    }
  return out;
}

void store_parameters(Engine& engine) {
  const at::NoGradGuard no_grad;
  const plan::StepPlan& plan = engine.plan();
  if (plan.request.size(comm::Axis::pp) > 1)
    for (int u = 0; u < static_cast<int>(plan.model->units.size()); ++u)
      take_buffers(plan, u, *engine.communicators().world);
  std::map<std::string, at::Tensor> values;
  for (const model::NamedTensor& p : gather_parameters(engine)) values[p.name] = p.tensor;
  for (const auto& unit : engine.plan().model->units)
    for (size_t i = 0; i < unit->parameters().size(); ++i) {
      const model::ParameterSpec& p = unit->parameters()[i];
      const at::Tensor& whole = values.at(p.name);
      unit->own(static_cast<int>(i), p.split_dim < 0 ? whole : model::take_pieces(whole, p.split_dim, p.pieces));
    }
}

int64_t autograd_allowance(const plan::StepPlan& plan) {
  const schedule::Schedule& s = plan.train();
  const std::set<int> again = recomputed_units(s);
  int64_t live = 0, peak = 0;
  for (const schedule::Action& a : s.actions) {
    if (!schedule::is_computation(a.kind)) continue;
    const model::Unit& unit = *plan.model->units[a.owner];
    const auto [graph, work] = unit.allocator_memory();
    // A backward uses a graph in `live`; every other pass makes one, or needs less than one.
    const bool finds = a.kind == ActionKind::backward && !unit.backward_includes_forward();
    peak = std::max(peak, live + work + (finds ? 0 : graph));
    if (finds)
      live -= graph;
    else if (a.kind == ActionKind::recompute || (a.kind == ActionKind::forward && !again.contains(a.owner)))
      live += graph;
  }
  return peak;
}

}  // namespace trireme::engine
