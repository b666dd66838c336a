#include "trireme/optim/adamw.h"

#include <cmath>
#include <string>

#include "trireme/base/error.h"
#include "trireme/ops/checks.h"
#include "trireme/ops/parallel.h"
#include "trireme/optim/adamw_kernels.h"

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
      throw ShapeError("adamw_update: segment [" + std::to_string(segment.begin) + ", " + std::to_string(segment.end) +
                       ") must begin at " + std::to_string(covered) + ", where the one before it ends");
    covered = segment.end;
  }
  if (covered != count)
    throw ShapeError("adamw_update: segments end at " + std::to_string(covered) + ", the span has " +
                     std::to_string(count) + " elements; every element needs a segment");
}

}  // namespace

void adamw_update(const at::Tensor& master, const at::Tensor& exp_avg, const at::Tensor& exp_avg_sq,
                  const at::Tensor& gradient, const at::Tensor& compute, std::span<const DecaySegment> segments,
                  const AdamWOptions& options) {
  constexpr auto kOperation = "adamw_update";
  const auto dtype = check_span(kOperation, "master", master);
  ops::check_tensor(kOperation, "exp_avg", exp_avg, master.sizes(), dtype);
  ops::check_tensor(kOperation, "exp_avg_sq", exp_avg_sq, master.sizes(), dtype);
  ops::check_tensor(kOperation, "gradient", gradient, master.sizes(), dtype);
  const bool to_bf16 = compute.defined() && compute.scalar_type() == at::kBFloat16;
  if (compute.defined())
    ops::check_tensor(kOperation, "compute", compute, master.sizes(), to_bf16 ? at::kBFloat16 : dtype);
  check_segments(segments, master.numel());
  if (options.step < 1)
    throw ShapeError("adamw_update: step is " + std::to_string(options.step) + "; the first update is step 1");

  const auto step = static_cast<double>(options.step);
  AdamWArguments arguments{.dtype = ops::storage_of(dtype),
                           .master = master.mutable_data_ptr(),
                           .exp_avg = exp_avg.mutable_data_ptr(),
                           .exp_avg_sq = exp_avg_sq.mutable_data_ptr(),
                           .gradient = gradient.const_data_ptr(),
                           .compute_bf16 = to_bf16 ? compute.mutable_data_ptr() : nullptr,
                           .compute_same = compute.defined() && !to_bf16 ? compute.mutable_data_ptr() : nullptr,
                           .gradient_scale = options.gradient_scale,
                           .beta1 = options.beta1,
                           .beta2 = options.beta2,
                           .eps = options.eps,
                           .keep = 1,
                           .step_size = options.lr / (1 - std::pow(options.beta1, step)),
                           .root_bias2 = std::sqrt(1 - std::pow(options.beta2, step))};
  for (const auto& segment : segments) {
    arguments.keep = segment.decay ? 1 - options.lr * options.weight_decay : 1;
    ops::parallel_rows(segment.end - segment.begin, 1 << 15, [&](int64_t first, int64_t last) {
      adamw_elements(arguments, segment.begin + first, segment.begin + last);
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
  ops::parallel_rows(num_blocks, 8, [&](int64_t first, int64_t last) { squared_norm_blocks(arguments, first, last); });
}

}  // namespace trireme::optim
