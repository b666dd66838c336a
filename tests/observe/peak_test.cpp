#include "trireme/observe/peak.h"

#include <gtest/gtest.h>

namespace trireme::observe {
namespace {

// Width 256, 6 blocks, 8 heads of 32, N = 4.85e6; 256 keys a block.
constexpr FlopsShape kSmall{.matmul_parameters = 4'850'000, .heads = 8, .head_dim = 32, .attended_keys = 6 * 256};

TEST(Peak, CountsSixPerWeightAndTwelvePerAttendedKey) {
  EXPECT_DOUBLE_EQ(training_flops_per_token(kSmall), 6 * 4.85e6 + 12.0 * 6 * 8 * 32 * 256);
}

// GPT-3 in Megatron's form for one token: 72 L h^2 (1 + s / (6 h)) without the head.
TEST(Peak, AgreesWithMegatronsFormula) {
  const double h = 12288, layers = 96, s = 2048;
  const FlopsShape gpt3{.matmul_parameters = static_cast<int64_t>(12 * layers * h * h),
                        .heads = 96,
                        .head_dim = 128,
                        .attended_keys = layers * s};
  EXPECT_NEAR(training_flops_per_token(gpt3) / (72 * layers * h * h * (1 + s / (6 * h))), 1, 1e-12);
}

TEST(Peak, FractionIsRateTimesWorkOverPeak) { EXPECT_DOUBLE_EQ(peak_fraction(1000, 3e7, 1e11), 0.3); }

}  // namespace
}  // namespace trireme::observe
