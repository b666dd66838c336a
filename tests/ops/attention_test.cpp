// Attention against explicit softmax in float64, for every kernel this machine has.
#include "trireme/ops/attention.h"

#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <ostream>
#include <string>
#include <tuple>

#include "trireme/base/error.h"

namespace trireme::ops {
void PrintTo(const AttentionShape& s, std::ostream* os) {
  *os << "b" << s.batch << "_s" << s.sequence << "_H" << s.num_heads << "_K" << s.num_kv_heads << "_d" << s.head_dim;
}

namespace {

struct Results {
  at::Tensor out, lse, dqkv;
};

at::ScalarType statistics(at::ScalarType dtype) { return dtype == at::kDouble ? at::kDouble : at::kFloat; }

/// A packed input and an output gradient of about unit variance, the same for every dtype up to rounding.
struct Inputs {
  Inputs(const AttentionShape& shape, at::ScalarType dtype) {
    at::manual_seed(7);
    const int64_t tokens = shape.batch * shape.sequence;
    qkv = at::randn({tokens, (shape.num_heads + 2 * shape.num_kv_heads) * shape.head_dim}, at::kDouble).to(dtype);
    d_out = at::randn({tokens, shape.num_heads * shape.head_dim}, at::kDouble).to(dtype);
  }
  at::Tensor qkv, d_out;
};

double scale_of(const AttentionShape& shape) {
  return shape.scale != 0 ? shape.scale : 1 / std::sqrt(static_cast<double>(shape.head_dim));
}

/// The reference: every score in float64, gradients by the formulas of softmax.
Results reference(const AttentionShape& shape, const Inputs& in) {
  const auto [b, s, H, K, d] =
      std::tuple(shape.batch, shape.sequence, shape.num_heads, shape.num_kv_heads, shape.head_dim);
  const at::Tensor x = in.qkv.to(at::kDouble).view({b, s, H + 2 * K, d}).transpose(1, 2);  // [b, H+2K, s, d]
  const at::Tensor q = x.slice(1, 0, H);
  const at::Tensor k = x.slice(1, H, H + K).repeat_interleave(H / K, 1);
  const at::Tensor v = x.slice(1, H + K).repeat_interleave(H / K, 1);
  const at::Tensor d_out = in.d_out.to(at::kDouble).view({b, s, H, d}).transpose(1, 2);
  const at::Tensor hidden = at::ones({s, s}, at::kBool).triu(1);
  const at::Tensor scores = (at::matmul(q, k.transpose(2, 3)) * scale_of(shape)).masked_fill(hidden, -INFINITY);
  const at::Tensor lse = at::logsumexp(scores, {3});
  const at::Tensor p = at::exp(scores - lse.unsqueeze(3));
  const at::Tensor out = at::matmul(p, v);
  const at::Tensor dp = at::matmul(d_out, v.transpose(2, 3));
  const at::Tensor ds = p * (dp - (dp * p).sum(3, true)) * scale_of(shape);
  const auto group_sum = [&, b = b, s = s, H = H, K = K, d = d](const at::Tensor& t) {
    return t.view({b, K, H / K, s, d}).sum(2);
  };
  const at::Tensor dq = at::matmul(ds, k);
  const at::Tensor dk = group_sum(at::matmul(ds.transpose(2, 3), q));
  const at::Tensor dv = group_sum(at::matmul(p.transpose(2, 3), d_out));
  return {out.transpose(1, 2).reshape({b * s, H * d}), lse,
          at::cat({dq, dk, dv}, 1).transpose(1, 2).reshape({b * s, (H + 2 * K) * d})};
}

at::Tensor filled(at::IntArrayRef sizes, at::ScalarType dtype, double value) {
  return at::full(sizes, value, at::TensorOptions().dtype(dtype));
}

/// Runs forward and backward; outputs and the workspace start as `garbage`.
Results run(const AttentionKernel& kernel, const AttentionShape& shape, const Inputs& in, double garbage = NAN) {
  const at::ScalarType dtype = in.qkv.scalar_type();
  const int64_t bytes = attention_workspace_bytes(shape, dtype);
  const at::Tensor workspace = filled({bytes / 8 + 1}, at::kDouble, garbage);
  Results r{filled(in.d_out.sizes(), dtype, garbage),
            filled({shape.batch, shape.num_heads, shape.sequence}, statistics(dtype), garbage),
            filled(in.qkv.sizes(), dtype, garbage)};
  attention_forward_with(kernel, r.out, r.lse, in.qkv, shape, workspace);
  workspace.fill_(garbage);
  attention_backward_with(kernel, r.dqkv, in.d_out, r.out, r.lse, in.qkv, shape, workspace);
  return r;
}

/// Largest difference relative to the largest magnitude; NaN counts as infinite.
double distance(const at::Tensor& got, const at::Tensor& want) {
  const at::Tensor difference = (got.to(at::kDouble) - want.to(at::kDouble)).abs().nan_to_num(INFINITY, INFINITY);
  return difference.max().item<double>() / std::max(want.abs().max().item<double>(), 1e-300);
}

void expect_close(const Results& got, const Results& want, double tolerance, double lse_tolerance) {
  EXPECT_LT(distance(got.out, want.out), tolerance);
  EXPECT_LT((got.lse.to(at::kDouble) - want.lse).abs().max().item<double>(), lse_tolerance);
  EXPECT_LT(distance(got.dqkv, want.dqkv), tolerance);
}

class AttentionOf : public testing::TestWithParam<AttentionShape> {};

INSTANTIATE_TEST_SUITE_P(Shapes, AttentionOf,
                         testing::Values(AttentionShape{1, 1, 1, 1, 64}, AttentionShape{2, 7, 4, 2, 16},
                                         AttentionShape{1, 130, 6, 3, 32}, AttentionShape{2, 512, 8, 4, 64},
                                         AttentionShape{1, 257, 4, 1, 80}, AttentionShape{1, 64, 4, 4, 256},
                                         AttentionShape{2, 65, 3, 1, 13}, AttentionShape{1, 129, 2, 2, 1},
                                         AttentionShape{1, 200, 2, 1, 128, 0.5}),
                         testing::PrintToStringParamName());

// Sums of up to 512 terms of size one: 1e-12 leaves a factor of ten over the worst seen.
TEST_P(AttentionOf, Float64EqualsTheReference) {
  const Inputs in(GetParam(), at::kDouble);
  expect_close(run(*attention_kernels().front(), GetParam(), in), reference(GetParam(), in), 1e-12, 1e-12);
}

// float32 rounds scores and sums to 6e-8 relative; the exponential amplifies by the size of the scores, which
// reach 25 where the scale is given and 5 elsewhere.
TEST_P(AttentionOf, Float32EqualsTheReferenceInEveryKernel) {
  const Inputs in(GetParam(), at::kFloat);
  const Results want = reference(GetParam(), in);
  for (const AttentionKernel* kernel : attention_kernels()) {
    SCOPED_TRACE(kernel->name);
    expect_close(run(*kernel, GetParam(), in), want, GetParam().scale != 0 ? 4e-6 : 2e-6,
                 1e-6 * std::max(4.0, want.lse.abs().max().item<double>()));
  }
}

// bfloat16 has 8 bits: P, dS and the results are each rounded to 2^-9 relative. lse is not rounded.
TEST_P(AttentionOf, Bfloat16EqualsTheReferenceInEveryKernel) {
  const Inputs in(GetParam(), at::kBFloat16);
  const Results want = reference(GetParam(), in);
  for (const AttentionKernel* kernel : attention_kernels()) {
    SCOPED_TRACE(kernel->name);
    expect_close(run(*kernel, GetParam(), in), want, 1e-2, 1e-6 * std::max(4.0, want.lse.abs().max().item<double>()));
  }
}

TEST(Attention, GradientEqualsFiniteDifferences) {
  const AttentionShape shape{1, 5, 4, 2, 3};
  const Inputs in(shape, at::kDouble);
  const AttentionKernel& kernel = *attention_kernels().front();
  const Results at_point = run(kernel, shape, in);
  const auto loss = [&](const at::Tensor& qkv) {
    Inputs moved = in;
    moved.qkv = qkv;
    return (run(kernel, shape, moved).out * in.d_out).sum().item<double>();
  };
  const double step = 1e-5;  // error about step^2 + 1e-16 / step
  for (int64_t i = 0; i < in.qkv.numel(); ++i) {
    at::Tensor up = in.qkv.clone(), down = in.qkv.clone();
    up.view(-1)[i] += step;
    down.view(-1)[i] -= step;
    EXPECT_NEAR((loss(up) - loss(down)) / (2 * step), at_point.dqkv.view(-1)[i].item<double>(), 1e-8)
        << "element " << i;
  }
}

TEST(Attention, LargeScoresNeitherOverflowNorVanish) {
  const AttentionShape shape{1, 150, 2, 1, 32};
  for (const auto dtype : {at::kDouble, at::kFloat, at::kBFloat16}) {
    Inputs in(shape, dtype);
    in.qkv *= 16;  // scores reach several hundred: rows are nearly one-hot
    const Results want = reference(shape, in);
    for (const AttentionKernel* kernel : attention_kernels()) {
      SCOPED_TRACE(kernel->name);
      const Results got = run(*kernel, shape, in);
      EXPECT_LT(distance(got.out, want.out), dtype == at::kDouble ? 1e-12 : dtype == at::kFloat ? 2e-4 : 1e-2);
      EXPECT_TRUE(at::isfinite(got.dqkv).all().item<bool>());
    }
  }
}

TEST(Attention, LaterTokensDoNotChangeEarlierRows) {
  const AttentionShape shape{1, 140, 2, 1, 16};
  for (const AttentionKernel* kernel : attention_kernels()) {
    const Inputs in(shape, at::kBFloat16);
    Inputs changed(shape, at::kBFloat16);
    changed.qkv.slice(0, 70).fill_(3);
    const at::Tensor a = run(*kernel, shape, in).out, b = run(*kernel, shape, changed).out;
    EXPECT_TRUE(at::equal(a.slice(0, 0, 70), b.slice(0, 0, 70))) << kernel->name;
    EXPECT_FALSE(at::equal(a.slice(0, 70), b.slice(0, 70))) << kernel->name;
  }
}

TEST(Attention, BitsDoNotDependOnThreadsOrOnWhatTheWorkspaceHeld) {
  const AttentionShape shape{2, 150, 6, 3, 24};
  const int threads = at::get_num_threads();
  for (const auto dtype : {at::kDouble, at::kFloat, at::kBFloat16}) {
    const Inputs in(shape, dtype);
    for (const AttentionKernel* kernel : attention_kernels()) {
      at::set_num_threads(1);
      const Results one = run(*kernel, shape, in, 0);
      at::set_num_threads(2);
      const Results two = run(*kernel, shape, in, NAN);
      EXPECT_TRUE(at::equal(one.out, two.out)) << kernel->name;
      EXPECT_TRUE(at::equal(one.lse, two.lse)) << kernel->name;
      EXPECT_TRUE(at::equal(one.dqkv, two.dqkv)) << kernel->name;
    }
  }
  at::set_num_threads(threads);
}

TEST(Attention, AWorkspacePlannedForOneThreadServesMore) {
  const AttentionShape shape{2, 40, 4, 2, 16};
  const int threads = at::get_num_threads();
  const Inputs in(shape, at::kFloat);
  at::set_num_threads(1);
  const at::Tensor workspace = at::empty({attention_workspace_bytes(shape, at::kFloat)}, at::kByte);
  const Results want = run(*attention_kernels().front(), shape, in);
  at::set_num_threads(2);
  Results got{at::empty_like(want.out), at::empty_like(want.lse), at::empty_like(want.dqkv)};
  attention_forward(got.out, got.lse, in.qkv, shape, workspace);
  attention_backward(got.dqkv, in.d_out, got.out, got.lse, in.qkv, shape, workspace);
  at::set_num_threads(threads);
  EXPECT_TRUE(at::equal(got.out, want.out));
  EXPECT_TRUE(at::equal(got.dqkv, want.dqkv));
}

std::string refusal(const AttentionShape& shape, const at::Tensor& qkv, const at::Tensor& workspace) {
  const at::Tensor out = at::empty({shape.batch * shape.sequence, shape.num_heads * shape.head_dim}, qkv.options());
  const at::Tensor lse = at::empty({shape.batch, shape.num_heads, shape.sequence}, at::kFloat);
  try {
    attention_forward(out, lse, qkv, shape, workspace);
  } catch (const ShapeError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Attention, RefusalsNameTheValueAndTheRule) {
  const at::Tensor qkv = at::zeros({8, 64}), workspace = at::empty({1 << 22}, at::kByte);
  EXPECT_EQ(refusal({1, 8, 2, 1, 16}, qkv, workspace), "accepted");
  EXPECT_EQ(refusal({1, 8, 3, 2, 16}, qkv, workspace),
            "attention: num_kv_heads=2 does not divide num_heads=3; each key/value head serves the same number of "
            "query heads");
  EXPECT_EQ(refusal({1, 0, 2, 1, 16}, qkv, workspace), "attention: sequence is 0, it must be at least 1");
  EXPECT_THAT(refusal({1, 9, 2, 1, 16}, qkv, workspace), testing::HasSubstr("qkv"));
  EXPECT_THAT(refusal({1, 8, 2, 1, 16}, qkv.to(at::kHalf), workspace),
              testing::HasSubstr("float64, float32 or bfloat16"));
  EXPECT_THAT(refusal({1, 8, 2, 1, 16}, qkv, at::empty({100}, at::kByte)),
              testing::HasSubstr("attention_workspace_bytes()"));
}

}  // namespace
}  // namespace trireme::ops
