// What the tests of attention share: inputs, the explicit softmax in float64, and a run of one kernel.
#pragma once

#include <cmath>
#include <iosfwd>
#include <vector>

#include "trireme/ops/attention/attention.h"

namespace trireme::ops {

void PrintTo(const AttentionShape& s, std::ostream* os);

namespace test {

struct AttentionResults {
  at::Tensor out, lse, dqkv;
};

/// A packed input and an output gradient of about unit variance, the same for every dtype up to rounding.
struct AttentionInputs {
  AttentionInputs(const AttentionShape& shape, at::ScalarType dtype, const at::Tensor& starts = {});
  at::Tensor qkv, d_out, starts;
};

/// Keys [B*Q] of queries, all different, as if drawn.
at::Tensor some_keys(int64_t queries);
/// The mask that ops.h describes, times 1 / (1 - p): [B, H, Q, N] float64 for keys at `positions` [N].
at::Tensor dropout_factors(const AttentionDropout& dropout, int64_t batch, int64_t heads,
                           const std::vector<int64_t>& positions);

/// The reference: every score in float64, gradients by the formulas of softmax.
AttentionResults attention_reference(const AttentionShape& shape, const AttentionInputs& in);

/// Runs forward and backward; outputs and the workspace start as `garbage`.
AttentionResults run_attention_with(const AttentionKernel& kernel, const AttentionShape& shape,
                                    const AttentionInputs& in, double garbage = NAN);

/// Largest difference relative to the largest magnitude; NaN counts as infinite.
double distance(const at::Tensor& got, const at::Tensor& want);

void expect_close(const AttentionResults& got, const AttentionResults& want, double tolerance, double lse_tolerance);
void expect_same_bits(const AttentionResults& got, const AttentionResults& want);

}  // namespace test
}  // namespace trireme::ops
