// Attention to blocks of keys without a mask, merged as ring attention merges them, for every kernel this machine has.
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <ostream>

#include "tests/ops/attention_support.h"
#include "tests/ops/reference.h"
#include "tests/ops/support.h"
#include "trireme/base/error.h"
#include "trireme/ops/attention/attention.h"

namespace trireme::ops::test {
namespace {

struct Case {
  int64_t batch, own, skip;  // own rows per sequence; the first `skip` of them see no foreign keys
  std::vector<int64_t> blocks;
  int64_t heads, kv_heads, head_dim;
  double scale = 0, softcap = 0;

  double factor() const { return scale != 0 ? scale : 1 / std::sqrt(static_cast<double>(head_dim)); }
  int64_t row() const { return (heads + 2 * kv_heads) * head_dim; }
  int64_t width() const { return heads * head_dim; }
  AttentionShape causal() const { return {batch, own, heads, kv_heads, head_dim, scale, 0, softcap}; }
  AttentionBlockShape block(size_t i) const {
    return {batch, own - skip, blocks[i], heads, kv_heads, head_dim, scale, softcap};
  }
};
void PrintTo(const Case& c, std::ostream* os) {
  if (c.softcap > 0) *os << "cap" << c.softcap << "_";
  *os << "b" << c.batch << "_s" << c.own << "_skip" << c.skip << "_N" << c.blocks[0] << "_H" << c.heads << "_K"
      << c.kv_heads << "_d" << c.head_dim;
}

constexpr double kHeld = 0.5;  // what dq and dkv hold before the backward adds to them

/// Inputs and outputs as a rank has them: everything a block touches is a view of something larger.
struct Ring {
  Ring(const Case& c, at::ScalarType dtype, double size = 1)
      : at_case(c),
        qkv(random({c.batch * c.own, c.row()}, dtype, 1) * size),
        d_out(random({c.batch * c.own, c.width()}, dtype, 2)),
        out(unwritten(d_out.sizes(), dtype)),
        lse(unwritten({c.batch, c.heads, c.own}, wide(dtype))),
        dq(at::full({c.batch, c.own, c.width() + 3}, kHeld, at::TensorOptions().dtype(wide(dtype)))) {
    for (size_t i = 0; i < c.blocks.size(); ++i) {
      foreign.push_back(random({c.batch, c.blocks[i] + 2, c.row()}, dtype, 3 + static_cast<int64_t>(i)) * size);
      d_foreign.push_back(at::full_like(foreign[i], kHeld, at::TensorOptions().dtype(wide(dtype))));
    }
  }
  /// The rows of x [B*S or B, S, .] that see foreign keys, and the first `columns` of them.
  at::Tensor rows(const at::Tensor& x, int64_t columns) const {
    return x.view({at_case.batch, at_case.own, -1}).slice(1, at_case.skip).slice(2, 0, columns);
  }
  at::Tensor kv(const at::Tensor& packed) const { return packed.slice(1, 1, -1).slice(2, at_case.width()); }
  at::Tensor seen_lse() const { return lse.slice(2, at_case.skip); }

  /// Causal attention to the own rows, then one block after another; afterwards every part of the gradient.
  void run(const AttentionKernel& kernel, double garbage = NAN) {
    const auto dtype = qkv.scalar_type();
    int64_t bytes = attention_workspace_bytes(at_case.causal(), dtype);
    for (size_t i = 0; i < foreign.size(); ++i)
      bytes = std::max(bytes, attention_block_workspace_bytes(at_case.block(i), dtype));
    const auto workspace = at::full({bytes / 8 + 1}, garbage, at::TensorOptions().dtype(at::kDouble));
    const int64_t width = at_case.width();
    attention_forward(out, lse, qkv, at_case.causal(), workspace, {}, &kernel);
    for (size_t i = 0; i < foreign.size(); ++i)
      attention_block_forward(rows(out, width), seen_lse(), rows(qkv, width), kv(foreign[i]), at_case.block(i),
                              workspace, &kernel);
    dqkv = unwritten(qkv.sizes(), dtype);
    attention_backward(dqkv, d_out, out, lse, qkv, at_case.causal(), workspace, {}, &kernel);
    workspace.fill_(garbage);
    for (size_t i = 0; i < foreign.size(); ++i)
      attention_block_backward(rows(dq, width), kv(d_foreign[i]), rows(d_out, width), rows(out, width), seen_lse(),
                               rows(qkv, width), kv(foreign[i]), at_case.block(i), workspace, &kernel);
  }

  Case at_case;
  at::Tensor qkv, d_out, out, lse, dq, dqkv;
  std::vector<at::Tensor> foreign, d_foreign;
};

/// out (or lse) of the own rows, from leaves {qkv, foreign...}: one softmax over all keys.
std::pair<at::Tensor, at::Tensor> reference_of(const Ring& ring, const std::vector<at::Tensor>& in) {
  const Case& c = ring.at_case;
  const auto own = in[0].view({c.batch, c.own, c.row()});
  std::vector<at::Tensor> keys{own.slice(2, c.width())};
  std::vector<at::Tensor> hidden{at::ones({c.own, c.own}, at::kBool).triu(1)};
  for (size_t i = 1; i < in.size(); ++i) {
    keys.push_back(ring.kv(in[i]));
    hidden.push_back(at::arange(c.own).lt(c.skip).unsqueeze(1).expand({c.own, keys.back().size(1)}));
  }
  return reference::attention(own.slice(2, 0, c.width()), at::cat(keys, 1), c.heads, c.kv_heads, c.factor(),
                              at::cat(hidden, 1), c.softcap);
}

void expect_equal_to_reference(const Ring& ring, double tolerance) {
  const Case& c = ring.at_case;
  std::vector<at::Tensor> in{ring.qkv.to(at::kDouble)};
  for (const auto& x : ring.foreign) in.push_back(x.to(at::kDouble));
  const auto [out, lse] = reference_of(ring, in);
  EXPECT_LT(distance(ring.out, out.view(ring.out.sizes())), tolerance);
  // lse is not rounded to bfloat16.
  EXPECT_LT(distance(ring.lse, lse), std::min(tolerance, 2e-6));

  const auto d_out = ring.d_out.view({c.batch, c.own, c.width()});
  const auto gradients = autograd([&](const auto& x) { return reference_of(ring, x).first; }, in, d_out);
  const auto total = ring.dqkv.to(at::kDouble);
  const auto of_q = total.view({c.batch, c.own, c.row()}).slice(2, 0, c.width());
  of_q.add_(ring.dq.slice(2, 0, c.width()).to(at::kDouble) - kHeld);
  EXPECT_LT(distance(total, gradients[0]), tolerance);
  for (size_t i = 0; i < ring.foreign.size(); ++i)  // rows and columns outside the view included: 0 is added there
    EXPECT_LT(distance(ring.d_foreign[i] - kHeld, gradients[i + 1]), tolerance) << "block " << i;
  EXPECT_TRUE(ring.dq.slice(2, c.width()).eq(kHeld).all().item<bool>()) << "beyond the view of dq";
  EXPECT_TRUE(ring.dq.slice(1, 0, c.skip).eq(kHeld).all().item<bool>()) << "rows that take no part";
}

class AttentionBlockOf : public testing::TestWithParam<Case> {};

INSTANTIATE_TEST_SUITE_P(Shapes, AttentionBlockOf,
                         testing::Values(Case{1, 1, 0, {1}, 1, 1, 64}, Case{2, 8, 4, {3, 8}, 4, 2, 16},
                                         Case{2, 70, 35, {70, 35, 128}, 6, 3, 32}, Case{1, 130, 0, {257}, 4, 1, 80},
                                         Case{3, 65, 1, {131, 4}, 3, 1, 13}, Case{1, 9, 2, {129}, 2, 2, 1},
                                         Case{2, 256, 128, {256}, 8, 4, 64}, Case{1, 64, 0, {20}, 2, 1, 128, 0.5},
                                         Case{2, 70, 35, {70, 131}, 4, 2, 256, 0, 2},
                                         Case{1, 9, 2, {5}, 2, 1, 16, 1, 3}),
                         testing::PrintToStringParamName());

// Sums of a few hundred terms of size one.
TEST_P(AttentionBlockOf, Float64EqualsTheReference) {
  Ring ring(GetParam(), at::kDouble);
  ring.run(*attention_kernels().front());
  expect_equal_to_reference(ring, 1e-12);
}

// As in attention_test.cpp: 6e-8 relative, amplified by the size of the scores; gradients are read next to kHeld.
TEST_P(AttentionBlockOf, Float32EqualsTheReferenceInEveryKernel) {
  for (const AttentionKernel* kernel : attention_kernels()) {
    SCOPED_TRACE(kernel->name);
    Ring ring(GetParam(), at::kFloat);
    ring.run(*kernel);
    expect_equal_to_reference(ring, 4e-6);
  }
}

// out is rounded to 2^-9 at every merge, P and dS once.
TEST_P(AttentionBlockOf, Bfloat16EqualsTheReferenceInEveryKernel) {
  for (const AttentionKernel* kernel : attention_kernels()) {
    SCOPED_TRACE(kernel->name);
    Ring ring(GetParam(), at::kBFloat16);
    ring.run(*kernel);
    expect_equal_to_reference(ring, 1.5e-2);
  }
}

TEST(AttentionBlock, TheOrderOfBlocksDoesNotMatterBeyondRounding) {
  const Case c{2, 20, 10, {33, 140}, 4, 2, 24}, turned{2, 20, 10, {140, 33}, 4, 2, 24};
  Ring ring(c, at::kDouble), other(turned, at::kDouble);
  other.foreign = {ring.foreign[1], ring.foreign[0]};
  ring.run(*attention_kernels().front());
  other.run(*attention_kernels().front());
  EXPECT_LT(distance(other.out, ring.out), 1e-13);
  EXPECT_LT(distance(other.dq, ring.dq), 1e-13);
}

TEST(AttentionBlock, MergesAsTheFormulaSays) {
  const auto q = random({2, 5, 32}, at::kDouble, 1), a = random({2, 7, 32}, at::kDouble, 2),
             b = random({2, 9, 32}, at::kDouble, 3);
  const auto first = reference::attention(q, a, 2, 1, 0.25), second = reference::attention(q, b, 2, 1, 0.25);
  const auto out = first.first.clone(), lse = first.second.clone();
  const AttentionBlockShape shape{2, 5, 9, 2, 1, 16};
  const auto workspace = at::empty({attention_block_workspace_bytes(shape, at::kDouble)}, at::kByte);
  attention_block_forward(out, lse, q, b, shape, workspace);
  const auto merged = reference::merge_attention(first, second);
  EXPECT_LT(distance(out, merged.first), 1e-13);
  EXPECT_LT(distance(lse, merged.second), 1e-13);
}

TEST(AttentionBlock, PaddingOfTheLastBlockHasNoWeightUnderVeryNegativeScores) {
  // Every score is -400, where the zeros of the padding would be e^400 times larger; nothing was held before.
  for (const auto dtype : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const double scale : {1.0, -1.0}) {
      const AttentionBlockShape shape{1, 5, 131, 1, 1, 16, scale};
      const auto q = at::full({1, 5, 16}, -5 * scale).to(dtype);
      auto kv = random({1, 131, 32}, dtype, 1);
      kv.slice(2, 0, 16).fill_(5);
      const auto workspace = at::empty({attention_block_workspace_bytes(shape, dtype)}, at::kByte);
      for (const AttentionKernel* kernel : attention_kernels()) {
        SCOPED_TRACE(std::string(kernel->name) + " " + c10::toString(dtype));
        const auto out = at::zeros({1, 5, 16}, dtype), lse = at::full({1, 1, 5}, -INFINITY).to(wide(dtype));
        attention_block_forward(out, lse, q, kv, shape, workspace, kernel);
        const auto mean = kv.slice(2, 16).to(at::kDouble).mean(1, true).expand({1, 5, 16});
        EXPECT_LT(distance(out, mean), tolerance(dtype));
        EXPECT_NEAR(lse[0][0][0].item<double>(), -400 + std::log(131.0), dtype == at::kDouble ? 1e-12 : 1e-4);
        const auto dq = at::zeros({1, 5, 16}, wide(dtype)), dkv = at::zeros({1, 131, 32}, wide(dtype));
        attention_block_backward(dq, dkv, at::ones_like(out), out, lse, q, kv, shape, workspace, kernel);
        // dv of every key: 5 queries, each with weight 1/131.
        const auto each = at::full({1, 131, 16}, 5.0 / 131, at::TensorOptions().dtype(at::kDouble));
        EXPECT_LT(distance(dkv.slice(2, 16), each), dtype == at::kDouble ? 1e-11 : 1e-2);
        EXPECT_TRUE(at::isfinite(dq).all().item<bool>());
      }
    }
  }
}

// The second case has fewer kv heads than threads: heads are computed in parts.
TEST(AttentionBlock, BitsDoNotDependOnThreadsOrOnWhatTheWorkspaceHeld) {
  for (const Case& c : {Case{2, 75, 30, {150, 20}, 6, 3, 24}, Case{1, 320, 20, {300, 129}, 2, 1, 24}})
    for (const auto dtype : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf})
      for (const AttentionKernel* kernel : attention_kernels()) {
        Ring one(c, dtype);
        at::set_num_threads(1);
        one.run(*kernel, 0);
        for (const int threads : {2, 5}) {
          Ring more(c, dtype);
          at::set_num_threads(threads);
          more.run(*kernel, NAN);
          at::set_num_threads(1);
          expect_same_bits(more.out, one.out, kernel->name);
          expect_same_bits(more.lse, one.lse, kernel->name);
          expect_same_bits(more.dq, one.dq, kernel->name);
          for (size_t i = 0; i < c.blocks.size(); ++i)
            expect_same_bits(more.d_foreign[i], one.d_foreign[i], kernel->name);
        }
      }
}

struct Arguments {
  AttentionBlockShape shape{2, 4, 6, 4, 2, 8};
  at::Tensor q = at::zeros({2, 4, 32}), kv = at::zeros({2, 6, 32}), out = at::zeros({2, 4, 32}),
             lse = at::zeros({2, 4, 4}), dq = at::zeros({2, 4, 32}), dkv = at::zeros({2, 6, 32}),
             workspace = at::empty({1 << 20}, at::kByte);
};
std::string refusal(const Arguments& a) {
  try {
    attention_block_forward(a.out, a.lse, a.q, a.kv, a.shape, a.workspace);
    attention_block_backward(a.dq, a.dkv, a.out, a.out, a.lse, a.q, a.kv, a.shape, a.workspace);
  } catch (const ShapeError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(AttentionBlock, RefusalsNameTheValueAndTheRule) {
  EXPECT_EQ(refusal({}), "accepted");
  EXPECT_EQ(refusal({.shape = {2, 4, 0, 4, 2, 8}}), "attention_block: keys is 0, it must be at least 1");
  EXPECT_THAT(refusal({.shape = {2, 4, 6, 4, 3, 8}}), testing::HasSubstr("num_kv_heads=3 does not divide num_heads=4"));
  EXPECT_THAT(refusal({.shape = {2, 4, 7, 4, 2, 8}}), testing::StartsWith("attention_block: kv is CPU float32 [2, 6"));
  EXPECT_EQ(refusal({.q = at::zeros({2, 32, 4}).transpose(1, 2)}),
            "attention_block: q is non-contiguous CPU float32 [2, 4, 32]; it must be CPU float32 [2, 4, 32] with a "
            "contiguous last dimension");
  EXPECT_THAT(refusal({.lse = at::zeros({2, 4, 4}, at::kDouble)}), testing::HasSubstr("lse is CPU float64"));
  EXPECT_THAT(refusal({.dq = at::zeros({2, 4, 32}, at::kBFloat16)}), testing::HasSubstr("dq is CPU bfloat16"));
  EXPECT_THAT(refusal({.dkv = at::zeros({2, 6, 31})}), testing::HasSubstr("dkv is CPU float32 [2, 6, 31]"));
  EXPECT_THAT(refusal({.q = at::zeros({2, 4, 32}, at::kInt)}),
              testing::HasSubstr("float64, float32, bfloat16 or float16"));
  EXPECT_THAT(refusal({.workspace = at::empty({100}, at::kByte)}),
              testing::HasSubstr("attention_block_workspace_bytes()"));
}

}  // namespace
}  // namespace trireme::ops::test
