#include "trireme/engine/engine.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <climits>
#include <cmath>

#include "trireme/base/error.h"
#include "trireme/base/meter.h"
#include "trireme/base/stopwatch.h"
#include "trireme/engine/device.h"
#include "trireme/engine/quantized_group.h"
#include "trireme/engine/shared_places.h"
#include "trireme/model/dropout.h"
#include "trireme/model/initialize.h"
#include "trireme/ops/cuda/kernels.h"
#include "trireme/ops/parallel.h"
#include "trireme/optim/adafactor.h"
#include "trireme/optim/stored_update.h"
#include "trireme/plan/activity.h"
#include "trireme/plan/unit_pass.h"

namespace trireme::engine {

using schedule::Action;
using schedule::ActionKind;
using schedule::List;
using schedule::Memory;
using schedule::Schedule;
using schedule::ValueKind;

namespace {

void keep_for_ever(MappedMemory memory) {
  static auto& kept = *new std::vector<MappedMemory>;  // outlives every static destructor
  kept.push_back(std::move(memory));
}

}  // namespace

Engine::Engine(const model::Model& model, plan::StepPlan plan, Communicators communicators, EngineOptions options)
    : model_(model), plan_(std::move(plan)), comm_(std::move(communicators)), options_(options) {
  if (on_gpu()) check_gpu(model_, plan_.request, options_.poison);
  if (on_gpu()) {
    device_memory_ = allocate_on_gpu(plan_.arena.of(Memory::own), options_.device);
    base_[static_cast<int>(Memory::own)] = static_cast<char*>(device_memory_.mutable_data_ptr());
  } else if (!options_.memory.empty()) {
    check_invariant(std::ssize(options_.memory) >= plan_.arena.of(Memory::own), "the given memory holds the plan");
    base_[static_cast<int>(Memory::own)] = options_.memory.data();
  } else {
    private_ = MappedMemory(plan_.arena.of(Memory::own));
    base_[static_cast<int>(Memory::own)] = static_cast<char*>(private_.data());
  }
  const auto share = [&](Memory memory, comm::Communicator& ranks) {
    const int64_t bytes = plan_.arena.of(memory);
    if (bytes == 0) return;
    const comm::SharedBuffer shared = ranks.allocate_shared(bytes, memory != Memory::symmetric);
    if (shared.parts.size() > 1) compare_places(plan_, memory, ranks);
    base_[static_cast<int>(memory)] = static_cast<char*>(shared.mine);
  };
  share(Memory::symmetric, *comm_.reduce);
  share(Memory::host_shared, *comm_.gather);
  share(Memory::host_reduced, *comm_.reduce);
  allocate_tiers();
  for (const auto& [axis, mesh, name, adjective] : comm::kUnitAxes)
    if (const auto& ranks = comm_.inside[axis]; ranks->size() > 1)
      inside_[axis] = std::make_unique<WatchedCommunicator>(ranks, axis);
  const schedule::ValueIndex values(plan_.train());
  norm_partials_ = values.find(ValueKind::norm_partials, -1, -1);
  for (int g : plan_.local_groups) {
    views_[g] = group_views(g, plan_.train(), values);
    if (plan_.storage[g].trained) segments_[g] = plan_.segments(g);
  }
  size_t longest = 0;
  for (const schedule::ListTraits& list : schedule::kLists) {
    bound_[list.list] = bind(planned_shapes(list.list));
    longest = std::max(longest, bound_[list.list].size());
  }
  timeline_.reserve(longest);
  plan_graphs();
  for (const auto& unit : model_.units)
    if (unit->keeps_references()) wrapped_.push_back(unit.get());
  for (const auto& c : {comm_.gather, comm_.reduce, comm_.replicas, comm_.stages[0], comm_.stages[1]})
    if (c->size() > 1) asynchronous_.push_back(c.get());
  // Micro-batch i of the global batch is the (i / n)-th of data rank i % n; its context-parallel parts follow.
  for (int unit = 0; unit < static_cast<int>(model_.units.size()); ++unit) {
    if (plan_.num_sums(unit) == 0) continue;
    std::map<std::pair<int, int>, SumPlaces::OfRank> ranks;  // by (data index, context rank)
    int64_t before = 0;
    for (int member : plan_.groups.loss) {
      const plan::StepRequest who = plan_.request.of_rank(member);
      const int stage_rank = who.coordinate(comm::Axis::pp);
      const int64_t count = plan_.sums_of_rank(stage_rank);
      if (plan_.stage_rank_of(unit) == stage_rank)
        ranks[{who.data_index(), who.coordinate(comm::Axis::cp)}] = {before, count};
      before += count;
    }
    sum_places_.push_back({.unit = unit, .ranks = {}});
    for (const auto& [key, place] : ranks) sum_places_.back().ranks.push_back(place);
  }
}

Engine::~Engine() {
  for (const model::Unit* unit : wrapped_) unit->end_memory();
}

std::span<char> Engine::lent_memory() const {
  const int64_t bytes = plan_.request.lent_bytes;
  return {base_[static_cast<int>(Memory::own)] + plan_.lent_begin(), static_cast<size_t>(bytes)};
}

int64_t Engine::allocated_bytes() const {
  const int64_t own = on_gpu() ? device_memory_.numel() : private_.bytes();
  return own + plan_.arena.total() - plan_.arena.of(Memory::own);
}

void Engine::initialize(uint64_t seed) {
  mirror_.clear();
  set_untrained_steps({});
  for (auto& [g, views] : views_) {
    const shard::Range held = plan_.held(g);
    if (plan_.storage[g].quantized != base::BlockFormat::none || plan_.storage[g].packed) {
      initialize_records(group_state(
                             g, [](const at::Tensor& t) { return t; }, [](const at::Tensor& t) { return t; }),
                         seed, plan_.request.precision.state);
      continue;
    }
    for (at::Tensor& state : views.state()) state.zero_();
    if (views.compensation.defined()) views.compensation.zero_();
    // Drawn in the state dtype: a frozen group begins with the values that a trained one would compute with.
    const at::ScalarType made_in = plan_.request.precision.state;
    const bool in_place = !on_gpu() && views.master.scalar_type() == made_in;
    const at::Tensor master = in_place ? views.master.zero_() : at::zeros(views.master.sizes(), made_in);
    for (size_t i = 0; i < plan_.layouts[g].tensors().size(); ++i) {
      const shard::FlatTensor& t = plan_.layouts[g].tensors()[i];
      const model::ParameterSpec& spec = model_.groups[g].parameters[i];
      const int64_t begin = std::max(held.begin, t.offset), end = std::min(held.end, t.offset + t.numel);
      if (begin >= end) continue;
      const int64_t at = begin - held.begin, in_parameter = begin - t.offset;
      const auto make = [&](auto* out) {
        ops::parallel_rows(end - begin, 1 << 16, [&](int64_t first, int64_t last) {
          model::initialize_held(out + first, spec, seed, in_parameter + first, in_parameter + last);
        });
      };
      master.scalar_type() == at::kDouble ? make(master.data_ptr<double>() + at) : make(master.data_ptr<float>() + at);
    }
    if (!in_place) views.master.copy_(master);
  }
  refresh_weights();
}

void Engine::refresh_weights() {
  gathered_.clear();
  for (auto& [g, views] : views_) {
    const auto take = [&](at::Tensor& tensor) {
      if (const auto copy = mirror_.find(tensor.const_data_ptr()); copy != mirror_.end()) tensor.copy_(copy->second);
    };
    take(views.master);
    for (at::Tensor& state : views.state()) take(state);
    if (views.compute_copy.defined()) views.compute_copy.copy_(views.master);
  }
  mirror_.clear();
  seal_tiers();
}

GroupState Engine::group_state(int g, const std::function<at::Tensor(const at::Tensor&)>& take,
                               const std::function<at::Tensor(const at::Tensor&)>& take_whole) {
  const GroupViews& v = views_.at(g);
  const plan::GroupStorage& storage = plan_.storage[g];
  GroupState state{&plan_.layouts[g], &model_.groups[g].parameters, &storage, plan_.held(g), plan_.saved(g),
                   take(v.master)};
  for (size_t i = 0; i < v.optimizer.size(); ++i)
    state.optimizer.push_back({storage.optimizer_state[i], take(v.optimizer[i])});
  if (v.compensation.defined()) state.optimizer.push_back({"compensation", take(v.compensation)});
  if (!v.whole_state.defined()) return state;
  const at::Tensor whole = take_whole(v.whole_state);
  int64_t at = 0;
  for (const optim::DecaySegment& s : segments_.at(g)) {
    if (s.parameter == nullptr) continue;
    const bool owns = s.begin + state.held.begin >= state.saved.begin && s.begin + state.held.begin < state.saved.end;
    for (const optim::WholeState& kept : optim::whole_state(storage.rule, s.parameter->whole_shape())) {
      at::Tensor tensor = whole.narrow(0, at, kept.floats(*s.parameter));
      if (kept.bytes) tensor = tensor.view(at::kByte).narrow(0, 0, kept.held(*s.parameter));
      const bool counts = kept.elements_each > 0 ? s.parameter->counted : plan_.request.coordinate(comm::Axis::tp) == 0;
      state.whole.push_back({s.parameter, kept.name, kept.shape, kept.elements_each, tensor, owns && counts});
      at += kept.floats(*s.parameter);
    }
  }
  return state;
}

std::vector<GroupState> Engine::state() {
  look_at_tiers();
  std::vector<GroupState> out;
  for (auto& [g, v] : views_) {
    const auto take = [this](const at::Tensor& tensor) { return on_host(tensor); };
    out.push_back(group_state(g, take, take));
    out.back().gradient = v.step_gradient;
  }
  return out;
}

std::vector<GroupState> Engine::copy_state() {
  look_at_tiers();
  if (on_gpu()) return saved_part(state(), host_memory_);
  const Schedule& s = plan_.train();
  const int copy = s.find(ValueKind::save_copy, -1, -1);
  std::vector<GroupState> out;
  char* to = copy < 0 ? nullptr : base_[static_cast<int>(s.values[copy].memory)] + s.values[copy].offset;
  for (const auto& [g, v] : views_) {
    const shard::Range saved = plan_.saved(g), held = plan_.held(g);
    check_invariant(to != nullptr || saved.size() == 0, "a copy for saving was planned");
    const auto copy_of = [&](const at::Tensor& from, int64_t bytes) {
      const at::Tensor kept = at::from_blob(to, from.sizes(), from.options());
      copy_on_all_threads(to, from.const_data_ptr(), static_cast<int64_t>(from.nbytes()));
      to += bytes;
      return kept;
    };
    const auto take = [&](const at::Tensor& whole) {
      return copy_of(whole.narrow(0, saved.size() > 0 ? saved.begin - held.begin : 0, saved.size()),
                     plan_.save_copy_bytes(g));
    };
    out.push_back(group_state(g, take, [&](const at::Tensor& whole) {
      return copy_of(whole, schedule::aligned(plan_.whole_state_bytes(g)));
    }));
    out.back().held = saved;
  }
  return out;
}

StepResult Engine::train_step(const StepInputs& inputs) {
  inputs_ = &inputs;
  load_batch_ = &inputs.load_batch;
  mirror_.clear();
  given_up_ = false;
  loss_scale_ = inputs.loss_scale.value_or(1);
  committed_.reset();
  // Once a group has stepped inside the backward pass, the step is not given up: it has been agreed on.
  const bool is_agreed = plan_.request.steps_in_backward;
  check_invariant(!is_agreed || !(inputs.max_norm || inputs.loss_scale),
                  "what is stepped inside the backward pass is neither clipped nor scaled");
  if (is_agreed) committed_ = true;
  if (comm_.recorder) comm_.recorder->set_step(inputs.optimizer.step);
  squares_.clear();
  squares_on_gpu_ = at::Tensor();
  run(List::train);
  if (is_agreed) committed_.reset();  // the caller still hears of the step's end
  LossSums of_the_step;
  const double loss = mean_loss(List::train, double(inputs.supervised_tokens), of_the_step);
  const bool committed = commits();
  return {.loss = loss,
          .measures = measures_,
          .gradient_norm = gradient_norm_,
          .learning_rate = optim::rate_of(inputs.optimizer, inputs.skipped),
          .committed = committed,
          .overflowed = committed && overflowed()};
}

// All ranks have the same norm. Nothing of the state has been touched when it is known.
bool Engine::overflowed() const { return inputs_->loss_scale && !std::isfinite(gradient_norm_); }

bool Engine::takes_step() { return commits() && !overflowed(); }

// Ranks without a part of the state have no optimizer action: they decide after the list.
bool Engine::commits() {
  if (!committed_) {
    const comm::FlightRecorder::Actions none(comm_.recorder.get());  // ranks do this in different actions
    committed_ = !inputs_->commit || inputs_->commit(given_up_);
  }
  return *committed_;
}

void Engine::wait_until(int index) {
  size_t kept = 0;
  for (size_t i = 0; i < pending_.size(); ++i) {
    if (pending_[i].completes_at <= index) {
      const base::Metered metered(pending_[i].activity);
      const base::Stopwatch waiting;
      pending_[i].work->wait();
      timeline_[static_cast<size_t>(pending_[i].action)].waited += waiting.seconds();
    } else {
      pending_[kept++] = pending_[i];
    }
  }
  pending_.resize(kept);
}

void Engine::run(const Schedule& s, std::vector<Bound>& bound) try {
  comm::FlightRecorder* recorder = comm_.recorder.get();
  const comm::FlightRecorder::Actions actions(recorder);
  end_last_list();
  leave_tiers();
  if (on_gpu()) ops::cuda_kernels().allow_any_order(plan_.request.precision.any_order);
  base::meter_fence();
  const base::Stopwatch watch;
  timeline_.clear();
  const int count = static_cast<int>(s.actions.size());
  const auto lives = options_.poison ? std::optional<schedule::Lifetimes>(s) : std::nullopt;
  for (int i = 0; i < count; ++i) {
    wait_until(i);
    if (lives) {
      poison_ended(s, *lives, i - 1);
      set_guards(s, *lives, i);
    }
    progress();
    const double begin = watch.seconds();
    if (recorder) recorder->set_action(bound[i].label);
    const int end = run_as_graph(s, bound, i);
    if (end == 0) execute(s, s.actions[i], bound[i]);
    base::meter_fence();
    timeline_.push_back({i, begin, watch.seconds()});
    while (i + 1 < end) timeline_.push_back({++i, timeline_.back().end, timeline_.back().end});
  }
  wait_until(count);
  if (lives) poison_ended(s, *lives, count - 1);
} catch (...) {
  gathered_.clear();  // a gather that has not ended is none
  // Copies under way end here, or the next list would run over them. The first error counts.
  if (!on_gpu())
    std::erase_if(pending_, [&](const Pending& p) {
      if (!schedule::is_transfer(s.actions[static_cast<size_t>(p.action)].kind)) return false;
      try {
        p.work->wait();
      } catch (const std::exception&) {
      }
      return true;
    });
  // Gloo's threads may still send from this memory; unmapping it would crash them.
  if (comm_.world->size() > 1) keep_for_ever(std::move(private_));
  if (on_gpu()) keep_transfers();
  throw;
}

// Messages that a list which failed has left behind. Where all ranks failed alike, their peers still send them.
void Engine::end_last_list() {
  for (const Pending& left : std::exchange(pending_, {})) left.work->wait();
}

void Engine::progress() {
  const base::Metered metered(base::Activity::communication);
  for (comm::Communicator* c : asynchronous_) c->progress();
}

// Once the ranks have agreed to take the step, it is not given up.
bool Engine::gives_up() {
  if (!given_up_ && !committed_ && inputs_ && inputs_->give_up) given_up_ = inputs_->give_up();
  return given_up_;
}

void Engine::execute(const Schedule& s, const Action& a, Bound& b) {
  const base::Activity activity = schedule::traits_of(a.kind).activity;
  // Copies are made and written back even then: what a step left alone must not change.
  if (gives_up() && activity != base::Activity::communication && activity != base::Activity::offload) {
    const base::Metered metered(plan::activity_of(plan_, a));
    return pass_by(s, a, b);
  }
  perform(s, a, b);
}

void Engine::perform(const Schedule& s, const Action& a, Bound& b) {
  const base::Activity counts_as = plan::activity_of(plan_, a);
  const base::Metered metered(counts_as);
  if (schedule::is_computation(a.kind)) return compute(s, a, b);
  switch (a.kind) {
    case ActionKind::load_batch:
      return load(a, b);
    case ActionKind::sum_squares:
      return sum_squares(a, b);
    case ActionKind::gather_norm:
      return gather_norm(s, a);
    case ActionKind::clip:
      gradient_scale_ = inputs_->max_norm ? std::min(1.0, *inputs_->max_norm / (gradient_norm_ + 1e-6)) : 1.0;
      return;
    case ActionKind::step:
      if (takes_step()) step(a, b);
      return;
    default:
      break;
  }
  if (is_gathered(a)) return;
  // A step that is not taken writes no weights: their homes stay as they are.
  if (a.kind == ActionKind::evict && inputs_ && committed_ && !takes_step()) return;
  comm::WorkPtr work = schedule::is_transfer(a.kind) ? transfer(a, b) : communicate(a, b);
  if (a.completes_at >= 0)
    pending_.push_back({std::move(work), static_cast<int>(&a - s.actions.data()), a.completes_at, counts_as});
  else
    work->wait();
}

// Weights that are gathered once stay until the optimizer or a load changes the shards. So frozen groups are gathered
// once a run, and all groups once for many evaluations and texts. The ranks of a group agree about it.
bool Engine::is_gathered(const Action& a) const { return a.kind == ActionKind::unshard && gathered_.contains(a.owner); }

// What a step that was given up still does, because other ranks wait for it: units' own traffic and the norm's.
void Engine::pass_by(const Schedule& s, const Action& a, const Bound& b) {
  if (a.kind == ActionKind::gather_norm) return gather_norm(s, a);
  if (a.kind == ActionKind::step) return static_cast<void>(commits());
  if (!schedule::is_computation(a.kind)) return;
  replay(*b.rows, comm_.inside, options_.device);
}

void Engine::step(const Action& a, Bound& b) {
  optim::OptimizerOptions options = optim::options_of_group(inputs_->optimizer, plan_.storage[a.owner].rule);
  options.step -= inputs_->skipped;
  options.gradient_scale = gradient_scale_ / loss_scale_;
  WatchedCommunicator* parts = inside_[comm::UnitAxis::tp].get();
  if (parts != nullptr) parts->expect(b.step_traffic, "Step of " + plan_.layouts[a.owner].name());
  const auto add_parts = [&](const at::Tensor& tensor) {
    if (parts != nullptr) parts->all_reduce(tensor, tensor, {})->wait();
  };
  const GroupViews& g = b.group;
  gathered_.erase(a.owner);
  const uint64_t key = model::dropout_step_key(inputs_->seed, inputs_->optimizer.step) ^
                       model::dropout_module_key(plan_.layouts[a.owner].name());
  optim::update_stored({.master = g.master,
                        .state = g.state(),
                        .gradient = g.step_gradient,
                        .compute = g.compute_copy,
                        .compensation = g.compensation,
                        .work = b.output,
                        .stochastic = plan_.request.precision.rounding == model::Rounding::stochastic,
                        .key = key,
                        .first = plan_.held(a.owner).begin + plan_.tile(a.owner, a.part).begin},
                       b.segments, options, add_parts);
  if (parts != nullptr) parts->finish();
}

comm::WorkPtr Engine::communicate(const Action& a, Bound& b) {
  const comm::ReduceOptions sum{.op = comm::ReduceOp::sum, .accumulate = a.accumulate};
  switch (a.kind) {
    case ActionKind::unshard:
      if (views_.at(a.owner).weights.defined()) gathered_.insert(a.owner);
      return comm_.gather->all_gather(b.output, b.input, b.counts);
    case ActionKind::reduce_gradient:
      return comm_.reduce->reduce_scatter(b.output, b.input, b.counts, sum);
    case ActionKind::all_reduce_gradient:
      return comm_.reduce->all_reduce(b.output, b.input, sum);
    case ActionKind::gather_replicas:
      return comm_.replicas->all_gather(b.output, b.input, b.counts);
    case ActionKind::reduce_replicas:
      return comm_.replicas->all_reduce(b.output, b.input, sum);
    case ActionKind::reduce_tied:
      return comm_.tied.at(a.owner)->all_reduce(b.output, b.input, sum);
    case ActionKind::gather_loss:
      return comm_.loss->all_gather(b.output, b.input, b.counts);
    case ActionKind::send:
      return comm_.stages[a.queue.lane]->send(b.input, a.queue.peer);
    case ActionKind::receive:
      return comm_.stages[a.queue.lane]->receive(b.input, a.queue.peer);
    default:
      throw InternalError(fmt::format("no communicator runs {}", schedule::name_of(a.kind)));
  }
}

// What is left of a computation over a micro-batch in which nothing is learned.
void Engine::leave_empty(const Action& a, Bound& b) {
  if (b.unit.loss_sum.defined()) b.unit.loss_sum.zero_();
  if (!schedule::writes_gradient(a.kind)) return;
  for (at::Tensor& gap : b.gaps) gap.zero_();
  for (size_t i = 0; i < b.unit.gradients.size(); ++i)
    if (const ops::Gradient gradient = b.unit.gradient(i); gradient.to.defined() && !gradient.accumulate)
      gradient.to.zero_();
}

void Engine::compute(const Schedule& s, const Action& a, Bound& b) {
  if (inputs_ && b.unit.micro_batch >= inputs_->used_micro_batches.value_or(INT_MAX)) return leave_empty(a, b);
  const model::Unit& unit = model_.unit(a.owner, b.unit.new_tokens != nullptr);
  for (const auto& c : inside_)
    if (c) c->expect(*b.rows, schedule::name_of(a.kind) + (" of " + s.unit_names[a.owner]), unit.keeps_references());
  if (schedule::writes_gradient(a.kind))
    for (at::Tensor& gap : b.gaps) gap.zero_();
  if (inputs_) {
    b.unit.loss_scale = loss_scale_ / double(inputs_->supervised_tokens);
    b.unit.random.step_key = model::dropout_step_key(inputs_->seed, inputs_->optimizer.step);
  }
  plan::run_pass(unit, a.kind, b.unit, b.recomputed);
  for (const auto& c : inside_)
    if (c) c->finish();
}

}  // namespace trireme::engine
