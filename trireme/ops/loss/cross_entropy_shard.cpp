// Cross-entropy if each rank has some columns of the logits. Between the phases the caller reduces a row's maximum, sum
// of exponentials and target logit over ranks; the gradient is then local.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "trireme/base/error.h"
#include "trireme/ops/announce.h"
#include "trireme/ops/checks.h"
#include "trireme/ops/cuda/kernels.h"
#include "trireme/ops/loss/cross_entropy_kernels.h"
#include "trireme/ops/ops.h"
#include "trireme/ops/parallel.h"

namespace trireme::ops {
namespace {

void check_on_processor(const char* operation, const char* what, const at::Tensor& logits) {
  if (logits.is_cuda()) throw ShapeError(fmt::format("{}: {} are not built for GPUs", operation, what));
}

/// Checks the logits, their range of columns and the temperature.
VocabularyShard shard_of(const char* operation, const at::Tensor& logits, int64_t first, int64_t vocabulary,
                         double temperature) {
  const auto dtype = compute_dtype(operation, "logits", logits);
  check_dims(operation, "logits", logits, 2);
  check_tensor(operation, "logits", logits, logits.sizes(), dtype);
  if (first < 0 || vocabulary < 1)
    throw ShapeError(
        fmt::format("{}: first={} and vocabulary={}; the first column is at least 0, and the vocabulary, "
                    "without padding, at least 1",
                    operation, first, vocabulary));
  if (!(temperature > 0 && std::isfinite(temperature)))
    throw ShapeError(fmt::format("{}: temperature = {}; it must be finite and above 0", operation, temperature));
  if (temperature != 1) check_on_processor(operation, "temperatures other than 1", logits);
  VocabularyShard shard{};
  shard.temperature = temperature;
  shard.dtype = storage_of(dtype), shard.first = first, shard.width = logits.size(1);
  shard.num_valid = std::clamp<int64_t>(vocabulary - first, 0, shard.width);
  shard.logits = logits.data_ptr();
  return shard;
}

const int64_t* checked_targets(const char* operation, const at::Tensor& targets, int64_t rows, int64_t vocabulary) {
  check_tensor(operation, "targets", targets, {rows}, at::kLong);
  check_targets(operation, targets, vocabulary);
  return targets.data_ptr<int64_t>();
}

}  // namespace

void cross_entropy_shard_max(const at::Tensor& row_max, const at::Tensor& logits, int64_t first, int64_t vocabulary,
                             double temperature) {
  constexpr auto kOperation = "cross_entropy_shard_max";
  VocabularyShard shard = shard_of(kOperation, logits, first, vocabulary, temperature);
  check_tensor(kOperation, "row_max", row_max, {logits.size(0)}, statistics_dtype(logits.scalar_type()));
  shard.row_max = row_max.data_ptr();
  const Announced announced(
      [&] { return row_operation(kOperation, logits.scalar_type(), logits.size(0), shard.width, {&logits}); });
  if (announced.skipped()) return;
  if (logits.is_cuda()) return cuda_kernels().shard_max(shard, logits.size(0));
  run_rows(shard_max_rows, shard, logits.size(0), shard.width);
}

void cross_entropy_shard_sum(const at::Tensor& sum_exp, const at::Tensor& target_logit, const at::Tensor& logits,
                             const at::Tensor& row_max, const at::Tensor& targets, int64_t first, int64_t vocabulary,
                             const at::Tensor& logit_sum, double temperature) {
  constexpr auto kOperation = "cross_entropy_shard_sum";
  VocabularyShard shard = shard_of(kOperation, logits, first, vocabulary, temperature);
  const auto wide = statistics_dtype(logits.scalar_type());
  check_tensor(kOperation, "sum_exp", sum_exp, {logits.size(0)}, wide);
  check_tensor(kOperation, "target_logit", target_logit, {logits.size(0)}, wide);
  check_tensor(kOperation, "row_max", row_max, {logits.size(0)}, wide);
  shard.targets = checked_targets(kOperation, targets, logits.size(0), vocabulary);
  shard.row_max = row_max.data_ptr(), shard.sum_exp = sum_exp.data_ptr();
  shard.target_logit = target_logit.data_ptr();
  if (logit_sum.defined()) {
    check_tensor(kOperation, "logit_sum", logit_sum, {logits.size(0)}, wide);
    check_on_processor(kOperation, "sums of logits", logits);
    shard.logit_sum = logit_sum.data_ptr();
  }
  const Announced announced(
      [&] { return row_operation(kOperation, logits.scalar_type(), logits.size(0), shard.width, {&logits}); });
  if (announced.skipped()) return;
  if (logits.is_cuda()) return cuda_kernels().shard_sum(shard, logits.size(0));
  run_rows(shard_sum_rows, shard, logits.size(0), shard.width);
}

void cross_entropy_shard_loss(const at::Tensor& loss_sum, const at::Tensor& row_max, const at::Tensor& sum_exp,
                              const at::Tensor& target_logit, const at::Tensor& targets) {
  constexpr auto kOperation = "cross_entropy_shard_loss";
  check_dims(kOperation, "row_max", row_max, 1);
  const int64_t rows = row_max.size(0);
  const auto wide = row_max.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  check_tensor(kOperation, "row_max", row_max, {rows}, wide);
  check_tensor(kOperation, "sum_exp", sum_exp, {rows}, wide);
  check_tensor(kOperation, "target_logit", target_logit, {rows}, wide);
  check_tensor(kOperation, "loss_sum", loss_sum, {1}, at::kDouble);
  // Earlier phases have checked the targets against the vocabulary.
  const int64_t* target = checked_targets(kOperation, targets, rows, std::numeric_limits<int64_t>::max());
  if (row_max.is_cuda())
    return cuda_kernels().shard_loss({.dtype = storage_of(wide),
                                      .row_max = row_max.const_data_ptr(),
                                      .sum_exp = sum_exp.const_data_ptr(),
                                      .target_logit = target_logit.const_data_ptr(),
                                      .targets = target,
                                      .loss_sum = loss_sum.mutable_data_ptr<double>()},
                                     rows);
  const Announced announced(
      [&] { return row_operation(kOperation, wide, rows, 1, {&row_max, &sum_exp, &target_logit}); });
  if (announced.skipped()) return;
  double total = *loss_sum.data_ptr<double>();
  with_storage(storage_of(wide), [&]<class T>() {
    const auto* maximum = static_cast<const Wide<T>*>(row_max.const_data_ptr());
    const auto* sum = static_cast<const Wide<T>*>(sum_exp.const_data_ptr());
    const auto* logit = static_cast<const Wide<T>*>(target_logit.const_data_ptr());
    for (int64_t t = 0; t < rows; ++t)
      if (target[t] != kNotSupervised)
        total += std::log(static_cast<double>(sum[t])) + (static_cast<double>(maximum[t]) - logit[t]);
  });
  *loss_sum.mutable_data_ptr<double>() = total;
}

void cross_entropy_shard_backward(const at::Tensor& logits, const at::Tensor& row_max, const at::Tensor& sum_exp,
                                  const at::Tensor& targets, double scale, int64_t first, int64_t vocabulary,
                                  double softcap, const at::Tensor& weights, double temperature) {
  constexpr auto kOperation = "cross_entropy_shard_backward";
  VocabularyShard shard = shard_of(kOperation, logits, first, vocabulary, temperature);
  const auto wide = statistics_dtype(logits.scalar_type());
  check_tensor(kOperation, "row_max", row_max, {logits.size(0)}, wide);
  check_tensor(kOperation, "sum_exp", sum_exp, {logits.size(0)}, wide);
  shard.targets = checked_targets(kOperation, targets, logits.size(0), vocabulary);
  check_softcap(kOperation, softcap);
  shard.row_max = row_max.data_ptr(), shard.sum_exp = sum_exp.data_ptr();
  shard.scale = scale, shard.softcap = softcap;
  if (weights.defined()) {
    check_tensor(kOperation, "weights", weights, {logits.size(0), 3}, at::kDouble);
    check_on_processor(kOperation, "weights of rows", logits);
    static_assert(sizeof(RowWeights) == 3 * sizeof(double));
    shard.weights = static_cast<const RowWeights*>(weights.const_data_ptr());
  }
  const Announced announced(
      [&] { return row_operation(kOperation, logits.scalar_type(), logits.size(0), shard.width, {&logits, &logits}); });
  if (announced.skipped()) return;
  if (logits.is_cuda()) return cuda_kernels().shard_gradient(shard, logits.size(0));
  run_rows(shard_gradient_rows, shard, logits.size(0), shard.width);
}

}  // namespace trireme::ops
