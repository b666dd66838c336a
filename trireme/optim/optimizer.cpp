#include "trireme/optim/optimizer.h"
#include "trireme/optim/exact_sum.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/shared_library.h"
#include "trireme/base/text.h"
#include "trireme/ops/checks.h"
#include "trireme/ops/parallel.h"
#include "trireme/optim/optimizer_kernels.h"

namespace trireme::optim {
namespace {

at::ScalarType check_span(const char* operation, const char* name, const at::Tensor& span) {
  const auto dtype = ops::compute_dtype(operation, name, span);
  ops::check_tensor(operation, name, span, {span.numel()}, dtype == at::kDouble ? at::kDouble : at::kFloat);
  return dtype;
}

/// Opened at the first call. Errors: UsageError as base::cuda_symbol
const CudaOptimizer& cuda_optimizer() {
  using Table = const CudaOptimizer& (*)();
  static const CudaOptimizer& table = reinterpret_cast<Table>(base::cuda_symbol("trireme_optim_cuda_kernels"))();
  return table;
}

void check_segments(std::span<const DecaySegment> segments, int64_t count) {
  int64_t covered = 0;
  for (const auto& segment : segments) {
    if (segment.begin != covered || segment.end < segment.begin)
      throw ShapeError(fmt::format("optimizer_update: segment [{}, {}) must begin at {}, where the one before it ends",
                                   segment.begin, segment.end, covered));
    covered = segment.end;
  }
  if (covered != count)
    throw ShapeError(
        fmt::format("optimizer_update: segments end at {}, the span has {} elements; every element needs a "
                    "segment",
                    covered, count));
}

/// The arguments that are the same for all segments, without copies; set_step() sets the others.
UpdateArguments arguments_of(const OptimizerOptions& options, const at::Tensor& master,
                             std::span<const at::Tensor> state, const at::Tensor& gradient) {
  UpdateArguments arguments{.rule = options.rule,
                            .dtype = ops::storage_of(master.scalar_type()),
                            .master = master.mutable_data_ptr(),
                            .state = {},
                            .gradient = gradient.const_data_ptr(),
                            .compute_bf16 = nullptr,
                            .compute_same = nullptr,
                            .gradient_scale = options.gradient_scale,
                            .beta1 = options.beta1,
                            .beta2 = options.beta2,
                            .eps = options.eps,
                            .momentum = options.momentum,
                            .nesterov = options.nesterov,
                            .keep = 1,
                            .l2 = 0,
                            .step_size = 0,
                            .root_bias2 = 1};
  for (size_t i = 0; i < state.size(); ++i) arguments.state[i] = state[i].mutable_data_ptr();
  return arguments;
}

void set_step(UpdateArguments& arguments, const DecaySegment& segment, const OptimizerOptions& options) {
  const double lr = options.lr * segment.rate, step = static_cast<double>(step_of(segment, options));
  arguments.root_bias2 = std::sqrt(1 - std::pow(options.beta2, step));
  const double decay = segment.decay ? segment.weight_decay.value_or(options.weight_decay) : 0;
  const bool decoupled = options.rule == Rule::adamw || options.rule == Rule::lion;
  const bool unbiased = options.rule == Rule::adamw || options.rule == Rule::adam || options.rule == Rule::lamb;
  arguments.step_size = unbiased ? lr / (1 - std::pow(options.beta1, step)) : lr;
  if (options.rule == Rule::lamb) arguments.step_size *= arguments.root_bias2;
  arguments.keep = decoupled ? 1 - lr * decay : 1;
  arguments.l2 = decoupled ? 0 : decay;
}

}  // namespace

OptimizerOptions options_of(Rule rule) {
  switch (rule) {
    case Rule::adamw:
      return {.lr = 0, .step = 0};
    case Rule::adam:
    case Rule::sgd:
      return {.rule = rule, .lr = 0, .weight_decay = 0, .step = 0};
    case Rule::lion:
      return {.rule = rule, .lr = 0, .beta2 = 0.99, .weight_decay = 0, .step = 0};
    case Rule::adagrad:
      return {.rule = rule, .lr = 0, .eps = 1e-10, .weight_decay = 0, .step = 0};
    case Rule::lars:
      return {.rule = rule, .lr = 0, .weight_decay = 0, .momentum = 0.9, .step = 0};
    case Rule::lamb:
      return {.rule = rule, .lr = 0, .weight_decay = 0, .step = 0};
    case Rule::adafactor:
      return {.rule = rule, .lr = 0, .weight_decay = 0, .step = 0};
    case Rule::adamw8bit:
      return {.rule = rule, .lr = 0, .step = 0};
    case Rule::muon:
      return {.rule = rule, .lr = 0, .weight_decay = 0.1, .momentum = 0.95, .nesterov = true, .step = 0};
  }
  throw InternalError("an optimizer without options");
}

OptimizerOptions options_of(std::string_view name) {
  std::vector<std::string> names;
  for (const config::Choice<Rule>& choice : choices_of(Rule{})) {
    if (choice.name == name) return options_of(choice.value);
    names.emplace_back(choice.name);
  }
  throw UsageError(fmt::format("there is no optimizer {}; there are {}", name, base::join(names, ", ")));
}

OptimizerOptions options_of(const OptimizerSettings& settings) {
  OptimizerOptions options = options_of(settings.name);
  if (settings.betas) options.beta1 = (*settings.betas)[0], options.beta2 = (*settings.betas)[1];
  options.eps = settings.eps.value_or(options.eps);
  options.weight_decay = settings.weight_decay.value_or(options.weight_decay);
  options.momentum = settings.momentum.value_or(options.momentum);
  options.nesterov = settings.nesterov.value_or(options.nesterov);
  options.trust_coefficient = settings.trust_coefficient.value_or(options.trust_coefficient);
  options.trust_bounds = settings.trust_bounds.value_or(options.trust_bounds);
  options.match_rms = settings.adjust_lr_fn.value_or(MuonRate::original) == MuonRate::match_rms_adamw;
  options.relative_step = settings.relative_step.value_or(options.relative_step);
  options.scale_parameter = settings.scale_parameter.value_or(options.scale_parameter);
  options.warmup_init = settings.warmup_init.value_or(options.warmup_init);
  options.companion_rate = settings.adam_lr.value_or(settings.lr) / settings.lr;
  return options;
}

OptimizerOptions options_of_group(const OptimizerOptions& run, Rule rule) {
  OptimizerOptions options = run;
  if (rule == run.rule) return options;
  options.rule = rule;
  options.lr = run.lr * run.companion_rate;
  return options;
}

std::vector<std::string> state_names(const OptimizerOptions& options) {
  switch (options.rule) {
    case Rule::adamw:
    case Rule::adam:
      return {"exp_avg", "exp_avg_sq"};
    case Rule::sgd:
      return options.momentum > 0 ? std::vector<std::string>{"momentum_buffer"} : std::vector<std::string>{};
    case Rule::lion:
      return {"exp_avg"};
    case Rule::adagrad:
      return {"sum"};
    case Rule::lars:
    case Rule::muon:
      return {"momentum_buffer"};
    case Rule::lamb:
      return {"exp_avg", "exp_avg_sq"};
    case Rule::adafactor:
    case Rule::adamw8bit:
      return {};
  }
  return {};
}

void optimizer_update(const at::Tensor& master, std::span<const at::Tensor> state, const at::Tensor& gradient,
                      const at::Tensor& compute, std::span<const DecaySegment> segments,
                      const OptimizerOptions& options) {
  constexpr auto kOperation = "optimizer_update";
  const auto dtype = check_span(kOperation, "master", master);
  const std::vector<std::string> names = state_names(options);
  if (state.size() != names.size())
    throw ShapeError(
        fmt::format("optimizer_update: {} tensors of state were given, the rule keeps {}", state.size(), names.size()));
  for (size_t i = 0; i < names.size(); ++i) ops::check_tensor(kOperation, names[i], state[i], master.sizes(), dtype);
  ops::check_tensor(kOperation, "gradient", gradient, master.sizes(), dtype);
  const bool to_bf16 = compute.defined() && compute.scalar_type() == at::kBFloat16;
  if (compute.defined())
    ops::check_tensor(kOperation, "compute", compute, master.sizes(), to_bf16 ? at::kBFloat16 : dtype);
  check_segments(segments, master.numel());
  for (const DecaySegment& segment : segments)
    if (const int64_t step = step_of(segment, options); step < 1)
      throw ShapeError(fmt::format("optimizer_update: step is {}; the first update is step 1", step));

  UpdateArguments arguments = arguments_of(options, master, state, gradient);
  arguments.compute_bf16 = to_bf16 ? compute.mutable_data_ptr() : nullptr;
  arguments.compute_same = compute.defined() && !to_bf16 ? compute.mutable_data_ptr() : nullptr;
  for (auto segment = segments.begin(); segment != segments.end();) {
    const auto first_unlike = std::find_if(segment, segments.end(), [&](const DecaySegment& s) {
      return s.decay != segment->decay || s.rate != segment->rate || s.weight_decay != segment->weight_decay ||
             s.untrained != segment->untrained;
    });
    set_step(arguments, *segment, options);
    const int64_t begin = segment->begin, end = (first_unlike - 1)->end;
    segment = first_unlike;
    if (master.is_cuda()) {
      cuda_optimizer().update(arguments, begin, end);
      continue;
    }
    ops::parallel_rows(end - begin, 1 << 15,
                       [&](int64_t first, int64_t last) { update_elements(arguments, begin + first, begin + last); });
  }
}

void lamb_directions(const at::Tensor& master, std::span<const at::Tensor> state, const at::Tensor& gradient,
                     const DecaySegment& segment, const OptimizerOptions& options, const at::Tensor& partials) {
  UpdateArguments arguments = arguments_of(options, master, state, gradient);
  set_step(arguments, segment, options);
  ops::check_tensor("lamb_directions", "partials", partials,
                    {(segment.end - segment.begin + kNormBlock - 1) / kNormBlock}, at::kDouble);
  ops::parallel_rows(partials.numel(), 8, [&](int64_t first, int64_t last) {
    lamb_blocks(arguments, segment.begin, segment.end, {first, last}, kNormBlock, partials.data_ptr<double>());
  });
}

void squared_norm_partials(const at::Tensor& partials, const at::Tensor& gradient) {
  constexpr auto kOperation = "squared_norm_partials";
  const auto dtype = check_span(kOperation, "gradient", gradient);
  const int64_t num_blocks = (gradient.numel() + kNormBlock - 1) / kNormBlock;
  ops::check_tensor(kOperation, "partials", partials, {num_blocks}, at::kDouble);
  const NormArguments arguments{.dtype = ops::storage_of(dtype),
                                .gradient = gradient.const_data_ptr(),
                                .count = gradient.numel(),
                                .block = kNormBlock,
                                .partials = partials.mutable_data_ptr<double>()};
  if (gradient.is_cuda()) return cuda_optimizer().squared_norm(arguments);
  ops::parallel_rows(num_blocks, 8, [&](int64_t first, int64_t last) { squared_norm_blocks(arguments, first, last); });
}

void add_exactly(const at::Tensor& limbs, const at::Tensor& terms) {
  ops::check_tensor("add_exactly", "limbs", limbs, {ExactSum::kLimbs}, at::kLong);
  ops::check_tensor("add_exactly", "terms", terms, terms.sizes(), at::kDouble);
  if (!limbs.is_cuda() || !terms.is_cuda()) throw ShapeError("add_exactly: limbs and terms must be on a GPU");
  cuda_optimizer().add_exactly(terms.data_ptr<double>(), terms.numel(), limbs.mutable_data_ptr<int64_t>());
}

}  // namespace trireme::optim
