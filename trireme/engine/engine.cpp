#include "trireme/engine/engine.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>

#include "trireme/base/error.h"
#include "trireme/model/initialize.h"

namespace trireme::engine {

using schedule::Action;
using schedule::ActionKind;
using schedule::Memory;
using schedule::Schedule;
using schedule::Value;
using schedule::ValueKind;

namespace {

constexpr unsigned char kGuardPattern = 0xA5;
constexpr unsigned char kPoisonPattern = 0xFF;  // NaN in every float dtype

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

int64_t align(int64_t bytes) {
  return (bytes + schedule::kValueAlignment - 1) / schedule::kValueAlignment * schedule::kValueAlignment;
}

}  // namespace

struct Engine::Bound {
  model::UnitTensors unit;                   // forward, recompute, backward
  at::Tensor input, output;                  // communication, load_batch (tokens, targets)
  std::vector<std::pair<char*, size_t>> gaps;  // bytes of new gradient slots that no parameter writes
};

Engine::Engine(const model::Model& model, plan::StepPlan plan, Communicators communicators, EngineOptions options)
    : model_(model), plan_(std::move(plan)), comm_(std::move(communicators)), options_(options) {
  const schedule::Arena& arena = plan_.arena;
  private_ = MappedMemory(arena.bytes[static_cast<int>(Memory::device)]);
  base_[static_cast<int>(Memory::device)] = static_cast<char*>(private_.data());
  if (const int64_t bytes = arena.bytes[static_cast<int>(Memory::symmetric)]; bytes > 0)
    base_[static_cast<int>(Memory::symmetric)] = static_cast<char*>(comm_.reduce->allocate_shared(bytes, false).mine);
  if (const int64_t bytes = arena.bytes[static_cast<int>(Memory::host_shared)]; bytes > 0)
    base_[static_cast<int>(Memory::host_shared)] = static_cast<char*>(comm_.gather->allocate_shared(bytes, true).mine);
  for (size_t g = 0; g < plan_.layouts.size(); ++g) {
    const shard::FlatLayout& layout = plan_.layouts[g];
    const shard::Range held = plan_.held(static_cast<int>(g));
    std::vector<optim::DecaySegment> segments;
    int64_t at = held.begin;
    const auto cut = [&](int64_t end, bool decay) {
      end = std::min(end, held.end);
      if (end > at) segments.push_back({at - held.begin, end - held.begin, decay});
      at = std::max(at, end);
    };
    for (const shard::FlatTensor& t : layout.tensors()) {
      cut(t.offset, false);  // padding
      cut(t.offset + t.numel, t.decay);
    }
    cut(layout.numel(), false);
    decay_.push_back(std::move(segments));
    counts_.push_back(layout.counts(plan_.request.num_ranks));
  }
  train_ = bind(plan_.schedules[plan::StepPlan::kTrain]);
  evaluate_ = bind(plan_.schedules[plan::StepPlan::kEvaluate]);
  timeline_.reserve(std::max(train_.size(), evaluate_.size()));
}

Engine::~Engine() = default;

int64_t Engine::allocated_bytes() const {
  return private_.bytes() + plan_.arena.bytes[static_cast<int>(Memory::symmetric)] +
         plan_.arena.bytes[static_cast<int>(Memory::host_shared)];
}

at::Tensor Engine::view(const Value& value, at::IntArrayRef shape, at::ScalarType dtype) const {
  return at::from_blob(base_[static_cast<int>(value.memory)] + value.offset, shape, at::TensorOptions().dtype(dtype));
}

at::Tensor Engine::persistent(ValueKind kind, int group) const {
  const Schedule& s = plan_.train();
  const int v = s.find(kind, group, -1);
  check_invariant(v >= 0, "the plan has this persistent value");
  const bool compute = kind == ValueKind::compute_shard;
  return view(s.values[v], {plan_.held(group).size()},
              compute ? plan_.request.precision.compute : plan_.request.precision.state);
}

// Views of a group's parameters (or gradients, of the same layout) in the flat buffer of `value`.
static std::vector<at::Tensor> parameter_views(char* base, const std::vector<shard::FlatTensor>& tensors,
                                               at::ScalarType dtype) {
  std::vector<at::Tensor> views;
  for (const shard::FlatTensor& t : tensors)
    views.push_back(at::from_blob(base + t.offset * static_cast<int64_t>(c10::elementSize(dtype)), t.shape,
                                  at::TensorOptions().dtype(dtype)));
  return views;
}

// Bytes of a flat buffer that belong to no parameter. They are folded and squared with the rest, so in a gradient
// slot, whose bytes held something else before, they have to be zero.
static std::vector<std::pair<char*, size_t>> gaps_of(char* base, const shard::FlatLayout& layout,
                                                     at::ScalarType dtype) {
  const auto size = static_cast<int64_t>(c10::elementSize(dtype));
  std::vector<std::pair<char*, size_t>> gaps;
  int64_t at = 0;
  const auto close = [&](int64_t begin) {
    if (begin > at) gaps.emplace_back(base + at * size, static_cast<size_t>((begin - at) * size));
  };
  for (const shard::FlatTensor& t : layout.tensors()) {
    close(t.offset);
    at = t.offset + t.numel;
  }
  close(layout.numel());
  return gaps;
}

void Engine::bind_unit(Bound& bound, const Schedule& s, const Action& a) {
  const model::Unit& unit = *model_.units[a.owner];
  const plan::StepRequest& request = plan_.request;
  const model::UnitValues declared = unit.values(request.shape, request.precision);
  const at::ScalarType compute = request.precision.compute;
  model::UnitTensors& t = bound.unit;
  t.shape = request.shape;
  t.saved.resize(declared.saved.size());
  const auto& work_specs = a.kind == ActionKind::backward ? declared.backward_work : declared.forward_work;
  t.work.resize(work_specs.size());
  std::map<int, std::vector<at::Tensor>> parameters, gradients;
  for (const schedule::Use& u : a.uses) {
    const Value& v = s.values[u.value];
    char* base = base_[static_cast<int>(v.memory)] + v.offset;
    const int index = v.instance % 64;
    switch (v.kind) {
      case ValueKind::master:
      case ValueKind::compute_shard:
      case ValueKind::parameters:
        parameters[v.owner] = parameter_views(base, plan_.layouts[v.owner].tensors(), compute);
        break;
      case ValueKind::gradient_slot:
        gradients[v.owner] = parameter_views(base, plan_.layouts[v.owner].tensors(), compute);
        if (u.access == schedule::Access::write)
          for (const auto& gap : gaps_of(base, plan_.layouts[v.owner], compute)) bound.gaps.push_back(gap);
        break;
      case ValueKind::tokens:
        t.tokens = view(v, {request.shape.tokens()}, at::kLong);
        break;
      case ValueKind::targets:
        t.targets = view(v, {request.shape.tokens()}, at::kLong);
        break;
      case ValueKind::boundary: {
        const auto shape = model_.units[v.owner]->values(request.shape, request.precision).output.shape;
        (v.owner == a.owner ? t.output : t.input) = view(v, shape, compute);
        break;
      }
      case ValueKind::boundary_gradient:
        t.d_boundary = view(v, model_.units[v.owner]->values(request.shape, request.precision).output.shape, compute);
        break;
      case ValueKind::saved:
        t.saved[index] = view(v, declared.saved[index].shape, declared.saved[index].dtype);
        break;
      case ValueKind::work:
        t.work[index] = view(v, work_specs[index].shape, work_specs[index].dtype);
        break;
      case ValueKind::loss:
        t.loss_sum = view(v, {v.bytes / 8}, at::kDouble).narrow(0, a.micro_batch, 1);
        break;
      default:
        throw InternalError("a unit's action uses " + v.label);
    }
  }
  for (const model::ParameterPlace& place : model_.places[a.owner]) {
    if (auto it = parameters.find(place.group); it != parameters.end()) t.parameters.push_back(it->second[place.index]);
    if (auto it = gradients.find(place.group); it != gradients.end()) t.gradients.push_back(it->second[place.index]);
  }
}

std::vector<Engine::Bound> Engine::bind(const Schedule& s) {
  std::vector<Bound> all;
  const plan::StepRequest& request = plan_.request;
  for (const Action& a : s.actions) {
    Bound b;
    const auto first = [&]() -> const Value& { return s.values[a.uses[0].value]; };
    const auto second = [&]() -> const Value& { return s.values[a.uses[1].value]; };
    switch (a.kind) {
      case ActionKind::load_batch:
        b.input = view(first(), {request.shape.tokens()}, at::kLong);
        b.output = view(second(), {request.shape.tokens()}, at::kLong);
        break;
      case ActionKind::unshard:
        b.input = view(first(), {plan_.held(a.owner).size()}, request.precision.compute);
        b.output = view(second(), {plan_.layouts[a.owner].numel()}, request.precision.compute);
        break;
      case ActionKind::reduce_gradient:
        b.input = view(first(), {plan_.layouts[a.owner].numel()}, request.precision.compute);
        b.output = view(second(), {plan_.held(a.owner).size()}, request.precision.state);
        break;
      case ActionKind::gather_loss: {
        const int64_t n = &s == &plan_.train() ? request.num_micro_batches : request.num_evaluation_micro_batches;
        b.input = view(first(), {n}, at::kDouble);
        b.output = view(second(), {n * request.num_ranks}, at::kDouble);
        break;
      }
      case ActionKind::forward:
      case ActionKind::recompute:
      case ActionKind::backward:
        bind_unit(b, s, a);
        break;
      default:
        break;
    }
    all.push_back(std::move(b));
  }
  return all;
}

void Engine::initialize(uint64_t seed) {
  for (size_t g = 0; g < plan_.layouts.size(); ++g) {
    const int group = static_cast<int>(g);
    const shard::Range held = plan_.held(group);
    at::Tensor master = persistent(ValueKind::master, group);
    master.zero_();
    persistent(ValueKind::exp_avg, group).zero_();
    persistent(ValueKind::exp_avg_sq, group).zero_();
    for (size_t i = 0; i < plan_.layouts[g].tensors().size(); ++i) {
      const shard::FlatTensor& t = plan_.layouts[g].tensors()[i];
      const model::ParameterSpec& spec = model_.groups[g].parameters[i];
      const int64_t begin = std::max(held.begin, t.offset), end = std::min(held.end, t.offset + t.numel);
      if (begin >= end) continue;
      if (master.scalar_type() == at::kDouble)
        model::initialize_span(master.data_ptr<double>() + (begin - held.begin), spec, seed, begin - t.offset,
                               end - t.offset);
      else
        model::initialize_span(master.data_ptr<float>() + (begin - held.begin), spec, seed, begin - t.offset,
                               end - t.offset);
    }
  }
  refresh_weights();
}

void Engine::refresh_weights() {
  if (plan_.request.precision.compute == plan_.request.precision.state) return;
  for (size_t g = 0; g < plan_.layouts.size(); ++g)
    persistent(ValueKind::compute_shard, static_cast<int>(g)).copy_(persistent(ValueKind::master, static_cast<int>(g)));
}

std::vector<GroupState> Engine::state() {
  std::vector<GroupState> out;
  for (size_t g = 0; g < plan_.layouts.size(); ++g) {
    const int group = static_cast<int>(g);
    out.push_back({&plan_.layouts[g], plan_.held(group),
                   plan_.layouts[g].owned(plan_.request.rank, plan_.request.num_ranks),
                   persistent(ValueKind::master, group), persistent(ValueKind::exp_avg, group),
                   persistent(ValueKind::exp_avg_sq, group), persistent(ValueKind::gradient_shard, group)});
  }
  return out;
}

StepResult Engine::train_step(const StepInputs& inputs) {
  inputs_ = &inputs;
  load_batch_ = &inputs.load_batch;
  run(plan_.schedules[plan::StepPlan::kTrain], train_);
  return {sum_losses(plan_.request.num_micro_batches) / double(inputs.supervised_tokens), gradient_norm_};
}

double Engine::evaluate(const LoadBatch& load_batch, int64_t supervised_tokens) {
  inputs_ = nullptr;
  load_batch_ = &load_batch;
  run(plan_.schedules[plan::StepPlan::kEvaluate], evaluate_);
  return sum_losses(plan_.request.num_evaluation_micro_batches) / double(supervised_tokens);
}

// Micro-batch i of the global batch is the (i / ranks)-th of rank i % ranks: summed in the order of i.
double Engine::sum_losses(int n) const {
  const Schedule& s = plan_.train();
  const Value& v = s.values[s.find(ValueKind::loss_all, -1, -1)];
  const auto* losses = reinterpret_cast<const double*>(base_[static_cast<int>(v.memory)] + v.offset);
  double sum = 0;
  for (int i = 0; i < n; ++i)
    for (int r = 0; r < plan_.request.num_ranks; ++r) sum += losses[r * n + i];
  return sum;
}

void Engine::wait_until(int index) {
  size_t kept = 0;
  for (size_t i = 0; i < pending_.size(); ++i) {
    if (pending_[i].completes_at <= index)
      pending_[i].work->wait();
    else
      pending_[kept++] = pending_[i];
  }
  pending_.resize(kept);
}

void Engine::run(const Schedule& s, std::vector<Bound>& bound) {
  const auto start = std::chrono::steady_clock::now();
  timeline_.clear();
  const int count = static_cast<int>(s.actions.size());
  for (int i = 0; i < count; ++i) {
    wait_until(i);
    if (options_.poison) {
      poison_ended(s, i - 1);
      set_guards(s, i);
    }
    comm_.gather->progress();
    comm_.reduce->progress();
    const double begin = seconds_since(start);
    execute(s.actions[i], bound[i]);
    timeline_.push_back({i, begin, seconds_since(start)});
  }
  wait_until(count);
  if (options_.poison) poison_ended(s, count - 1);
}

void Engine::execute(const Action& a, Bound& b) {
  comm::WorkPtr work;
  switch (a.kind) {
    case ActionKind::load_batch:
      (*load_batch_)(a.micro_batch, b.input, b.output);
      break;
    case ActionKind::unshard:
      work = comm_.gather->all_gather(b.output, b.input, counts_[a.owner]);
      break;
    case ActionKind::forward:
      model_.units[a.owner]->forward(b.unit);
      break;
    case ActionKind::recompute:
      model_.units[a.owner]->recompute(b.unit);
      break;
    case ActionKind::backward:
      for (const auto& [data, bytes] : b.gaps) std::memset(data, 0, bytes);
      b.unit.loss_scale = 1.0 / double(inputs_->supervised_tokens);
      model_.units[a.owner]->backward(b.unit);
      break;
    case ActionKind::reduce_gradient: {
      const comm::ReduceOptions options{.op = comm::ReduceOp::sum, .accumulate = a.accumulate};
      work = plan_.sharded() ? comm_.reduce->reduce_scatter(b.output, b.input, counts_[a.owner], options)
                             : comm_.reduce->all_reduce(b.output, b.input, options);
      break;
    }
    case ActionKind::gather_loss: {
      const std::vector<int64_t> counts(plan_.request.num_ranks, b.input.numel());
      work = comm_.world->all_gather(b.output, b.input, counts);
      break;
    }
    case ActionKind::gather_norm:
      gather_norm();
      break;
    case ActionKind::clip:
      gradient_scale_ = inputs_->max_norm ? std::min(1.0, *inputs_->max_norm / (gradient_norm_ + 1e-6)) : 1.0;
      break;
    case ActionKind::step: {
      optim::AdamWOptions options = inputs_->optimizer;
      options.gradient_scale = gradient_scale_;
      const bool copy = plan_.request.precision.compute != plan_.request.precision.state;
      optim::adamw_update(persistent(ValueKind::master, a.owner), persistent(ValueKind::exp_avg, a.owner),
                          persistent(ValueKind::exp_avg_sq, a.owner), persistent(ValueKind::gradient_shard, a.owner),
                          copy ? persistent(ValueKind::compute_shard, a.owner) : at::Tensor(), decay_[a.owner],
                          options);
      break;
    }
  }
  if (!work) return;
  if (a.completes_at >= 0)
    pending_.push_back({std::move(work), a.completes_at});
  else
    work->wait();
}

// Partial sums of squares of every 4096 elements, of all ranks, summed in the order of the flat layouts: the same
// bits on any number of ranks.
void Engine::gather_norm() {
  const Schedule& s = plan_.train();
  const int size = plan_.sharded() ? plan_.request.num_ranks : 1;
  const Value& own_value = s.values[s.find(ValueKind::norm_partials, -1, -1)];
  const Value& all_value = s.values[s.find(ValueKind::norm_all, -1, -1)];
  at::Tensor own = view(own_value, {own_value.bytes / 8}, at::kDouble),
             all = view(all_value, {all_value.bytes / 8}, at::kDouble);
  int64_t at = 0;
  for (size_t g = 0; g < plan_.layouts.size(); ++g) {
    const int64_t blocks = plan_.held(static_cast<int>(g)).size() / shard::kBlockElements;
    if (blocks > 0)
      optim::squared_norm_partials(own.narrow(0, at, blocks),
                                   persistent(ValueKind::gradient_shard, static_cast<int>(g)));
    at += blocks;
  }
  std::vector<int64_t> counts(size, 0);
  for (const shard::FlatLayout& layout : plan_.layouts)
    for (int r = 0; r < size; ++r) counts[r] += layout.owned(r, size).size() / shard::kBlockElements;
  const double* partials = own.data_ptr<double>();
  if (size > 1) {
    comm_.world->all_gather(all, own, counts)->wait();
    partials = all.data_ptr<double>();
  }
  std::vector<int64_t> cursor(size, 0);
  for (int r = 1; r < size; ++r) cursor[r] = cursor[r - 1] + counts[r - 1];
  double sum = 0;
  for (const shard::FlatLayout& layout : plan_.layouts)
    for (int r = 0; r < size; ++r)
      for (int64_t i = 0; i < layout.owned(r, size).size() / shard::kBlockElements; ++i) sum += partials[cursor[r]++];
  gradient_norm_ = std::sqrt(sum);
}

// Debugging: what a list should not read any more becomes NaN, and what lies behind a value must not change.
void Engine::poison_ended(const Schedule& s, int index) {
  if (index < 0) return;
  const bool shared_by_ranks = plan_.request.num_ranks > 1;
  bool waited = false;
  for (const Value& v : s.values) {
    if (v.persistent || v.last != index) continue;
    const bool continues = std::any_of(s.values.begin(), s.values.end(), [&](const Value& other) {
      return other.takes_over >= 0 && &s.values[other.takes_over] == &v;
    });
    char* data = base_[static_cast<int>(v.memory)] + v.offset;
    const int64_t guard = plan_.request.guard_bytes;
    for (int64_t i = 0; i < guard && !continues; ++i)
      if (static_cast<unsigned char>(data[align(v.bytes) + i]) != kGuardPattern)
        throw InternalError(fmt::format("{} was written past its end (byte {} behind it)", v.label, i));
    if (continues) continue;
    if (v.memory == Memory::host_shared && shared_by_ranks && !waited) {
      comm_.world->barrier()->wait();  // the others may still read what this list has finished with
      waited = true;
    }
    std::memset(data, kPoisonPattern, static_cast<size_t>(v.bytes));
  }
  if (waited) comm_.world->barrier()->wait();
}

void Engine::set_guards(const Schedule& s, int index) {
  for (const Value& v : s.values)
    if (!v.persistent && v.first == index)
      std::memset(base_[static_cast<int>(v.memory)] + v.offset + align(v.bytes), kGuardPattern,
                  static_cast<size_t>(align(plan_.request.guard_bytes)));
}

}  // namespace trireme::engine
