// Attention against explicit softmax in float64, for every kernel this machine has.
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "tests/ops/attention_support.h"
#include "trireme/base/error.h"
#include "trireme/ops/attention/cudnn.h"

namespace trireme::ops::test {
namespace {

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
  const AttentionInputs in(GetParam(), at::kDouble);
  expect_close(run_attention_with(*attention_kernels().front(), GetParam(), in), attention_reference(GetParam(), in),
               1e-12, 1e-12);
}

// float32 rounds scores and sums to 6e-8 relative; the exponential amplifies by the size of the scores, which
// reach 25 where the scale is given and 5 elsewhere.
TEST_P(AttentionOf, Float32EqualsTheReferenceInEveryKernel) {
  const AttentionInputs in(GetParam(), at::kFloat);
  const AttentionResults want = attention_reference(GetParam(), in);
  for (const AttentionKernel* kernel : attention_kernels()) {
    SCOPED_TRACE(kernel->name);
    expect_close(run_attention_with(*kernel, GetParam(), in), want, GetParam().scale != 0 ? 4e-6 : 2e-6,
                 1e-6 * std::max(4.0, want.lse.abs().max().item<double>()));
  }
}

// bfloat16 has 8 bits: P, dS and the results are each rounded to 2^-9 relative. lse is not rounded.
TEST_P(AttentionOf, Bfloat16EqualsTheReferenceInEveryKernel) {
  const AttentionInputs in(GetParam(), at::kBFloat16);
  const AttentionResults want = attention_reference(GetParam(), in);
  for (const AttentionKernel* kernel : attention_kernels()) {
    SCOPED_TRACE(kernel->name);
    expect_close(run_attention_with(*kernel, GetParam(), in), want, 1e-2,
                 1e-6 * std::max(4.0, want.lse.abs().max().item<double>()));
  }
}

TEST(Attention, GradientEqualsFiniteDifferences) {
  const AttentionShape shape{1, 5, 4, 2, 3};
  const AttentionInputs in(shape, at::kDouble);
  const AttentionKernel& kernel = *attention_kernels().front();
  const AttentionResults at_point = run_attention_with(kernel, shape, in);
  const auto loss = [&](const at::Tensor& qkv) {
    AttentionInputs moved = in;
    moved.qkv = qkv;
    return (run_attention_with(kernel, shape, moved).out * in.d_out).sum().item<double>();
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
  for (const auto dtype : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
    AttentionInputs in(shape, dtype);
    in.qkv *= 16;  // scores reach several hundred: rows are nearly one-hot
    const AttentionResults want = attention_reference(shape, in);
    for (const AttentionKernel* kernel : attention_kernels()) {
      SCOPED_TRACE(kernel->name);
      const AttentionResults got = run_attention_with(*kernel, shape, in);
      EXPECT_LT(distance(got.out, want.out), dtype == at::kDouble ? 1e-12 : dtype == at::kFloat ? 2e-4 : 1e-2);
      EXPECT_TRUE(at::isfinite(got.dqkv).all().item<bool>());
    }
  }
}

// With values that are finite, so that only the scores can tell.
TEST(Attention, ANaNInAQueryOrAKeyReachesEveryRowThatSeesIt) {
  for (const double cap : {0.0, 5.0})
    for (const auto dtype : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
      AttentionShape shape{1, 150, 2, 1, 32};
      shape.softcap = cap;
      for (const AttentionKernel* kernel : attention_kernels()) {
        SCOPED_TRACE(std::string(kernel->name) + (cap > 0 ? " capped" : ""));
        AttentionInputs query(shape, dtype), key(shape, dtype);
        query.qkv[90].narrow(0, 0, 32).fill_(NAN);
        key.qkv[90].narrow(0, 64, 32).fill_(NAN);
        const at::Tensor of_query = run_attention_with(*kernel, shape, query).out.isnan(),
                         of_key = run_attention_with(*kernel, shape, key).out.isnan();
        EXPECT_TRUE(of_query[90].narrow(0, 0, 32).all().item<bool>());
        EXPECT_EQ(of_query.sum().item<int64_t>(), 32);
        EXPECT_TRUE(of_key.slice(0, 90).all().item<bool>());
        EXPECT_FALSE(of_key.slice(0, 0, 90).any().item<bool>());
      }
    }
}

TEST(Attention, LaterTokensDoNotChangeEarlierRows) {
  const AttentionShape shape{1, 140, 2, 1, 16};
  for (const AttentionKernel* kernel : attention_kernels()) {
    const AttentionInputs in(shape, at::kBFloat16);
    AttentionInputs changed(shape, at::kBFloat16);
    changed.qkv.slice(0, 70).fill_(3);
    const at::Tensor a = run_attention_with(*kernel, shape, in).out,
                     b = run_attention_with(*kernel, shape, changed).out;
    EXPECT_TRUE(at::equal(a.slice(0, 0, 70), b.slice(0, 0, 70))) << kernel->name;
    EXPECT_FALSE(at::equal(a.slice(0, 70), b.slice(0, 70))) << kernel->name;
  }
}

// With more threads than kv heads, heads are computed in parts: 3 threads split a head unevenly, 7 ask for more parts
// than there are blocks of keys.
TEST(Attention, BitsDoNotDependOnThreadsOrOnWhatTheWorkspaceHeld) {
  const int threads = at::get_num_threads();
  for (const AttentionShape& shape :
       {AttentionShape{2, 150, 6, 3, 24}, AttentionShape{1, 300, 4, 1, 24}, AttentionShape{1, 450, 2, 2, 16, 0, 150},
        AttentionShape{.batch = 1, .sequence = 300, .num_heads = 4, .head_dim = 24, .bidirectional = true}})
    for (const auto dtype : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
      const AttentionInputs in(shape, dtype);
      for (const AttentionKernel* kernel : attention_kernels()) {
        at::set_num_threads(1);
        const AttentionResults one = run_attention_with(*kernel, shape, in, 0);
        for (const int count : {2, 3, 7}) {
          SCOPED_TRACE(std::string(kernel->name) + ", " + std::to_string(count) + " threads");
          at::set_num_threads(count);
          expect_same_bits(run_attention_with(*kernel, shape, in, NAN), one);
        }
      }
    }
  at::set_num_threads(threads);
}

TEST(Attention, AWorkspacePlannedForOneThreadServesMore) {
  const AttentionShape shape{2, 40, 4, 2, 16};
  const int threads = at::get_num_threads();
  const AttentionInputs in(shape, at::kFloat);
  at::set_num_threads(1);
  const at::Tensor workspace = at::empty({attention_workspace_bytes(shape, at::kFloat)}, at::kByte);
  const AttentionResults want = run_attention_with(*attention_kernels().front(), shape, in);
  at::set_num_threads(2);
  AttentionResults got{at::empty_like(want.out), at::empty_like(want.lse), at::empty_like(want.dqkv)};
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
  EXPECT_THAT(refusal({1, 8, 2, 1, 16}, qkv.to(at::kInt), workspace),
              testing::HasSubstr("float64, float32, bfloat16 or float16"));
  EXPECT_THAT(refusal({1, 8, 2, 1, 16}, qkv, at::empty({100}, at::kByte)),
              testing::HasSubstr("attention_workspace_bytes()"));
}

// ---- the workspace of cuDNN's backward, which is planned without a GPU ----

/// What cuDNN 9.19 asked for on an H100, in MiB rounded down.
TEST(Attention, PlansTheWorkspaceThatCudnnAsksFor) {
  struct Asked {
    int64_t batch, sequence, heads, kv_heads, head_dim;
    bool any_order;
    int64_t mib;
  };
  for (const Asked& a : {Asked{32, 1024, 12, 4, 64, true, 193}, Asked{32, 1024, 12, 4, 64, false, 865},
                         Asked{8, 2048, 32, 4, 64, true, 258}, Asked{8, 2048, 32, 4, 64, false, 2178},
                         Asked{16, 1024, 14, 2, 64, true, 112}, Asked{16, 1024, 12, 2, 128, false, 480},
                         Asked{1, 8192, 32, 8, 128, true, 257}, Asked{1, 8192, 32, 8, 128, false, 4225}}) {
    const AttentionCall call{.batch = a.batch,
                             .queries = a.sequence,
                             .keys = a.sequence,
                             .num_heads = a.heads,
                             .num_kv_heads = a.kv_heads,
                             .head_dim = a.head_dim};
    const int64_t planned = cudnn_backward_bytes(call, a.batch, a.kv_heads, a.any_order) >> 20;
    EXPECT_GE(planned, a.mib + 1);
    EXPECT_LE(planned, a.mib + 2);
  }
}

TEST(Attention, CutsCallsForAGpuUntilAFixedOrderFits) {
  const auto parts = [](int64_t batch, int64_t sequence, int64_t heads, int64_t kv_heads) {
    const CudnnParts p = cudnn_backward_parts({.batch = batch,
                                               .queries = sequence,
                                               .keys = sequence,
                                               .num_heads = heads,
                                               .num_kv_heads = kv_heads,
                                               .head_dim = 64},
                                              /*any_order=*/false);
    return std::pair(p.batch, p.kv_heads);
  };
  EXPECT_EQ(parts(32, 1024, 12, 4), std::pair(int64_t{32}, int64_t{4}));
  EXPECT_EQ(parts(8, 2048, 32, 4), std::pair(int64_t{4}, int64_t{4}));
  EXPECT_EQ(parts(1, 8192, 32, 8), std::pair(int64_t{1}, int64_t{2}));
  EXPECT_EQ(parts(1, 65536, 32, 8), std::pair(int64_t{0}, int64_t{0}));
}

}  // namespace
}  // namespace trireme::ops::test
