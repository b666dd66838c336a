// Binding: every action of a list gets its views of the arena, once, before the first step.
#include <ATen/ATen.h>

#include <algorithm>
#include <map>

#include "trireme/base/error.h"
#include "trireme/engine/engine.h"
#include "trireme/plan/unit_pass.h"

namespace trireme::engine {

using schedule::Action;
using schedule::ActionKind;
using schedule::Schedule;
using schedule::Value;
using schedule::ValueKind;

at::Tensor Engine::at_address(char* data, at::IntArrayRef shape, at::ScalarType dtype) const {
  return at::for_blob(data, shape)
      .options(at::TensorOptions().dtype(dtype).device(options_.device))
      .target_device(options_.device)
      .make_tensor();
}

at::Tensor Engine::view(const Value& value, at::IntArrayRef shape, at::ScalarType dtype) const {
  char* const data = base_[static_cast<int>(value.memory)] + value.offset;
  return schedule::is_tier(value.memory) ? at::from_blob(data, shape, dtype) : at_address(data, shape, dtype);
}

Engine::GroupViews Engine::group_views(int group, const Schedule& s, const schedule::ValueIndex& values,
                                       const Action* action) const {
  const plan::GroupStorage& storage = plan_.storage[group];
  const shard::Range held = plan_.held(group);
  const int64_t numel = plan_.layouts[group].numel();
  const auto get = [&](ValueKind kind, int64_t elements, at::ScalarType dtype) {
    int v = values.find(kind, group, -1);
    if (v < 0 || (action == nullptr && !s.values[v].persistent)) return at::Tensor();
    if (action == nullptr) return view(s.values[v], {elements}, dtype);  // tiles lie side by side
    const bool tiled = values.find(kind, group, -1, 1) >= 0;
    if (tiled) v = values.find(kind, group, -1, action->part);
    for (const schedule::Use& u : action->uses)
      if (s.original(u.value) == v) v = u.value;
    if (s.values[v].offset < 0) return at::Tensor();  // of a value whose copies alone are used
    return view(s.values[v], {tiled ? plan_.tile(group, action->part).size() : elements}, dtype);
  };
  GroupViews g;
  g.weights = get(ValueKind::weights, numel, storage.compute);
  g.master = get(ValueKind::master, held.size(), storage.master);
  for (size_t i = 0; i < storage.optimizer_state.size(); ++i)
    g.optimizer.push_back(get(schedule::kOptimizerState[i], held.size(), storage.master));
  if (const int64_t bytes = plan_.whole_state_bytes(group); bytes > 0)
    g.whole_state = get(schedule::kOptimizerState[0], bytes / static_cast<int64_t>(c10::elementSize(storage.master)),
                        storage.master);
  g.compensation = get(ValueKind::compensation, held.size(), storage.master);
  if (storage.trained) {
    const bool whole = plan_.request.whole_gradients();
    g.local_gradient = get(ValueKind::local_gradient, numel, storage.gradient);
    g.gradient = get(ValueKind::gradient, whole ? numel : held.size(), storage.gradient);
    g.step_gradient = whole && g.gradient.defined() ? g.gradient.narrow(0, held.begin, held.size()) : g.gradient;
  }
  const at::Tensor own_weights = g.weights.defined() ? g.weights.narrow(0, held.begin, held.size()) : at::Tensor();
  if (!g.master.defined()) g.master = own_weights;  // one copy serves as both
  if (storage.mixed())
    g.compute_copy = own_weights.defined() ? own_weights : get(ValueKind::compute_shard, held.size(), storage.compute);
  if (action == nullptr || action->kind != ActionKind::step) return g;
  const shard::Range tile = plan_.tile(group, action->part);
  const auto cut = [&](at::Tensor& whole) {
    if (whole.defined() && whole.numel() > tile.size()) whole = whole.narrow(0, tile.begin, tile.size());
  };
  for (at::Tensor* tensor : {&g.master, &g.step_gradient, &g.compute_copy, &g.compensation}) cut(*tensor);
  for (at::Tensor& state : g.optimizer) cut(state);
  return g;
}

// Views of a group's parameters (or gradients, of the same layout) in the flat buffer at `base`.
std::vector<at::Tensor> Engine::parameter_views(char* base, const shard::FlatLayout& layout,
                                                at::ScalarType dtype) const {
  std::vector<at::Tensor> views;
  for (const shard::FlatTensor& t : layout.tensors())
    views.push_back(at_address(base + t.offset * static_cast<int64_t>(c10::elementSize(dtype)), t.shape, dtype));
  return views;
}

// Bytes of a gradient slot, or of a rank's own sum, that no unit of this rank writes: padding, and parameters of other
// pipeline stages. They are reduced and squared with the rest, so they have to be set to zero.
std::vector<at::Tensor> Engine::gaps_of(char* base, int group) const {
  std::set<int> mine;
  for (int u = 0; u < static_cast<int>(model_.units.size()); ++u) {
    const auto after = std::upper_bound(plan_.first_unit.begin(), plan_.first_unit.end(), u);
    const int stage = static_cast<int>(after - plan_.first_unit.begin()) - 1;
    if (plan_.stages.rank_of(stage) != plan_.request.coordinate(comm::Axis::pp)) continue;
    for (const model::ParameterPlace& place : model_.places[u])
      if (place.group == group) mine.insert(place.index);
  }
  const shard::FlatLayout& layout = plan_.layouts[group];
  const auto size = static_cast<int64_t>(c10::elementSize(plan_.request.precision.gradient()));
  std::vector<at::Tensor> gaps;
  int64_t at = 0;
  const auto close = [&](int64_t begin) {
    if (begin > at) gaps.push_back(at_address(base + at * size, {(begin - at) * size}, at::kByte));
  };
  for (size_t i = 0; i < layout.tensors().size(); ++i) {
    if (!mine.contains(static_cast<int>(i))) continue;
    const shard::FlatTensor& t = layout.tensors()[i];
    close(t.offset);
    at = t.offset + t.numel;
  }
  close(layout.numel());
  return gaps;
}

Engine::Shapes Engine::planned_shapes(schedule::List list) const {
  const plan::StepRequest& r = plan_.request;
  return {list, r.shape_of(list), r.documents_of(list), r.generation};
}

model::UnitValues Engine::values_of(int unit, const Shapes& shapes) const {
  const model::Unit& u = model_.unit(unit, shapes.generates());
  const model::Precision& precision = plan_.request.precision;
  return shapes.generates() ? u.generation_values(shapes.generation, precision) : u.values(shapes.batch, precision);
}

void Engine::bind_documents(BatchTensors& to, const Value& value, const Shapes& shapes) const {
  const at::Tensor both = view(value, model::documents_of(shapes.batch));
  if (shapes.documents.attention) to.document_starts = both[0];
  if (shapes.documents.positions)
    to.position_ids = both[1].narrow(0, 0, shapes.batch.tokens() / model_.parallel_of(shapes.generates()).cp_size);
}

BatchTensors Engine::bind_batch(const Action& a, const Shapes& shapes) {
  BatchTensors batch;
  for (const schedule::Use& u : a.uses) {
    const Value& v = plan_.lists[shapes.list].values[u.value];
    if (v.kind == ValueKind::tokens) batch.inputs = view(v, model_.inputs(shapes.batch, shapes.generates()));
    if (v.kind == ValueKind::targets) batch.targets = view(v, model_.targets(shapes.batch, shapes.generates()));
    if (v.kind == ValueKind::documents) bind_documents(batch, v, shapes);
  }
  if (shapes.documents.lengths) batch.text_length = &text_lengths_[{shapes.list, a.micro_batch}];
  return batch;
}

int64_t Engine::first_sequence(int64_t micro_batch, const model::BatchShape& shape) const {
  const plan::StepRequest& r = plan_.request;
  return (micro_batch * r.num_data_ranks() + r.data_index()) * shape.micro_batch;
}

void Engine::bind_unit(Bound& bound, const Action& a, const Shapes& shapes, std::set<std::pair<int, int>>& written) {
  const Schedule& s = plan_.lists[shapes.list];
  const model::Unit& unit = model_.unit(a.owner, shapes.generates());
  const plan::StepRequest& request = plan_.request;
  const model::UnitValues declared = values_of(a.owner, shapes);
  model::UnitTensors& t = bound.unit;
  t.shape = shapes.batch;
  t.micro_batch = a.micro_batch;
  t.random.first_sequence = first_sequence(a.micro_batch, shapes.batch);
  if (shapes.generates()) t.new_tokens = &new_tokens_;
  std::ranges::transform(inside_, t.ranks.begin(), [](const auto& ranks) { return ranks.get(); });
  t.saved.resize(declared.saved.size());
  t.deferred.resize(declared.deferred.size());
  const auto& work_specs = plan::work_of(declared, a.kind);
  t.work.resize(work_specs.size());
  std::map<int, std::vector<at::Tensor>> parameters, gradients;
  std::map<int, int> places;  // group -> the value that its gradients are in
  const auto boundary_of = [&](int u) { return values_of(u, shapes).output; };
  for (const schedule::Use& u : a.uses) {
    const Value& v = s.values[u.value];
    char* base = base_[static_cast<int>(v.memory)] + v.offset;
    const int index = schedule::tensor_index(v.instance);
    switch (v.kind) {
      case ValueKind::weights:
      case ValueKind::parameters:
        parameters[v.owner] = parameter_views(base, plan_.layouts[v.owner], plan_.storage[v.owner].compute);
        break;
      case ValueKind::gradient_slot:
      case ValueKind::local_gradient:
      case ValueKind::gradient:
        gradients[v.owner] = parameter_views(base, plan_.layouts[v.owner], request.precision.gradient());
        places[v.owner] = s.original(u.value);
        if (u.access == schedule::Access::write)
          for (at::Tensor& gap : gaps_of(base, v.owner)) bound.gaps.push_back(std::move(gap));
        break;
      case ValueKind::tokens:
        t.tokens = view(v, model_.inputs(shapes.batch, shapes.generates()));
        break;
      case ValueKind::targets:
        t.targets = view(v, model_.targets(shapes.batch, shapes.generates()));
        break;
      case ValueKind::documents: {
        BatchTensors documents;
        bind_documents(documents, v, shapes);
        t.document_starts = documents.document_starts;
        t.position_ids = documents.position_ids;
        if (shapes.documents.lengths) t.text_length = &text_lengths_[{shapes.list, a.micro_batch}];
        break;
      }
      case ValueKind::boundary:
        (v.owner == a.owner ? t.output : t.input) = view(v, boundary_of(v.owner));
        break;
      case ValueKind::boundary_gradient:
        // Both share their bytes; d_boundary has the shape of the input's gradient, which is there at the end.
        (v.owner == a.owner ? t.d_output : t.d_boundary) = view(v, boundary_of(v.owner));
        break;
      case ValueKind::saved:
        t.saved[index] = view(v, declared.saved[index]);
        if (a.kind == ActionKind::recompute && u.access == schedule::Access::write) bound.recomputed.push_back(index);
        break;
      case ValueKind::deferred:
        t.deferred[index] = view(v, declared.deferred[index]);
        break;
      case ValueKind::cache: {
        const at::Tensor both =
            view(v, {2, request.generation.pages, ops::kAttentionPage, unit.cache_width()}, request.precision.compute);
        t.k_pages = both[0], t.v_pages = both[1];
        break;
      }
      case ValueKind::work:
        t.work[index] = view(v, work_specs[index]);
        break;
      case ValueKind::loss:
        t.loss_sum =
            view(v, {v.bytes / 8}, at::kDouble)
                .narrow(0, a.micro_batch * plan_.sums_of_rank(plan_.stage_rank_of(a.owner)) + plan_.first_sum(a.owner),
                        plan_.num_sums(a.owner));
        break;
      default:
        throw InternalError("a unit's action uses " + v.label);
    }
  }
  if (!t.d_boundary.defined()) t.d_boundary = t.d_output;  // the first unit
  for (const model::ParameterPlace& place : model_.places[a.owner]) {
    // Undefined if this action does not read the group.
    const auto read = parameters.find(place.group);
    t.parameters.push_back(read != parameters.end() ? read->second[place.index] : at::Tensor());
    if (!schedule::writes_gradient(a.kind)) continue;
    const auto it = gradients.find(place.group);  // none where the group is frozen
    t.gradients.push_back(it != gradients.end() ? it->second[place.index] : at::Tensor());
    // A place is first written once in a list: the place and the parameter tell whether this is the first write.
    t.accumulate.push_back(it != gradients.end() && !written.insert({places[place.group], place.index}).second);
  }
  bound.traffic = unit.traffic(shapes.batch, request.precision);
  if (t.new_tokens != nullptr) bound.traffic.forward = unit.generation_traffic(shapes.generation, request.precision);
  if (a.kind == ActionKind::recompute)
    bound.traffic.recompute = unit.traffic_of_recompute(shapes.batch, request.precision, bound.recomputed);
}

void Engine::bind_group(Bound& b, const Schedule& s, const Action& a) {
  const int g = a.owner;
  const GroupViews& v = b.group;
  const at::ScalarType compute = plan_.storage[g].compute, slot = plan_.request.precision.gradient();
  const auto used = [&](int i) -> const Value& { return s.values[a.uses[i].value]; };
  switch (a.kind) {
    case ActionKind::unshard:
      b.counts = plan_.gather_counts(g);
      b.input = v.compute_copy.defined() ? v.compute_copy : v.master;
      b.output = a.uses.size() > 1 ? view(used(1), {plan_.layouts[g].numel()}, compute) : v.weights;
      break;
    case ActionKind::reduce_gradient:
    case ActionKind::all_reduce_gradient: {
      const bool local = plan_.request.accumulation == plan::Accumulation::local;
      const shard::Range held = plan_.held(g), reduced = plan_.reduced(g);
      b.counts = plan_.reduce_counts(g);
      if (local)
        b.input = v.local_gradient.defined() ? v.local_gradient : v.gradient;
      else
        b.input = view(used(0), {plan_.layouts[g].numel()}, slot);
      b.output = plan_.request.whole_gradients() ? v.gradient
                                                 : v.gradient.narrow(0, reduced.begin - held.begin, reduced.size());
      break;
    }
    case ActionKind::gather_replicas: {
      const shard::Range held = plan_.held(g), reduced = plan_.reduced(g);
      b.counts = plan_.replica_counts(g);
      b.output = v.gradient;
      b.input = v.gradient.narrow(0, reduced.begin - held.begin, reduced.size());
      break;
    }
    default:  // reduce_replicas, reduce_tied: in place
      b.input = b.output = a.kind == ActionKind::reduce_tied ? v.step_gradient : v.gradient;
  }
}

std::vector<Engine::Bound> Engine::bind(const Shapes& shapes) {
  const schedule::List list = shapes.list;
  const Schedule& s = plan_.lists[list];
  const schedule::ValueIndex values(s);
  std::vector<Bound> all;
  const plan::StepRequest& request = plan_.request;
  std::set<std::pair<int, int>> written;
  for (const Action& a : s.actions) {
    Bound b;
    b.label = comm::ActionLabel(schedule::describe(s, a));
    const auto used = [&](int i) -> const Value& { return s.values[a.uses[i].value]; };
    if (schedule::is_computation(a.kind)) {
      bind_unit(b, a, shapes, written);
      b.unit.random.active = schedule::traits_of(list).trains;
    } else if (a.kind == ActionKind::load_batch) {
      b.batch = bind_batch(a, shapes);
      if (on_gpu()) b.host_batch = host_batch(b.batch);
    } else if (schedule::is_message(a.kind)) {
      b.input = view(used(0), values_of(a.owner, shapes).output);
    } else if (a.kind == ActionKind::gather_loss) {
      const int64_t n = request.micro_batches(list);
      int64_t all_losses = 0;
      for (int member : plan_.groups.loss) {
        b.counts.push_back(n * plan_.sums_of_rank(request.mesh.coordinate(member, comm::Axis::pp)));
        all_losses += b.counts.back();
      }
      b.input = view(used(0), {b.counts[comm_.loss->rank()]}, at::kDouble);
      b.output = view(used(1), {all_losses}, at::kDouble);
    } else if (schedule::is_transfer(a.kind)) {
      bind_transfer(b, s, a);
    } else if (a.kind == ActionKind::sum_squares) {
      b.group = group_views(a.owner, s, values, &a);
    } else if (a.kind == ActionKind::step) {
      b.group = group_views(a.owner, s, values, &a);
      const shard::Range tile = plan_.tile(a.owner, a.part);
      for (optim::DecaySegment cut : plan_.segments(a.owner)) {
        cut.begin = std::max(cut.begin, tile.begin) - tile.begin;
        cut.end = std::min(cut.end, tile.end) - tile.begin;
        if (cut.begin < cut.end) b.segments.push_back(cut);
      }
      b.step_traffic = plan_.step_traffic(a.owner);
      for (const schedule::Use& u : a.uses)
        if (const Value& v = s.values[u.value]; v.kind == ValueKind::step_work)
          b.output = view(v, {v.bytes}, at::kByte);
    } else if (schedule::traits_of(a.kind).owner == schedule::Owner::group) {
      b.group = group_views(a.owner, s, values, &a);
      bind_group(b, s, a);
    }
    all.push_back(std::move(b));
  }
  for (size_t i = 0; i < all.size(); ++i)
    if (schedule::is_computation(s.actions[i].kind)) all[i].rows = &plan::rows_of(all[i].traffic, s.actions[i].kind);
  return all;
}

void Engine::set_untrained_steps(std::map<std::string, int64_t> steps) {
  untrained_steps_ = std::move(steps);
  for (Bound& bound : bound_[schedule::List::train])
    for (optim::DecaySegment& segment : bound.segments) {
      if (segment.parameter == nullptr) continue;
      const auto before = untrained_steps_.find(segment.parameter->name);
      segment.untrained = before == untrained_steps_.end() ? 0 : before->second;
    }
}

}  // namespace trireme::engine
