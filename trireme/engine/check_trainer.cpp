#include "trireme/engine/check_trainer.h"

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/config/value.h"
#include "trireme/model/settings.h"
#include "trireme/optim/settings.h"

namespace trireme::engine {
namespace {

using config::Rules;

[[noreturn]] void refuse(std::string_view headline, std::string_view way_out) {
  throw UsageError(way_out.empty() ? fmt::format("[trainer] {}", headline)
                                   : fmt::format("[trainer] {}; {}", headline, way_out));
}

void refuse_if(const std::optional<config::Refusal>& why, std::string_view way_out = "") {
  if (why) refuse(why->headline, way_out.empty() ? std::string_view(why->hint) : way_out);
}

void check_bounds(std::string_view name, const Rules& rules, double value, std::string_view way_out = "") {
  refuse_if(config::check_number(name, rules, value), way_out);
}

// The rows of a section of settings, each by its own rules. What is empty was not given.
template <typename Settings>
void check_rows(Settings settings) {
  for (const config::Setting& row : section(settings).rows)
    if (const std::string text = config::value_text(row); !text.empty() && text != "[]" && text != "\"\"")
      refuse_if(config::assign(row, {.key = std::string(row.key), .text = text}));
}

void check_optimizer(const optim::OptimizerOptions& o) {
  const Rules rate{.at_least = 0, .below = 1}, positive{.above = 0}, not_negative{.at_least = 0};
  check_bounds("optimizer.beta1", rate, o.beta1);
  check_bounds("optimizer.beta2", rate, o.beta2);
  check_bounds("optimizer.eps", positive, o.eps);
  check_bounds("optimizer.weight_decay", not_negative, o.weight_decay);
  check_bounds("optimizer.momentum", rate, o.momentum);
  check_bounds("optimizer.trust_coefficient", positive, o.trust_coefficient);
  for (const double bound : o.trust_bounds) check_bounds("optimizer.trust_bounds", not_negative, bound);
  check_bounds("optimizer.companion_rate", positive, o.companion_rate);
  if (o.trust_bounds[0] > o.trust_bounds[1])
    refuse(fmt::format("optimizer.trust_bounds has the lower bound {} above the upper one, {}", o.trust_bounds[0],
                       o.trust_bounds[1]),
           "put the lower one first");
  if (o.rule == optim::Rule::sgd && o.nesterov && o.momentum == 0)
    refuse("optimizer.nesterov looks ahead along a momentum, and optimizer.momentum is 0",
           "set it above 0, for instance 0.9, or leave nesterov out");
  if (o.rule == optim::Rule::adafactor && o.warmup_init && !o.relative_step)
    refuse("optimizer.warmup_init is a part of relative steps", "set optimizer.relative_step too, or leave it out");
}

void check_loss_scale(const optim::LossScaleOptions& o) {
  const auto check_power = [](const char* name, double value) {
    if (!model::is_power_of_two(value))
      refuse(fmt::format("loss_scale.{}={} must be a power of two, which scales without rounding", name, value),
             "take for instance 65536, 1024, 1 or 0.5");
  };
  check_power("initial", o.initial);
  check_power("minimum", o.minimum);
  check_bounds("loss_scale.window", {.at_least = 1}, double(o.window));
  check_bounds("loss_scale.hysteresis", {.at_least = 1}, double(o.hysteresis));
  if (o.dynamic && o.minimum > o.initial)
    refuse(fmt::format("loss_scale.minimum={} is above loss_scale.initial={}", o.minimum, o.initial),
           "the scale begins at initial and never falls below minimum");
  if (o.rule == model::ScaleRule::torch && (o.hysteresis > 1 || o.consecutive_hysteresis))
    refuse("loss_scale.hysteresis is DeepSpeed's: PyTorch's scale falls at every overflow",
           "set loss_scale.rule to deepspeed, or leave it out");
}

void check_precision(const model::Precision& p) {
  if (p.rounding == model::Rounding::nearest) return;
  if (!p.narrow_weights)
    refuse("precision.rounding is for weights of two bytes", "set precision.narrow_weights too, or leave it out");
  if (p.rounding == model::Rounding::stochastic && p.compute == at::kHalf)
    refuse("precision.rounding: halves are not rounded stochastically", "take nearest or kahan, or bfloat16");
}

}  // namespace

void check_trainer(const TrainerOptions& o, const plan::StepRequest& r, const model::Model& model) {
  if (!model.is_wrapped())
    refuse("a Trainer takes models of wrapped modules (wrap.h), and of this built-in one nobody would set the weights",
           "write a task for it (docs/adding-a-task.md), or use Engine::initialize and train_step");
  if (model.own_targets->shape.empty() && !o.count)
    refuse("the targets of the example have no dimension, so nobody knows how many losses a micro-batch has",
           "set count, for instance to [](const at::Tensor&) { return 1; }, or give the targets a dimension");
  if (o.accumulate < 1) refuse(fmt::format("accumulate={} must be at least 1 micro-batch a step", o.accumulate), "");
  refuse_if(optim::check_in_backward(o.steps_in_backward, o.max_norm, o.precision.compute == at::kHalf));
  if (o.offload.fit) refuse("offload.fit is chosen by trireme alone: say which kinds of values leave", "");
  if (r.size(comm::Axis::cp) > 1)
    refuse(fmt::format("a wrapped module has whole sequences: cp={} must be 1", r.size(comm::Axis::cp)),
           "divide the data (shard, replicate), the layers (pp) or the matrices (tp, with parallel layers) instead");
  if (o.max_norm) check_bounds("max_norm", {.above = 0}, *o.max_norm, "leave it out for no clipping");
  check_optimizer(o.optimizer);
  check_loss_scale(o.loss_scale);
  check_precision(o.precision);
  check_rows(o.pipeline);
  check_rows(o.recompute);
  check_rows(o.offload);
}

void check_learning_rate(double lr) { check_bounds("step: the learning rate", {.at_least = 0}, lr); }

}  // namespace trireme::engine
