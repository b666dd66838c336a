#include "trireme/engine/trainer.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/ScalarType.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/base/text.h"
#include "trireme/comm/flight_recorder.h"
#include "trireme/engine/check_trainer.h"
#include "trireme/engine/same_options.h"

namespace trireme::engine {
namespace {

plan::StepRequest request_of(const TrainerOptions& o) {
  if (o.ranks.rank < 0 || o.ranks.rank >= std::max(1, o.ranks.size))
    throw UsageError(
        fmt::format("[trainer] ranks.rank={} is not one of ranks.size={}; ranks count from 0 to the size less 1",
                    o.ranks.rank, o.ranks.size));
  plan::StepRequest r{.precision = o.precision, .mesh = {o.mesh, o.ranks.size}, .rank = o.ranks.rank};
  r.strategy = o.strategy;
  r.sequence_parallel = o.sequence_parallel;
  r.shape.sequence = r.size(comm::Axis::tp);  // the plan asks that tp shares it; build_model ran the modules on theirs
  r.pipeline = o.pipeline;
  r.recompute = o.recompute;
  r.offload = o.offload;
  r.num_micro_batches = o.accumulate;
  r.accumulation = o.local_accumulation ? plan::Accumulation::local : plan::Accumulation::sharded;
  r.reduce = o.local_accumulation ? plan::Reduce::fast : plan::Reduce::ordered;
  r.optimizer = o.optimizer;
  r.steps_in_backward = o.steps_in_backward;
  r.guard_bytes = o.poison ? 256 : 0;
  return r;
}

}  // namespace

model::TensorRanksPtr tensor_ranks(const TrainerOptions& options) {
  return std::make_shared<model::TensorRanks>(request_of(options).parallel());
}

Trainer::Trainer(model::Model model, TrainerOptions options)
    : model_(std::make_unique<model::Model>(std::move(model))), options_(std::move(options)) {
  if (c10::InferenceMode::is_enabled())
    throw UsageError("[trainer] a Trainer made inside c10::InferenceMode could not train; leave its scope first");
  const plan::StepRequest request = request_of(options_);
  check_trainer(options_, request, *model_);
  plan::StepPlan plan = plan::make_step_plan(*model_, request);
  comm::GroupOptions ranks = options_.ranks;
  ranks.name = "";
  if (!ranks.recorder)
    ranks.recorder = comm::FlightRecorder::of_environment(
        {.global_rank = ranks.rank, .world_size = ranks.size, .timeout = ranks.timeout});
  comm::CommunicatorPtr world = connect_world(plan, ranks);
  check_same(describe_trainer(options_, *model_), *world);
  const Communicators communicators = connect(plan, ranks, options_.poison, std::move(world));
  engine_ = std::make_unique<Engine>(
      *model_, std::move(plan), communicators,
      EngineOptions{.poison = options_.poison, .offload_path = options_.offload.path.value_or(".")});
  load_parameters(*engine_);
  if (options_.ranks.rank == 0 && !model_->unreached.empty())
    base::warn(
        "no loss of the example reaches {}: without a gradient, weight decay alone changes matrices; freeze what is "
        "not used before wrap (requires_grad), or leave it out of the modules",
        base::join(model_->unreached, ", "));
  if (options_.ranks.rank == 0 && !model_->rounded_statistics.empty())
    base::warn(
        "{} are kept in {}, as all numbers of the modules: small changes of such statistics are lost, and evaluations "
        "compute with them; train in float32, or normalise without running statistics",
        base::join(model_->rounded_statistics, ", "), c10::toString(options_.precision.compute));
  if (options_.precision.compute == at::kHalf) loss_scale_.emplace(options_.loss_scale);
}

// Rounding is no loss. But 300 as a byte would be 44, and 1e39 in float32 infinite.
static bool fits(const at::Tensor& given, at::ScalarType dtype) {
  const bool is_same_kind = c10::isIntegralType(given.scalar_type(), true) == c10::isIntegralType(dtype, true);
  if (is_same_kind && c10::promoteTypes(given.scalar_type(), dtype) == dtype) return true;  // it widens
  if (!c10::canCast(given.scalar_type(), dtype)) return false;
  const at::Tensor there = given.to(dtype);
  return c10::isFloatingType(dtype) || c10::isComplexType(dtype) ? there.isfinite().equal(given.isfinite())
                                                                 : there.to(given.scalar_type()).equal(given);
}

void Trainer::check_batch(const MicroBatch& b) const {
  const auto check = [](const char* what, const at::Tensor& given, const model::TensorSpec& spec) {
    if (!given.defined())
      throw ShapeError(fmt::format("[trainer] {} is a tensor without values (undefined); pass a micro-batch's", what));
    if (given.sizes() != at::IntArrayRef(spec.shape))
      throw ShapeError(
          fmt::format("[trainer] {} of shape [{}]; the model was built with an example of shape [{}], "
                      "which every micro-batch must have",
                      what, fmt::join(given.sizes(), ", "), fmt::join(spec.shape, ", ")));
    if (!fits(given, spec.dtype))
      throw ShapeError(
          fmt::format("[trainer] {} of dtype {} would be cut to {}, the dtype of the example that the model was built "
                      "with; convert them, or build the model with such an example",
                      what, c10::toString(given.scalar_type()), c10::toString(spec.dtype)));
  };
  check("inputs", b.inputs, model_->inputs({}));
  check("targets", b.targets, model_->targets({}));
}

void Trainer::backward(const at::Tensor& inputs, const at::Tensor& targets) {
  check_batch({inputs, targets});
  if (static_cast<int>(batches_.size()) == options_.accumulate)
    throw UsageError(
        fmt::format("[trainer] backward was called more than accumulate={} times since the last step; "
                    "call step(), or make the trainer with a larger accumulate",
                    options_.accumulate));
  batches_.push_back({inputs.detach().clone(), targets.detach().clone()});
}

// Ranks along pp and tp have the same micro-batches, so only the first ones count.
// `lr`: of a step; nothing: it is evaluate() that counts.
int64_t Trainer::count_everywhere(const std::vector<MicroBatch>& batches, std::optional<double> lr) const {
  int64_t count = 0;
  for (const MicroBatch& b : batches) count += options_.count ? options_.count(b.targets) : b.targets.size(0);
  comm::Communicator& world = *engine_->communicators().world;
  if (world.size() == 1 || world.backend() == "dry_run") return count;
  const plan::StepRequest& r = engine_->plan().request;
  const bool counts = r.coordinate(comm::Axis::pp) == 0 && r.coordinate(comm::Axis::tp) == 0;
  constexpr int64_t kNumbers = 3;  // the count, the learning rate, and whether it is a step
  const at::Tensor all = at::empty({kNumbers * world.size()}, at::kDouble);
  const at::Tensor own = all.narrow(0, kNumbers * world.rank(), kNumbers);
  own[0] = counts ? double(count) : 0.0;
  own[1] = lr.value_or(0);
  own[2] = lr ? 1.0 : 0.0;
  world.all_gather(all, own, std::vector<int64_t>(static_cast<size_t>(world.size()), kNumbers))->wait();
  const double* given = all.data_ptr<double>();
  const auto call = [](const double* numbers) { return numbers[2] != 0 ? "step" : "evaluate"; };
  double sum = 0;
  for (int rank = 0; rank < world.size(); ++rank) {
    const double* of_rank = given + kNumbers * rank;
    sum += of_rank[0];
    if (of_rank[2] != given[2])
      throw UsageError(fmt::format("[trainer] rank {} calls {} and rank 0 {}; every rank must make the same calls",
                                   rank, call(of_rank), call(given)));
    if (std::bit_cast<uint64_t>(of_rank[1]) != std::bit_cast<uint64_t>(given[1]))  // NaN equals itself
      throw UsageError(
          fmt::format("[trainer] step: rank {} passes the learning rate {}, rank 0 {}; pass the same on every rank",
                      rank, of_rank[1], given[1]));
  }
  return static_cast<int64_t>(sum);
}

LoadBatch Trainer::loader(const std::vector<MicroBatch>& batches) {
  return [&batches](int micro_batch, const BatchTensors& to) {
    const MicroBatch& b = batches[static_cast<size_t>(micro_batch)];
    at::Tensor(to.inputs).copy_(b.inputs);
    at::Tensor(to.targets).copy_(b.targets);
  };
}

void Trainer::refuse_half_a_step() const {
  if (is_half_stepped_)
    throw UsageError(
        "[trainer] a step ended with an error after some weights had been updated (steps_in_backward); go on from a "
        "checkpoint: trireme::load_trainer");
  if (is_half_restored_)
    throw UsageError(
        "[trainer] loading a checkpoint ended with an error after some weights had been read; load one that is whole: "
        "trireme::load_trainer");
}

std::vector<model::NamedTensor> Trainer::parameters() {
  refuse_half_a_step();
  return gather_parameters(*engine_);
}

void Trainer::store() {
  refuse_half_a_step();
  store_parameters(*engine_);
}

// Afterwards the modules' parameters refuse to be read: their memory holds whatever the last actions left there.
template <class Pass>
auto Trainer::run(const Pass& pass) const {
  struct End {
    const model::Model& model;
    ~End() {
      for (const auto& unit : model.units) unit->release();
    }
  } const end{*model_};
  return pass();
}

StepResult Trainer::step(double lr) {
  if (c10::InferenceMode::is_enabled())
    throw UsageError("[trainer] a step inside c10::InferenceMode would have no gradients; leave its scope first");
  refuse_half_a_step();
  if (static_cast<int>(batches_.size()) != options_.accumulate)
    throw UsageError(
        fmt::format("[trainer] step after {} of accumulate={} micro-batches; call backward for each, on "
                    "every rank",
                    batches_.size(), options_.accumulate));
  std::vector<MicroBatch> batches = std::exchange(batches_, {});
  const int64_t count = std::max<int64_t>(1, count_everywhere(batches, lr));
  try {
    check_learning_rate(lr);  // now the same on all ranks, so all refuse it or none
  } catch (const UsageError&) {
    batches_ = std::move(batches);
    throw;
  }
  StepInputs inputs{.load_batch = loader(batches),
                    .supervised_tokens = count,
                    .optimizer = options_.optimizer,
                    .max_norm = options_.max_norm};
  inputs.optimizer.lr = lr;
  inputs.optimizer.step = steps_ + 1;
  if (loss_scale_) inputs.loss_scale = loss_scale_->scale();
  inputs.skipped = loss_scale_ ? loss_scale_->skipped() : scale_before_.skipped;
  is_half_stepped_ = options_.steps_in_backward;
  const StepResult result = run([&] { return engine_->train_step(inputs); });
  is_half_stepped_ = false;
  ++steps_;
  if (loss_scale_) loss_scale_->update(result.overflowed);
  if (loss_scale_ && loss_scale_->exhausted()) {
    const optim::LossScaleOptions& o = loss_scale_->options();
    throw Error(o.dynamic
                    ? fmt::format("[trainer] step {}: a gradient overflows even at the lowest loss scale, {:g}; take a "
                                  "lower learning rate, or bfloat16 or float32",
                                  steps_, o.minimum)
                    : fmt::format("[trainer] step {}: {} steps in a row were skipped, because a gradient overflows "
                                  "with the loss scale {:g}; take a smaller one, or a dynamic one",
                                  steps_, optim::LossScale::kMostInARow, o.initial));
  }
  return result;
}

TrainerState Trainer::state() const {
  refuse_half_a_step();
  return {.steps = steps_,
          .loss_scale = loss_scale_ ? loss_scale_->state() : scale_before_,
          .untrained_steps = engine_->untrained_steps()};
}

void Trainer::begin_restore() {
  is_half_restored_ = true;
  batches_.clear();
  for (const auto& unit : model_->units) unit->release();
}

void Trainer::restore(const TrainerState& state) {
  if (state.steps < 0)
    throw UsageError(fmt::format("[trainer] {} steps cannot have been taken; pass 0 or more", state.steps));
  steps_ = state.steps;
  is_half_stepped_ = is_half_restored_ = false;
  scale_before_ = state.loss_scale;
  engine_->set_untrained_steps(state.untrained_steps);
  if (loss_scale_) loss_scale_->restore(state.loss_scale);
}

void Trainer::set_training(bool training) const {
  // Parts may share a module: the first that left its mode brings it back, so it is the last to do so.
  const auto& units = model_->units;
  for (size_t i = 0; i < units.size(); ++i) units[training ? units.size() - 1 - i : i]->train(training);
}

double Trainer::evaluate(const at::Tensor& inputs, const at::Tensor& targets) {
  refuse_half_a_step();
  const std::vector<MicroBatch> batches{{inputs, targets}};
  check_batch(batches[0]);
  const int64_t count = std::max<int64_t>(1, count_everywhere(batches, std::nullopt));
  set_training(false);
  try {
    const double loss = run([&] { return engine_->evaluate(loader(batches), count); });
    set_training(true);
    return loss;
  } catch (...) {
    set_training(true);
    throw;
  }
}

std::string Trainer::describe_memory() const {
  const double mib = 1 << 20;
  return plan::render_memory(plan::memory_report(engine_->plan())) +
         fmt::format("{:<28}{:>14.2f}            outside the plan, measured by a probe run\n", "allowance for autograd",
                     double(autograd_allowance(engine_->plan())) / mib);
}

}  // namespace trireme::engine
