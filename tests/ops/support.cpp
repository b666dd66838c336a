#include "tests/ops/support.h"

#include <ATen/Parallel.h>
#include <hwy/detect_targets.h>
#include <hwy/targets.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/variable.h>

#include <cmath>
#include <limits>

#include "trireme/ops/checks.h"
#include "trireme/ops/storage.h"

namespace trireme::ops::test {

at::Tensor random(at::IntArrayRef shape, at::ScalarType dtype, int64_t seed) {
  auto generator = at::detail::createCPUGenerator(seed);
  return at::randn(shape, generator, at::TensorOptions().dtype(at::kDouble)).to(dtype);
}

at::Tensor repeated(const at::Tensor& some, int64_t rows) {
  return some.repeat({rows / some.size(0) + 1, 1}).narrow(0, 0, rows);
}

at::Tensor unwritten(at::IntArrayRef shape, at::ScalarType dtype) {
  return at::full(shape, std::numeric_limits<double>::quiet_NaN(), at::TensorOptions().dtype(dtype));
}

double relative_error(const at::Tensor& actual, const at::Tensor& expected) {
  if (actual.sizes() != expected.sizes()) return std::numeric_limits<double>::infinity();
  const auto a = actual.to(at::kDouble), e = expected.to(at::kDouble);
  const double difference = (a - e).norm().item<double>(), size = e.norm().item<double>();
  if (!std::isfinite(difference)) return std::numeric_limits<double>::infinity();
  return difference == 0 ? 0 : difference / std::max(size, std::numeric_limits<double>::min());
}

double tolerance(at::ScalarType dtype) {
  return dtype == at::kDouble ? 1e-12 : dtype == at::kFloat ? 2e-6 : dtype == at::kHalf ? 1.5e-3 : 1e-2;
}

void expect_close(const at::Tensor& actual, const at::Tensor& expected, const std::string& what) {
  EXPECT_LE(relative_error(actual, expected), tolerance(actual.scalar_type())) << what;
}

void expect_same_bits(const at::Tensor& a, const at::Tensor& b, const std::string& what) {
  EXPECT_TRUE(a.scalar_type() == b.scalar_type() && a.equal(b)) << what << ": not the same bits";
}

std::vector<at::Tensor> autograd(const std::function<at::Tensor(const std::vector<at::Tensor>&)>& function,
                                 const std::vector<at::Tensor>& inputs, const at::Tensor& d_output) {
  std::vector<at::Tensor> leaves;
  for (const auto& input : inputs) leaves.push_back(input.detach().to(at::kDouble).clone().requires_grad_());
  const auto output = function(leaves);
  auto gradients = torch::autograd::grad({output}, leaves, {d_output.to(at::kDouble)}, {}, false, true);
  for (size_t i = 0; i < leaves.size(); ++i)
    if (!gradients[i].defined()) gradients[i] = at::zeros_like(leaves[i]);
  return gradients;
}

std::vector<at::Tensor> finite_differences(const std::function<at::Tensor(const std::vector<at::Tensor>&)>& function,
                                           const std::vector<at::Tensor>& inputs, const at::Tensor& d_output) {
  constexpr double kStep = 1e-5;
  std::vector<at::Tensor> points, gradients;
  for (const auto& input : inputs) points.push_back(input.clone());
  const auto objective = [&] { return (function(points) * d_output).sum().item<double>(); };
  for (auto& point : points) {
    auto gradient = at::zeros_like(point);
    double* at_point = point.mutable_data_ptr<double>();
    for (int64_t i = 0; i < point.numel(); ++i) {
      const double value = at_point[i];
      at_point[i] = value + kStep;
      const double above = objective();
      at_point[i] = value - kStep;
      const double below = objective();
      at_point[i] = value;
      gradient.mutable_data_ptr<double>()[i] = (above - below) / (2 * kStep);
    }
    gradients.push_back(gradient);
  }
  return gradients;
}

at::Tensor some_targets(int64_t num_tokens, int64_t vocabulary) {
  auto targets = at::arange(num_tokens, at::kLong).square().remainder(vocabulary);
  targets[-1] = vocabulary - 1;
  for (int64_t t = 2; t < num_tokens; t += 5) targets[t] = -100;
  return targets;
}

void for_each_case(const std::function<void(at::ScalarType)>& check) {
  // What this processor has of what the kernels are compiled for; the portable target is always among them.
  const int64_t supported = (hwy::SupportedTargets() & HWY_TARGETS) | HWY_STATIC_TARGET;
  for (int64_t rest = supported; rest != 0; rest &= rest - 1) {
    const int64_t target = rest & -rest;
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().DeInit();
    for (int num_threads : {1, 2}) {
      at::set_num_threads(num_threads);
      for (const auto dtype : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
        SCOPED_TRACE(std::string(hwy::TargetName(target)) + ", " + c10::toString(dtype) + ", " +
                     std::to_string(num_threads) + " threads");
        check(dtype);
        if (dtype != at::kBFloat16 || !has_native_bfloat16()) continue;
        SCOPED_TRACE("without AVX512-BF16");
        native_bfloat16_allowed = false;
        check(dtype);
        native_bfloat16_allowed = true;
      }
    }
  }
  at::set_num_threads(1);
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().DeInit();
}

void expect_same_on_all_threads(const std::function<std::vector<at::Tensor>()>& compute) {
  at::set_num_threads(1);
  const auto expected = compute();
  for (int num_threads : {2, 3}) {
    at::set_num_threads(num_threads);
    const auto actual = compute();
    for (size_t i = 0; i < expected.size(); ++i)
      expect_same_bits(actual[i], expected[i],
                       "result " + std::to_string(i) + " on " + std::to_string(num_threads) + " threads");
  }
  at::set_num_threads(1);
}

}  // namespace trireme::ops::test
