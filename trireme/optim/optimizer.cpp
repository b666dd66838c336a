#include "trireme/optim/optimizer.h"

#include <cmath>
#include <string>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/ops/checks.h"
#include "trireme/ops/parallel.h"
#include "trireme/optim/optimizer_cuda.h"
#include "trireme/optim/optimizer_kernels.h"

namespace trireme::optim {
namespace {

at::ScalarType check_span(const char* operation, const char* name, const at::Tensor& span) {
  const auto dtype = ops::compute_dtype(operation, name, span);
  ops::check_tensor(operation, name, span, {span.numel()}, dtype == at::kDouble ? at::kDouble : at::kFloat);
  return dtype;
}

void check_segments(std::span<const DecaySegment> segments, int64_t count) {
  int64_t covered = 0;
  for (const auto& segment : segments) {
    if (segment.begin != covered || segment.end < segment.begin)
      throw ShapeError("optimizer_update: segment [" + std::to_string(segment.begin) + ", " +
                       std::to_string(segment.end) + ") must begin at " + std::to_string(covered) +
                       ", where the one before it ends");
    covered = segment.end;
  }
  if (covered != count)
    throw ShapeError("optimizer_update: segments end at " + std::to_string(covered) + ", the span has " +
                     std::to_string(count) + " elements; every element needs a segment");
}

}  // namespace

OptimizerOptions options_of(std::string_view name) {
  static constexpr std::pair<std::string_view, OptimizerOptions> kRows[] = {
      {"AdamW", {.lr = 0, .step = 0}},
      {"Adam", {.rule = Rule::adam, .lr = 0, .weight_decay = 0, .step = 0}},
      {"SGD", {.rule = Rule::sgd, .lr = 0, .weight_decay = 0, .step = 0}},
      {"Lion", {.rule = Rule::lion, .lr = 0, .beta2 = 0.99, .weight_decay = 0, .step = 0}}};
  for (const auto& [known, options] : kRows)
    if (known == name) return options;
  throw UsageError("optimizer " + std::string(name) + " does not exist here; there are AdamW, Adam, SGD and Lion");
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
    throw ShapeError("optimizer_update: " + std::to_string(state.size()) +
                     " tensors of state were given, the rule keeps " + std::to_string(names.size()));
  for (size_t i = 0; i < names.size(); ++i) ops::check_tensor(kOperation, names[i], state[i], master.sizes(), dtype);
  ops::check_tensor(kOperation, "gradient", gradient, master.sizes(), dtype);
  const bool to_bf16 = compute.defined() && compute.scalar_type() == at::kBFloat16;
  if (compute.defined())
    ops::check_tensor(kOperation, "compute", compute, master.sizes(), to_bf16 ? at::kBFloat16 : dtype);
  check_segments(segments, master.numel());
  if (options.step < 1)
    throw ShapeError("optimizer_update: step is " + std::to_string(options.step) + "; the first update is step 1");

  const auto step = static_cast<double>(options.step);
  const bool decoupled = options.rule == Rule::adamw || options.rule == Rule::lion;
  const bool unbiased = options.rule == Rule::adamw || options.rule == Rule::adam;
  UpdateArguments arguments{.rule = options.rule,
                            .dtype = ops::storage_of(dtype),
                            .master = master.mutable_data_ptr(),
                            .state = {},
                            .gradient = gradient.const_data_ptr(),
                            .compute_bf16 = to_bf16 ? compute.mutable_data_ptr() : nullptr,
                            .compute_same = compute.defined() && !to_bf16 ? compute.mutable_data_ptr() : nullptr,
                            .gradient_scale = options.gradient_scale,
                            .beta1 = options.beta1,
                            .beta2 = options.beta2,
                            .eps = options.eps,
                            .momentum = options.momentum,
                            .nesterov = options.nesterov,
                            .keep = 1,
                            .l2 = 0,
                            .step_size = unbiased ? options.lr / (1 - std::pow(options.beta1, step)) : options.lr,
                            .root_bias2 = std::sqrt(1 - std::pow(options.beta2, step))};
  for (size_t i = 0; i < state.size(); ++i) arguments.state[i] = state[i].mutable_data_ptr();
  for (const auto& segment : segments) {
    arguments.keep = segment.decay && decoupled ? 1 - options.lr * options.weight_decay : 1;
    arguments.l2 = segment.decay && !decoupled ? options.weight_decay : 0;
    if (master.is_cuda()) {
      cuda_optimizer().update(arguments, segment.begin, segment.end);
      continue;
    }
    ops::parallel_rows(segment.end - segment.begin, 1 << 15, [&](int64_t first, int64_t last) {
      update_elements(arguments, segment.begin + first, segment.begin + last);
    });
  }
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

}  // namespace trireme::optim
