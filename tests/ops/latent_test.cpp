// The latent of the Free Transformer: the paper's vectors, and autograd over all codes.
#include "trireme/ops/latent/latent.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "trireme/base/error.h"

namespace trireme::ops {
namespace {

double divergence_of_bits(const at::Tensor& logits) {
  const at::Tensor sums = at::empty({3}, at::kDouble);
  latent_divergence(sums, logits, at::zeros({logits.size(0)}, at::kLong), 0);
  return sums[0].item<double>();
}

at::Tensor drawn(const at::Tensor& logits) {
  const at::Tensor codes = at::empty({logits.size(0)}, at::kLong);
  latent_sample(codes, logits, at::arange(logits.size(0), at::kInt) * 1103515245);
  return codes;
}

TEST(LatentDivergence, IsThatOfTheFactorsInNats) {
  const auto logits = [](double value, int64_t bits) { return at::full({1, bits}, value, at::kDouble); };
  EXPECT_EQ(divergence_of_bits(logits(0, 16)), 0);
  for (const double sign : {-1.0, 1.0}) {
    EXPECT_NEAR(divergence_of_bits(logits(sign * 1e3, 16)), 11.0904, 5e-5);
    EXPECT_NEAR(divergence_of_bits(logits(sign * std::log(9.0), 1)), 0.36806, 5e-6);
  }
}

TEST(LatentDivergence, CountsWhatExceedsTheFreeBitsTokenByToken) {
  const double half_a_bit = 0.346574, nine = 0.36806;
  const at::Tensor logits = at::tensor({0.0, std::log(9.0), std::log(9.0)}, at::kDouble).view({3, 1}),
                   targets = at::tensor({1, 2, -100}, at::kLong), sums = at::empty({3}, at::kDouble);
  latent_divergence(sums, logits, targets, half_a_bit);
  EXPECT_NEAR(sums[0].item<double>(), nine, 5e-6);
  EXPECT_NEAR(sums[1].item<double>(), nine - half_a_bit, 5e-6);
  EXPECT_EQ(sums[2].item<double>(), 1);
  const at::Tensor gradient = at::zeros_like(logits);
  latent_divergence_backward(gradient, logits, targets, half_a_bit, 2);
  EXPECT_NEAR(gradient[1].item<double>(), 2 * 0.9 * 0.1 * std::log(9.0), 1e-12);
  EXPECT_EQ(gradient[0].item<double>(), 0);
  EXPECT_EQ(gradient[2].item<double>(), 0);
}

TEST(LatentSample, PutsTheFirstBitLowestAndDrawsByTheLogits) {
  const at::Tensor sure = at::tensor({50.0, -50.0, 50.0}, at::kDouble).view({1, 3});
  EXPECT_EQ(drawn(sure).item<int64_t>(), 5);
  EXPECT_EQ(drawn(at::full({1, 64}, 50.0, at::kDouble)).item<int64_t>(), -1);  // all 64 bits
  const at::Tensor logits =
                       at::tensor({std::log(9.0), 0.0, -std::log(3.0)}, at::kDouble).expand({20000, 3}).contiguous(),
                   codes = drawn(logits);
  const double share[] = {0.9, 0.5, 0.25};
  for (int h = 0; h < 3; ++h)
    EXPECT_NEAR(at::bitwise_and(at::bitwise_right_shift(codes, h), 1).to(at::kDouble).mean().item<double>(), share[h],
                3 * std::sqrt(share[h] * (1 - share[h]) / 20000));
}

TEST(LatentTable, HasTheGradientOfTheSumOverAllCodes) {
  constexpr int64_t kTokens = 7, kBits = 6, kCodes = 64;
  at::manual_seed(1);
  const at::Tensor logits = at::randn({kTokens, kBits}, at::kDouble),
                   scores = at::randn({kTokens, kCodes}, at::kDouble),
                   bit = at::bitwise_and(at::bitwise_right_shift(at::arange(kCodes).unsqueeze(1), at::arange(kBits)), 1)
                             .to(at::kDouble),
                   p = logits.sigmoid();
  // G_d by its definition, and d G_d / d L_h = G_d (bit_h(d) - p_h).
  const at::Tensor g = (bit * p.unsqueeze(1) + (1 - bit) * (1 - p.unsqueeze(1))).prod(2);
  EXPECT_TRUE(at::allclose(g.sum(1), at::ones({kTokens}, at::kDouble), 1e-14, 1e-14));
  const at::Tensor expected = ((g * scores).unsqueeze(2) * (bit - p.unsqueeze(1))).sum(1);
  for (const int64_t parts : {1, 2, 8, 64}) {
    at::Tensor sum = at::zeros_like(logits);
    for (int64_t part = 0; part < parts; ++part)
      latent_table_backward(sum, logits,
                            scores.narrow(1, part * kCodes / parts, kCodes / parts).clone(at::MemoryFormat::Contiguous),
                            part * kCodes / parts);
    EXPECT_TRUE(at::allclose(sum, expected, 1e-13, 1e-14)) << parts << " parts";
  }
  const at::Tensor narrow = at::zeros({kTokens, kBits}, at::kFloat);
  latent_table_backward(narrow, logits.to(at::kFloat), scores.to(at::kFloat), 0);
  EXPECT_TRUE(at::allclose(narrow.to(at::kDouble), expected, 1e-4, 1e-6));
  EXPECT_THROW(latent_table_backward(narrow, narrow, at::zeros({kTokens, 6}, at::kFloat), 0), ShapeError);
}

TEST(LatentSigns, AreTwiceTheBitsLessOneAndPassGradientsThrough) {
  const at::Tensor codes = at::tensor({5, 2}, at::kLong), signs = at::empty({2, 3}, at::kBFloat16);
  latent_signs(signs, codes);
  EXPECT_TRUE(at::equal(signs.to(at::kFloat), at::tensor({1.f, -1.f, 1.f, -1.f, 1.f, -1.f}).view({2, 3})));
  const at::Tensor logits = at::zeros({2, 3}, at::kFloat), gradient = at::ones_like(logits),
                   d_signs = at::full_like(logits, 3);
  latent_signs_backward(gradient, logits, d_signs);
  EXPECT_TRUE(at::equal(gradient, at::full_like(logits, 1 + 2 * 0.25 * 3)));
}

}  // namespace
}  // namespace trireme::ops
