// Shared by the tests of ops: one list of cases (dtype, instruction set, number of threads) that every check
// runs over, seeded inputs, and comparison with the reference in float64.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

namespace trireme::ops::test {

/// Normal values from a seed, rounded to `dtype`.
at::Tensor random(at::IntArrayRef shape, at::ScalarType dtype, int64_t seed);

/// These rows again and again: random numbers for a tensor beyond the caches would take longer than its test.
at::Tensor repeated(const at::Tensor& some, int64_t rows);

/// An uninitialised tensor filled with NaN, so that an element that is not written shows.
at::Tensor unwritten(at::IntArrayRef shape, at::ScalarType dtype);

inline at::ScalarType wide(at::ScalarType dtype) { return dtype == at::kDouble ? at::kDouble : at::kFloat; }

/// ||actual - expected|| / ||expected|| over all elements, in float64; infinite when shapes differ or a value
/// is not finite.
double relative_error(const at::Tensor& actual, const at::Tensor& expected);

/// What relative_error may be. float64: the same formula in another order of summation, a few hundred roundings
/// of 1e-16. float32: the same with 6e-8. bfloat16: one rounding of each result to 8 bits (at most 2^-9 = 2e-3
/// relative, and it does not grow because arithmetic inside is float32); products of rounded intermediates
/// (dlogits) add a few of these. float16: the same with 2^-12.
double tolerance(at::ScalarType dtype);

void expect_close(const at::Tensor& actual, const at::Tensor& expected, const std::string& what);
void expect_same_bits(const at::Tensor& a, const at::Tensor& b, const std::string& what);

/// Gradients by LibTorch's autograd, in float64: of sum(function(inputs) * d_output) to each of `inputs`.
std::vector<at::Tensor> autograd(const std::function<at::Tensor(const std::vector<at::Tensor>&)>& function,
                                 const std::vector<at::Tensor>& inputs, const at::Tensor& d_output);

/// The same by central differences of float64 inputs: an independent judge of the backward formulas.
std::vector<at::Tensor> finite_differences(const std::function<at::Tensor(const std::vector<at::Tensor>&)>& function,
                                           const std::vector<at::Tensor>& inputs, const at::Tensor& d_output);

/// Ids of a vocabulary, the last one among them; every fifth token is not supervised.
at::Tensor some_targets(int64_t num_tokens, int64_t vocabulary);

/// What the gradients of a loss are scaled by where any number will do.
constexpr double kLossScale = 0.37;

/// Runs `check` for float64, float32, bfloat16 and float16 on every instruction set of this processor, and with 1 and 2
/// threads; a failure's message names the case.
void for_each_case(const std::function<void(at::ScalarType dtype)>& check);

/// Runs `compute` on 1, 2 and 3 threads and expects the same bits from each.
void expect_same_on_all_threads(const std::function<std::vector<at::Tensor>()>& compute);

}  // namespace trireme::ops::test
