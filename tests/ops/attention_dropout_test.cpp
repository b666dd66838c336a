// Dropout of attention's weights against the explicit softmax with the mask that ops.h describes.
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/ops/attention_support.h"
#include "trireme/base/error.h"
#include "trireme/ops/attention/attention.h"

namespace trireme::ops::test {
namespace {

AttentionShape dropping(AttentionShape shape, double p = 0.3) {
  shape.dropout = {.p = p, .keys = some_keys(shape.batch * shape.sequence), .first_head = 5};
  return shape;
}

class DroppingAttention : public testing::TestWithParam<AttentionShape> {};

// Group sizes of one and more, widths off the vectors' lengths, more keys than a block, a window, soft caps, later
// keys.
INSTANTIATE_TEST_SUITE_P(Shapes, DroppingAttention,
                         testing::Values(dropping({2, 7, 4, 2, 16}), dropping({1, 130, 6, 3, 32}),
                                         dropping({1, 300, 2, 1, 64}, 0.05), dropping({2, 65, 3, 1, 13}, 0.9),
                                         dropping({1, 200, 2, 1, 24, 0, 50}), dropping({1, 140, 4, 4, 16, 0, 0, 5}),
                                         dropping({1, 150, 4, 2, 16, 0, 0, 0, true})),
                         testing::PrintToStringParamName());

// Tolerances as in attention_test.cpp, times 1 / (1 - p), which multiplies what is kept.
TEST_P(DroppingAttention, EqualsTheReferenceInEveryKernel) {
  const double grows = 1 / (1 - GetParam().dropout.p);
  for (const auto& [dtype, tolerance] : {std::pair(at::kDouble, 1e-12), {at::kFloat, 2e-6}, {at::kBFloat16, 1e-2}}) {
    const AttentionInputs in(GetParam(), dtype);
    const AttentionResults want = attention_reference(GetParam(), in);
    for (const AttentionKernel* kernel : attention_kernels()) {
      if (dtype == at::kDouble && kernel != attention_kernels().front()) continue;
      SCOPED_TRACE(std::string(kernel->name) + " " + c10::toString(dtype));
      expect_close(run_attention_with(*kernel, GetParam(), in), want, tolerance * grows,
                   dtype == at::kDouble ? 1e-12 : 1e-6 * std::max(4.0, want.lse.abs().max().item<double>()));
    }
  }
}

TEST(DroppingAttention, DocumentsEndWhatIsSeenAndNotTheCounters) {
  const AttentionShape shape = dropping({1, 150, 4, 2, 16});
  const at::Tensor starts = at::cat({at::zeros({70}, at::kLong), at::full({80}, 70, at::kLong)});
  const AttentionInputs in(shape, at::kDouble, starts);
  expect_close(run_attention_with(*attention_kernels().front(), shape, in), attention_reference(shape, in), 1e-12,
               1e-12);
}

TEST(DroppingAttention, BitsDoNotDependOnThreads) {
  const int threads = at::get_num_threads();
  const AttentionShape shape = dropping({1, 300, 4, 1, 24});
  for (const auto dtype : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
    const AttentionInputs in(shape, dtype);
    for (const AttentionKernel* kernel : attention_kernels()) {
      at::set_num_threads(1);
      const AttentionResults one = run_attention_with(*kernel, shape, in, 0);
      for (const int count : {2, 7}) {
        at::set_num_threads(count);
        expect_same_bits(run_attention_with(*kernel, shape, in, NAN), one);
      }
    }
  }
  at::set_num_threads(threads);
}

// A rank of ring attention has two pieces of a sequence, and merges blocks of other ranks' keys: together they are
// attention to the whole sequence, gradients too.
TEST(DroppingAttention, BlocksOfARingEqualTheWholeSequence) {
  constexpr int64_t B = 2, S = 264, H = 4, K = 2, d = 16, kChunk = S / 4, kRow = (H + 2 * K) * d, kWidth = H * d;
  const AttentionShape whole = dropping({B, S, H, K, d});
  const AttentionInputs in(whole, at::kDouble);
  const AttentionResults want = attention_reference(whole, in);
  const auto by_sequence = [](const at::Tensor& x) { return x.view({B, S, -1}); };
  at::Tensor dqkv = at::zeros({B, S, kRow}, at::kDouble);
  for (const int64_t rank : {0, 1}) {
    const auto pieces = [&](const at::Tensor& x, int64_t holder) {
      const at::Tensor all = x.view({B, S, -1});
      return at::cat({all.narrow(1, holder * kChunk, kChunk), all.narrow(1, (3 - holder) * kChunk, kChunk)}, 1);
    };
    const auto mask = [&](int64_t holder, const at::Tensor& keys) {
      return AttentionDropout{.p = whole.dropout.p,
                              .keys = keys,
                              .first_head = whole.dropout.first_head,
                              .first_key = holder * kChunk,
                              .split = kChunk,
                              .later_key = (3 - holder) * kChunk};
    };
    const at::Tensor keys = pieces(whole.dropout.keys, rank).squeeze(2), qkv = pieces(in.qkv, rank).reshape({-1, kRow}),
                     foreign = pieces(in.qkv, 1 - rank), d_out = pieces(in.d_out, rank).reshape({-1, kWidth}),
                     out = at::full_like(d_out, NAN), lse = at::full({B, H, S / 2}, NAN, at::kDouble),
                     d_own = at::full_like(qkv, NAN);
    AttentionShape own{B, S / 2, H, K, d};
    own.dropout = mask(rank, keys.reshape({-1}));
    // Rank 1 sees the early chunk of rank 0; the late queries of rank 0 see both chunks of rank 1.
    const int64_t first_query = rank == 1 ? 0 : kChunk, queries = S / 2 - first_query,
                  num_keys = rank == 1 ? kChunk : S / 2;
    AttentionBlockShape block{B, queries, num_keys, H, K, d};
    block.dropout = mask(1 - rank, keys.narrow(1, first_query, queries));
    const at::Tensor workspace = at::empty(
        {std::max(attention_workspace_bytes(own, at::kDouble), attention_block_workspace_bytes(block, at::kDouble))},
        at::kByte);
    const auto rows = [&](const at::Tensor& x) {
      return x.view({B, S / 2, -1}).narrow(1, first_query, queries).narrow(2, 0, kWidth);
    };
    const at::Tensor kv = foreign.narrow(1, 0, num_keys).narrow(2, kWidth, 2 * K * d),
                     some_lse = lse.narrow(2, first_query, queries), dq = at::zeros({B, S / 2, kWidth}, at::kDouble),
                     dkv = at::zeros({B, num_keys, 2 * K * d}, at::kDouble);
    attention_forward(out, lse, qkv, own, workspace);
    attention_block_forward(rows(out), some_lse, rows(qkv), kv, block, workspace);
    attention_backward(d_own, d_out, out, lse, qkv, own, workspace);
    attention_block_backward(rows(dq), dkv, rows(d_out), rows(out), some_lse, rows(qkv), kv, block, workspace);
    EXPECT_LT(distance(out.view({B, S / 2, -1}), pieces(want.out, rank)), 1e-12);
    const auto add = [&](int64_t holder, const at::Tensor& gradient, int64_t first_column) {
      for (int64_t at = 0; at < gradient.size(1); at += kChunk)
        dqkv.narrow(1, (at == 0 ? holder : 3 - holder) * kChunk, kChunk)
            .narrow(2, first_column, gradient.size(2))
            .add_(gradient.narrow(1, at, kChunk));
    };
    add(rank, d_own.view({B, S / 2, kRow}), 0);
    add(rank, dq, 0);
    add(1 - rank, dkv, kWidth);
  }
  EXPECT_LT(distance(dqkv, by_sequence(want.dqkv)), 1e-12);
}

// 3 sigma of a binomial share of about a million weights, overall and of each head and query.
TEST(DroppingAttention, TheShareThatIsDroppedIsTheRate) {
  constexpr int64_t S = 512, H = 4;
  for (const double p : {0.1, 0.5}) {
    const AttentionShape shape = dropping({1, S, H, 1, 1}, p);
    // Equal scores and values of one: a row's output is the share of its weights that is kept, times 1 / (1 - p).
    const at::Tensor qkv = at::ones({S, H + 2}, at::kDouble), out = at::empty({S, H}, at::kDouble),
                     lse = at::empty({1, H, S}, at::kDouble),
                     workspace = at::empty({attention_workspace_bytes(shape, at::kDouble)}, at::kByte);
    attention_forward(out, lse, qkv, shape, workspace);
    const at::Tensor seen = at::arange(1, S + 1, at::kDouble).unsqueeze(1), dropped = seen * (1 - out * (1 - p));
    const double all = H * seen.sum().item<double>();
    EXPECT_NEAR(dropped.sum().item<double>(), p * all, 3 * std::sqrt(all * p * (1 - p)));
    const at::Tensor of_heads = (dropped.sum(0) - p * all / H) / std::sqrt(all / H * p * (1 - p)),
                     of_rows = (dropped - p * seen) / (seen * p * (1 - p)).sqrt();
    EXPECT_LT(of_heads.abs().max().item<double>(), 3);
    // Of 2048 rows about 2.7 in a thousand are beyond 3 sigma; their variance is one.
    EXPECT_LT(of_rows.abs().gt(3).to(at::kDouble).mean().item<double>(), 0.01);
    EXPECT_NEAR(of_rows.square().mean().item<double>(), 1, 3 * std::sqrt(2.0 / (S * H)));
  }
}

TEST(DroppingAttention, KeysThatDoNotFitAreRefused) {
  AttentionShape shape{1, 8, 2, 1, 16};
  const at::Tensor qkv = at::zeros({8, 64}), out = at::empty({8, 32}), lse = at::empty({1, 2, 8}),
                   workspace = at::empty({1 << 20}, at::kByte);
  const auto refusal = [&](const AttentionDropout& dropout) -> std::string {
    shape.dropout = dropout;
    try {
      attention_forward(out, lse, qkv, shape, workspace);
    } catch (const ShapeError& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_EQ(refusal({.p = 0.1, .keys = some_keys(8)}), "accepted");
  EXPECT_EQ(refusal({.p = 0.1, .keys = some_keys(7)}),
            "attention: dropout needs keys on the CPU, int32 of [8] or [1, 8]");
  EXPECT_EQ(refusal({.p = 0.1}), "attention: dropout needs keys on the CPU, int32 of [8] or [1, 8]");
  EXPECT_EQ(refusal({.p = 1, .keys = some_keys(8)}), "attention: dropout is 1, it must be at least 0 and below 1");
  EXPECT_EQ(refusal({.p = std::numeric_limits<double>::quiet_NaN(), .keys = some_keys(8)}),
            "attention: dropout is nan, it must be at least 0 and below 1");
}

}  // namespace
}  // namespace trireme::ops::test
