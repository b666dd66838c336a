// Masks of a model's dropout: the rates are right, and masks of other modules, steps, sequences and heads are others.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "trireme/model/dropout.h"
#include "trireme/ops/ops.h"

namespace trireme::model {
namespace {

constexpr int64_t kSequences = 8, kTokens = 128, kWidth = 256;
constexpr double kElements = kSequences * kTokens * kWidth;

UnitTensors tensors(uint64_t seed, int64_t step, int64_t first_sequence) {
  UnitTensors t;
  t.shape = {kSequences, kTokens};
  t.random = {.active = true, .step_key = dropout_step_key(seed, step), .first_sequence = first_sequence};
  return t;
}

// [rows, columns] of ones where an element is dropped.
at::Tensor dropped(const Dropout& dropout, uint64_t seed, int64_t step, int64_t first_sequence) {
  const UnitTensors t = tensors(seed, step, first_sequence);
  const at::Tensor x = at::ones({kSequences * kTokens, kWidth}), y = at::empty_like(x),
                   keys = at::empty({kSequences * kTokens}, at::kInt);
  drop(dropout, y, x, t, {}, keys);
  EXPECT_TRUE(at::logical_or(y.eq(0), (y - 1 / (1 - dropout.p)).abs().lt(1e-6)).all().item<bool>());
  return y.eq(0).to(at::kDouble);
}

// Three standard deviations of a share.
double three_sigma(double p, double count) { return 3 * std::sqrt(p * (1 - p) / count); }

TEST(DropoutMasks, HaveTheRateInTheWholeAndInEachSequence) {
  for (const double p : {0.05, 0.1, 0.5, 0.9})
    for (const uint64_t seed : {uint64_t{1}, uint64_t{42}}) {
      const at::Tensor mask = dropped(block_dropout(3, "mlp.output", p), seed, 7, 16);
      EXPECT_NEAR(mask.mean().item<double>(), p, three_sigma(p, kElements)) << p << ' ' << seed;
      // Of rows, columns and sequences a few in a thousand may lie beyond three sigma; their variance is one.
      for (const int64_t dim : {0, 1}) {
        const at::Tensor shares = mask.mean(dim), off = (shares - p) / std::sqrt(p * (1 - p) / double(mask.size(dim)));
        EXPECT_LE(off.abs().gt(3).to(at::kDouble).mean().item<double>(), 0.01);
        EXPECT_NEAR(off.square().mean().item<double>(), 1, 4 * std::sqrt(2.0 / double(off.numel())));
      }
    }
}

// Of two masks that know nothing of each other, each with variance p (1 - p), the covariance is 0.
TEST(DropoutMasks, OfOtherModulesStepsSeedsAndSequencesAreOthers) {
  constexpr double p = 0.3;
  const Dropout one = block_dropout(3, "mlp.output", p);
  const at::Tensor mask = dropped(one, 1, 1, 0);
  EXPECT_TRUE(at::equal(mask, dropped(one, 1, 1, 0)));
  const auto expect_other = [&](const at::Tensor& other, const char* what) {
    EXPECT_NEAR(((mask - p) * (other - p)).mean().item<double>(), 0, 3 * p * (1 - p) / std::sqrt(kElements)) << what;
  };
  expect_other(dropped(block_dropout(4, "mlp.output", p), 1, 1, 0), "a block");
  expect_other(dropped(block_dropout(3, "attention.output", p), 1, 1, 0), "a branch");
  expect_other(dropped(one, 1, 2, 0), "a step");
  expect_other(dropped(one, 2, 1, 0), "a seed");
  expect_other(dropped(one, 1, 1, kSequences), "sequences");
  // Sequence 5 is the same, wherever its micro-batch begins.
  const at::Tensor later = dropped(one, 1, 1, 3);
  EXPECT_TRUE(at::equal(later.narrow(0, 2 * kTokens, kTokens), mask.narrow(0, 5 * kTokens, kTokens)));
}

TEST(DropoutMasks, OfHeadsHaveTheRateAndAreOthers) {
  constexpr double p = 0.2;
  constexpr int64_t kHeads = 8;
  const Dropout dropout = block_dropout(0, "attention.weights", p);
  const UnitTensors t = tensors(42, 1, 0);
  const at::Tensor keys = at::empty({kSequences * kTokens}, at::kInt);
  dropout_keys(keys, t.random, dropout.module, t.shape, {});
  // Equal scores, and values that say which key they are of: the output says which weights were kept.
  ops::AttentionBlockShape shape{kSequences, kTokens, kTokens, kHeads, 1, kTokens};
  shape.dropout = {.p = p, .keys = keys};
  const at::Tensor q = at::zeros({kSequences, kTokens, kHeads * kTokens}, at::kDouble),
                   kv = at::cat({at::zeros({kTokens, kTokens}, at::kDouble), at::eye(kTokens, at::kDouble)}, 1)
                            .expand({kSequences, kTokens, 2 * kTokens})
                            .contiguous(),
                   out = at::zeros_like(q),
                   lse = at::full({kSequences, kHeads, kTokens}, -std::numeric_limits<double>::infinity(), at::kDouble),
                   workspace = at::empty({ops::attention_block_workspace_bytes(shape, at::kDouble)}, at::kByte);
  ops::attention_block_forward(out, lse, q, kv, shape, workspace);
  const at::Tensor mask = out.view({kSequences * kTokens, kHeads, kTokens}).eq(0).to(at::kDouble);
  EXPECT_NEAR(mask.mean().item<double>(), p, three_sigma(p, double(mask.numel())));
  for (int64_t h = 0; h < kHeads; ++h) {
    const double weights = double(mask.numel()) / kHeads;
    EXPECT_NEAR(mask.select(1, h).mean().item<double>(), p, three_sigma(p, weights)) << h;
    if (h > 0)
      EXPECT_NEAR((mask.select(1, 0) * mask.select(1, h)).mean().item<double>(), p * p, three_sigma(p * p, weights));
  }
}

TEST(DropoutMasks, AreNotThereInEvaluation) {
  UnitTensors t = tensors(1, 1, 0);
  t.random.active = false;
  const at::Tensor x = at::randn({kSequences * kTokens, kWidth}), y = at::empty_like(x);
  drop(block_dropout(0, "mlp.output", 0.5), y, x, t, {}, at::empty({kSequences * kTokens}, at::kInt));
  EXPECT_TRUE(at::equal(x, y));
}

}  // namespace
}  // namespace trireme::model
