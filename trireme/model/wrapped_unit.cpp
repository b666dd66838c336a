#include "trireme/model/wrapped_unit.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/ScopeExit.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <mutex>
#include <utility>

#include "trireme/base/checksum.h"
#include "trireme/base/error.h"
#include "trireme/base/mix64.h"
#include "trireme/model/autograd_leaves.h"
#include "trireme/model/wrapped_storage.h"

namespace trireme::model {
namespace {

// Copies of tensors, to put back. That counts as no change for autograd: a graph may have saved the tensors.
class Copies {
 public:
  explicit Copies(std::vector<at::Tensor> tensors) : tensors_(std::move(tensors)) {
    for (const at::Tensor& t : tensors_) copies_.push_back(t.detach().clone());
  }
  bool differ() const {
    for (size_t i = 0; i < tensors_.size(); ++i)
      if (!at::equal(tensors_[i], copies_[i])) return true;
    return false;
  }
  void put_back() const {
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < tensors_.size(); ++i) tensors_[i].variable_data().copy_(copies_[i]);
  }

 private:
  std::vector<at::Tensor> tensors_, copies_;
};

at::Tensor random_state() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

void set_random_state(const at::Tensor& state) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  generator.set_state(state);
}

}  // namespace

WrappedUnit::WrappedUnit(Wrapped part, std::vector<ParameterSpec> specs, at::ScalarType compute, TensorRanksPtr ranks)
    : part_(std::move(part)), specs_(std::move(specs)), compute_(compute), ranks_(std::move(ranks)) {
  const at::NoGradGuard no_grad;
  for (const NamedTensor& p : part_.parameters)
    if (is_in_planned_memory(p.tensor))
      throw UsageError(
          fmt::format("[wrap] the parameters of '{}' lie in the memory of a Trainer that had them before; call its "
                      "store() before it goes, then build the model",
                      name()));
  for (NamedTensor& p : part_.parameters) {
    initial_.push_back(p.tensor.detach());
    p.tensor.set_data(movable(p.tensor.detach().to(compute).contiguous(), p.tensor));
    parameters_.push_back(p.tensor);
  }
  for (auto* kept : {&part_.frozen, &part_.buffers})
    for (NamedTensor& b : *kept)
      if (b.tensor.is_floating_point()) b.tensor.set_data(b.tensor.detach().to(compute));
}

// What was written since the model was built counts, in the numbers that the module has now.
const std::vector<at::Tensor>* WrappedUnit::initial() const {
  for (size_t i = 0; i < initial_.size(); ++i) {
    if (is_in_planned_memory(parameters_[i])) continue;  // a later model's Trainer has it
    check_kind(i);
    const at::Tensor now = parameters_[i].detach().contiguous(), given = initial_[i].to(compute_).contiguous();
    if (std::memcmp(now.const_data_ptr(), given.const_data_ptr(), now.nbytes()) != 0)
      initial_[i] = now;  // NaN is equal
  }
  return &initial_;
}

void WrappedUnit::train(bool training) const {
  training_ = training;
  if (part_.train) part_.train(training);
}

void WrappedUnit::release() const {
  initial_.clear();
  graphs_.clear();
  random_states_.clear();
  const std::string why = fmt::format(
      "[wrap] the parameters of '{}' have no values between the steps of their Trainer; call its store() to read them",
      name());
  const c10::InferenceMode off(false);
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    at::Tensor p = parameters_[i];
    if (!has_own_storage(p))  // the memory is its owner's, who goes on with it
      p.set_data(with_storage(planned(nullptr, p, this), specs_[i].shape, p.options().dtype(compute_)));
    refuse_reads(p, why, this);
  }
}

void WrappedUnit::end_memory() const {
  graphs_.clear();
  for (const at::Tensor& p : parameters_)
    if (was_set_by(p, this))  // not by a later model's unit
      refuse_reads(p,
                   fmt::format("[wrap] the parameters of '{}' lay in the memory of a Trainer that has gone; call its "
                               "store() before it goes",
                               name()),
                   this);
}

void WrappedUnit::own(int index, const at::Tensor& value) const {
  const c10::InferenceMode off(false);
  const at::NoGradGuard no_grad;
  at::Tensor parameter = parameters_[index];
  const at::Tensor own = value.reshape(specs_[static_cast<size_t>(index)].shape)
                             .to(compute_, /*non_blocking=*/false, /*copy=*/true)
                             .contiguous();
  parameter.set_data(movable(own, parameter));
}

std::vector<int64_t> WrappedUnit::versions() const {
  std::vector<int64_t> versions;
  for (const auto* kept : {&part_.frozen, &part_.buffers})
    for (const NamedTensor& b : *kept)
      versions.push_back(b.tensor.is_inference() ? 0 : static_cast<int64_t>(b.tensor._version()));
  return versions;
}

// After a forward. LibTorch counts the change of a frozen parameter, and of most buffers. It does not count that of
// BatchNorm's statistics, but the module counts batches in a buffer: where one buffer changes, all may.
void WrappedUnit::note_changes(const std::vector<int64_t>& before, bool buffers_differ) const {
  const std::vector<int64_t> after = versions();
  const size_t frozen = part_.frozen.size();
  const auto note = [&](const at::Tensor& tensor) {
    if (std::ranges::none_of(changing_, [&](const at::Tensor& t) { return t.is_same(tensor); }))
      changing_.push_back(tensor);
  };
  for (size_t i = 0; i < frozen; ++i)
    if (after[i] != before[i]) note(part_.frozen[i].tensor);
  if (buffers_differ || !std::equal(after.begin() + static_cast<std::ptrdiff_t>(frozen), after.end(),
                                    before.begin() + static_cast<std::ptrdiff_t>(frozen)))
    for (const NamedTensor& b : part_.buffers) note(b.tensor);
}

// Autograd reaches them, but they are no parameter of any part. Those that outlive the graph were there before it: the
// others are made in forward, as for a gradient inside a model.
std::vector<WrappedUnit::WeakTensor> WrappedUnit::strange_leaves(const Graph& graph, const ParameterNames& names) {
  std::vector<WeakTensor> strange;
  for (const at::Tensor& leaf : leaves_of(graph.output)) {
    if (leaf.is_same(graph.input)) continue;
    const auto own = std::ranges::find_if(parameters_, [&](const at::Tensor& p) { return p.is_same(leaf); });
    if (own != parameters_.end()) {
      reached_.insert(specs_[static_cast<size_t>(own - parameters_.begin())].name);
      continue;
    }
    if (const auto other = names.find(leaf.unsafeGetTensorImpl()); other != names.end())
      throw UsageError(
          fmt::format("[wrap] '{}' computes with the parameter '{}' of another part, which it does not register; "
                      "register that module in '{}' too (register_module), or, if it reads a value that the other part "
                      "computed, let that part give it as a part of its output",
                      name(), other->second, name()));
    strange.emplace_back(leaf.getIntrusivePtr());
  }
  return strange;
}

at::Tensor WrappedUnit::probe(const Example& example, bool first, const ParameterNames& names) {
  std::vector<at::Tensor> kept;
  for (const auto* list : {&part_.frozen, &part_.buffers})
    for (const NamedTensor& b : *list) kept.push_back(b.tensor);
  const Copies before(std::move(kept));
  const std::vector<int64_t> first_versions = versions();
  check_unchanged();
  const at::Tensor state = random_state();
  UnitTensors t;
  (first ? t.tokens : t.input) = example.inputs;
  t.targets = example.targets;
  const auto version = example.inputs._version();
  at::Tensor output;
  std::vector<WeakTensor> strange;
  {
    const AllocationWatch watch;
    const RanksInUse recording(ranks_, forward_rows_);
    const Graph graph = build(t);
    memory_.graph_bytes = watch.live();
    changes_input_ = first || example.inputs._version() != version;  // a first part may do so now and then
    strange = strange_leaves(graph, names);
    const RanksInUse backward(ranks_, backward_rows_);
    if (graph.output.is_floating_point()) {
      const std::vector<at::Tensor> found = gradients(graph, at::ones_like(graph.output));
      passes_gradients_ = graph.input.requires_grad() && found.back().defined();
    }
    memory_.work_bytes = std::max<int64_t>(0, watch.peak() - memory_.graph_bytes);
    if (changes_input_) memory_.graph_bytes += static_cast<int64_t>(example.inputs.nbytes());  // see input_of
    output = graph.output.detach().contiguous();
  }
  if (const auto alive = std::ranges::find_if(strange, [](const WeakTensor& t) { return !t.expired(); });
      alive != strange.end())
    throw UsageError(
        fmt::format("[wrap] '{}' computes with a tensor of shape [{}] that requires gradients and is a parameter of no "
                    "part; register it in its module before wrap (register_parameter), or detach it",
                    name(), fmt::join(alive->lock()->sizes(), ", ")));
  if (part_.count) count_ = part_.count();
  output_shape_ = output.sizes().vec();
  const bool draws = !at::equal(random_state(), state);
  if (draws) set_random_state(state);
  memory_.work_bytes += 2 * static_cast<int64_t>(state.nbytes());  // those of forward
  note_changes(first_versions, before.differ());
  before.put_back();
  if (draws && ranks_) refuse_draws();
  if (is_loss() && output.numel() != 1)
    throw ShapeError(
        fmt::format("[wrap] the loss of '{}' has shape [{}]; it must be one number, the sum of the "
                    "losses of a micro-batch",
                    name(), fmt::join(output_shape_, ", ")));
  if (!is_loss() && output.scalar_type() != compute_)
    throw ShapeError(
        fmt::format("[wrap] '{}' gives {}, but the model was built for {}; convert its output, or build "
                    "the model with that precision",
                    name(), c10::toString(output.scalar_type()), c10::toString(compute_)));
  return output;
}

// What is trained was decided when the module was wrapped.
void WrappedUnit::check_unchanged() const {
  const auto check = [&](const NamedTensor& p, bool trained) {
    if (p.tensor.requires_grad() == trained) return;
    throw UsageError(fmt::format(
        "[wrap] '{}.{}' {} gradients, and did {}when its module was wrapped; set requires_grad before wrap, "
        "and to change it later build a new model",
        name(), p.name, trained ? "no longer requires" : "now requires", trained ? "" : "not "));
  };
  for (const NamedTensor& p : part_.parameters) check(p, true);
  for (const NamedTensor& p : part_.frozen) check(p, false);
}

std::vector<std::string> WrappedUnit::rounded_statistics() const {
  std::vector<std::string> names;
  for (const NamedTensor& b : part_.buffers)
    if (c10::elementSize(compute_) <= 2 && b.tensor.is_floating_point() &&
        std::ranges::any_of(changing_, [&](const at::Tensor& t) { return t.is_same(b.tensor); }))
      names.push_back(name() + "." + b.name);
  return names;
}

std::vector<at::Tensor> WrappedUnit::buffers() const {
  std::vector<at::Tensor> found;
  for (const NamedTensor& b : part_.buffers) found.push_back(b.tensor);
  return found;
}

uint64_t WrappedUnit::frozen_values() const {
  uint64_t value = 0;
  for (const NamedTensor& p : part_.frozen) {
    if (divided_.contains(p.tensor.unsafeGetTensorImpl())) continue;
    const at::Tensor values = p.tensor.detach().contiguous();
    value = base::mix_key(value, base::hash_text(p.name));
    value = base::mix_key(value, base::hash_text({static_cast<const char*>(values.const_data_ptr()), values.nbytes()}));
  }
  return value;
}

void WrappedUnit::refuse_draws() const {
  throw UsageError(fmt::format(
      "[wrap] '{}' draws random numbers (dropout?), which would differ between the tp={} ranks that compute "
      "it; leave them out, or divide the data (shard, replicate) or the layers (pp). A thread that prepares "
      "data needs a generator of its own",
      name(), ranks_->size()));
}

UnitValues WrappedUnit::values(const BatchShape&, const Precision& precision) const {
  if (precision.compute != compute_)
    throw UsageError(
        fmt::format("[wrap] '{}' was built for {}, the step asks for {}; give build_model and the step "
                    "the same precision",
                    name(), c10::toString(compute_), c10::toString(precision.compute)));
  if (precision.float8 || precision.on_gpu)
    throw UsageError(fmt::format(
        "[wrap] '{}' computes by LibTorch on the processor; leave Precision::float8 and on_gpu out", name()));
  UnitValues v;
  if (is_loss()) return v;
  v.output = {"output", output_shape_, compute_};
  v.saved = {{"graph", {1}, at::kLong}};
  return v;
}

double WrappedUnit::forward_flops(const BatchShape&) const {
  const int64_t numel = c10::multiply_integers(output_shape_);
  const double rows = double(numel) / double(output_shape_.empty() ? 1 : output_shape_.back());
  double flops = double(numel);
  for (const ParameterSpec& p : specs_)
    if (p.shape.size() > 1) flops += 2 * rows * double(p.numel());
  return flops;
}

void WrappedUnit::check_kind(size_t i) const {
  const at::Tensor& parameter = parameters_[i];
  if (parameter.scalar_type() == compute_ && parameter.sizes() == at::IntArrayRef(specs_[i].shape)) return;
  throw UsageError(
      fmt::format("[wrap] '{}.{}' is {} of shape [{}] now, and was {} of shape [{}] when the model was built; build "
                  "a new model of modules that were converted",
                  name(), part_.parameters[i].name, c10::toString(parameter.scalar_type()),
                  fmt::join(parameter.sizes(), ", "), c10::toString(compute_), fmt::join(specs_[i].shape, ", ")));
}

void WrappedUnit::bind(const UnitTensors& t) const {
  const c10::InferenceMode off(false);  // tensors made in it could not be trained later
  check_unchanged();  // before a part behind this one steps inside the backward pass
  for (size_t i = 0; i < t.parameters.size(); ++i) {
    void* const address = t.parameters[i].data_ptr();
    at::Tensor parameter = parameters_[i];
    if (!is_in_planned_memory(parameter)) check_kind(i);
    if (!can_move(parameter)) {  // also one that refuses to be read
      const at::NoGradGuard no_grad;
      parameter.set_data(with_storage(planned(address, parameter, this), specs_[i].shape, parameter.options()));
    } else if (address_of(parameter).get() != address) {
      move_to(parameter, planned(address, parameter, this));
    }
  }
}

// A copy for a part that changes it in place, because a later pass of the micro-batch reads the input again.
at::Tensor WrappedUnit::input_of(const UnitTensors& t) const {
  const at::Tensor input = (t.input.defined() ? t.input : t.tokens).detach();
  return changes_input_ ? input.clone() : input;
}

WrappedUnit::Graph WrappedUnit::build(const UnitTensors& t) const {
  const at::AutoGradMode grad(true);
  Graph g{.input = input_of(t)};
  if (t.input.defined()) g.input.requires_grad_();
  // A first part may change it in place with its parameters, and the handle would become part of the graph.
  const at::Tensor x = t.input.defined() ? g.input : g.input.detach();
  const auto version = [](const at::Tensor& parameter) { return parameter._version(); };
  std::vector<int64_t> before;
  std::ranges::transform(parameters_, std::back_inserter(before), version);
  g.output = is_loss() ? part_.loss(x, t.targets) : part_.forward(x);
  for (size_t i = 0; i < before.size(); ++i)
    if (version(parameters_[i]) != before[i])
      throw UsageError(fmt::format(
          "[wrap] '{}' changes its parameter '{}' in forward (max_norm of an Embedding?); ranks share its values, so "
          "each change would be made several times or lost: compute with a changed copy",
          name(), part_.parameters[i].name));
  return g;
}

// Builds the graph again, with the same random numbers, and leaves buffers as the first forward left them.
WrappedUnit::Graph WrappedUnit::build_again(const UnitTensors& t) const {
  const Copies buffers(changing_);
  const auto put_back = c10::make_scope_exit([&] { buffers.put_back(); });
  return build_with_first_numbers(t);
}

WrappedUnit::Graph WrappedUnit::build_with_first_numbers(const UnitTensors& t) const {
  const auto first = random_states_.extract(t.micro_batch);
  if (!first) return build(t);
  const at::Tensor now = random_state();
  const auto put_back = c10::make_scope_exit([&] { set_random_state(now); });
  set_random_state(first.mapped());
  return build(t);
}

void WrappedUnit::check_output(const at::Tensor& output) const {
  if (output.sizes() != at::IntArrayRef(output_shape_))
    throw ShapeError(
        fmt::format("[wrap] '{}' gave an output of shape [{}], but [{}] for the example that the model "
                    "was built with; micro-batches must all have the example's shape",
                    name(), fmt::join(output.sizes(), ", "), fmt::join(output_shape_, ", ")));
}

// One that came later would be computed with, and never trained.
void WrappedUnit::check_registered() const {
  const size_t now = part_.count ? part_.count() : count_;
  if (now != count_)
    throw UsageError(
        fmt::format("[wrap] the module of '{}' has {} parameters now, and had {} when it was wrapped; "
                    "register all of them before wrap, or build a new model",
                    name(), now, count_));
}

void WrappedUnit::forward(UnitTensors& t) const {
  if (t.micro_batch == 0) check_registered();
  const RanksInUse in_use(ranks_, t.ranks[comm::UnitAxis::tp]);
  bind(t);
  // A module may begin to draw after the example's pass: dropout whose rate was 0 then.
  const bool keeps = training_ && keeps_graphs_ && !is_loss();
  const at::Tensor state = training_ && (ranks_ || !keeps) ? random_state() : at::Tensor();
  const auto drew = [&] { return state.defined() && !at::equal(random_state(), state); };
  if (keeps) {
    Graph g = build(t);
    check_output(g.output);
    t.output.copy_(g.output.detach());
    if (drew()) refuse_draws();
    return keep(t, std::move(g));
  }
  const at::NoGradGuard no_grad;
  const at::Tensor input = input_of(t);
  if (is_loss()) {
    t.loss_sum.copy_(part_.loss(input, t.targets).reshape({1}));
    return;
  }
  const std::vector<int64_t> before = versions();
  const at::Tensor output = part_.forward(input);
  if (training_) note_changes(before);
  random_states_.erase(t.micro_batch);
  if (drew()) {
    if (ranks_) refuse_draws();
    random_states_[t.micro_batch] = state;
  }
  check_output(output);
  t.output.copy_(output);
}

void WrappedUnit::keep(UnitTensors& t, Graph graph) const {
  graph.serial = ++serial_;
  t.saved[0].data_ptr<int64_t>()[0] = graph.serial;
  graphs_[t.micro_batch] = std::move(graph);
}

void WrappedUnit::recompute(UnitTensors& t, const std::vector<int>&) const {
  const RanksInUse in_use(ranks_, t.ranks[comm::UnitAxis::tp]);
  graphs_.erase(t.micro_batch);
  bind(t);
  keep(t, build_again(t));
}

void WrappedUnit::backward(UnitTensors& t) const {
  const RanksInUse in_use(ranks_, t.ranks[comm::UnitAxis::tp]);
  bind(t);
  if (is_loss()) {
    const Graph g = build(t);
    t.loss_sum.copy_(g.output.detach().reshape({1}));
    // Of the mean over the tensor-parallel ranks (tensor_ranks.h).
    return write_gradients(t, g, at::full_like(g.output, t.loss_scale / (ranks_ ? ranks_->size() : 1)));
  }
  Graph g;
  if (auto kept = graphs_.extract(t.micro_batch)) {
    g = std::move(kept.mapped());
    check_invariant(g.serial == t.saved[0].data_ptr<int64_t>()[0], "a backward reads the graph of its own forward");
  } else {
    g = build_again(t);  // forward kept no graph, and there was no recomputation
  }
  random_states_.erase(t.micro_batch);
  write_gradients(t, g, t.d_output);
}

std::vector<at::Tensor> WrappedUnit::gradients(const Graph& g, const at::Tensor& incoming) const {
  std::vector<at::Tensor> wanted = parameters_;
  if (g.input.requires_grad()) wanted.push_back(g.input);
  if (wanted.empty() || !g.output.requires_grad()) return std::vector<at::Tensor>(wanted.size());
  auto found = torch::autograd::grad({g.output}, wanted, {incoming}, /*retain_graph=*/false, /*create_graph=*/false,
                                     /*allow_unused=*/true);
  for (at::Tensor& g : found)  // torch::nn::Embedding can give the rows that it read alone
    if (g.defined() && g.layout() != at::kStrided) g = g.to_dense();
  if (ranks_) sum_replicated(found);
  return found;
}

void WrappedUnit::write_gradients(UnitTensors& t, const Graph& g, const at::Tensor& incoming) const {
  const std::vector<at::Tensor> found = gradients(g, incoming);
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < t.gradients.size(); ++i) {
    const ops::Gradient to = t.gradient(i);
    if (!to.defined()) continue;
    if (found[i].defined() && to.accumulate)
      to.to.add_(found[i]);
    else if (found[i].defined())
      to.to.copy_(found[i]);
    else if (!to.accumulate)
      to.to.zero_();
  }
  if (!g.input.requires_grad()) return;
  // Comes last: it overwrites `incoming`, and gradients may be views of that.
  at::Tensor d_input = found.back();
  if (!d_input.defined()) {
    t.d_boundary.zero_();
    return;
  }
  if (incoming.defined() && d_input.is_alias_of(incoming)) d_input = d_input.clone();
  t.d_boundary.copy_(d_input);
}

}  // namespace trireme::model
