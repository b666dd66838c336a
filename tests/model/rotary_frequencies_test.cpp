#include "trireme/model/rotary_frequencies.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "trireme/base/error.h"

namespace trireme::model {
namespace {

using Type = RopeScaling::Type;

// Published check values have 10 digits; ours are float32.
void expect_value(const std::vector<double>& got, size_t i, double want, double absolute = 0) {
  EXPECT_NEAR(got.at(i), want, std::max(absolute, 1.5e-6 * want)) << "inverse frequency " << i;
}

TEST(RotaryFrequencies, AreThetaToTheMinus2iOverDWithoutScaling) {
  const auto got = rotary_frequencies(10000, 64, {});
  ASSERT_EQ(got.size(), 32U);
  for (size_t i = 0; i < got.size(); ++i) expect_value(got, i, std::pow(10000.0, -static_cast<double>(i) / 32));
  const auto linear = rotary_frequencies(10000, 64, {.type = Type::linear, .factor = 8});
  for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(linear[i], got[i] / 8);
}

TEST(RotaryFrequencies, OfLlama31And32HaveTheirKnownValues) {
  const auto eight = rotary_frequencies(5e5, 128, {.type = Type::llama3, .factor = 8});
  for (const auto& [i, want] : std::vector<std::pair<size_t, double>>{{1, 0.8146172339},
                                                                      {28, 0.0032114460},
                                                                      {29, 0.0021665708},
                                                                      {30, 0.0013718936},
                                                                      {32, 0.0005248462},
                                                                      {34, 0.0001785078},
                                                                      {35, 9.55621e-05},
                                                                      {63, 3.069e-07}})
    expect_value(eight, i, want, i == 63 ? 5e-11 : 5e-10);
  const auto one = rotary_frequencies(5e5, 64, {.type = Type::llama3, .factor = 32});
  for (const auto& [i, want] : std::vector<std::pair<size_t, double>>{{1, 0.6636012377},
                                                                      {14, 0.003211446},
                                                                      {15, 0.0012905479},
                                                                      {16, 0.0004295568},
                                                                      {17, 9.70829e-05},
                                                                      {31, 9.42e-08}})
    expect_value(one, i, want, i == 31 ? 5e-11 : 5e-10);
}

TEST(RotaryFrequencies, OfYarnAreUnchangedFastAndStretchedSlow) {
  const RopeScaling yarn{.type = Type::yarn, .factor = 4, .original_max_position_embeddings = 32768};
  const auto plain = rotary_frequencies(1e6, 128, {}), got = rotary_frequencies(1e6, 128, yarn);
  // dim(32) = 23.6 and dim(1) = 39.6 of 64.
  for (size_t i = 0; i <= 23; ++i) EXPECT_EQ(got[i], plain[i]);
  for (size_t i = 40; i < 64; ++i) expect_value(got, i, plain[i] / 4);
  for (size_t i = 24; i < 40; ++i) {
    const double ramp = (static_cast<double>(i) - 23) / 17;
    expect_value(got, i, plain[i] / 4 * ramp + plain[i] * (1 - ramp));
  }
}

TEST(RotaryFrequencies, OnlyYarnHasAnAttentionFactor) {
  EXPECT_EQ(rotary_attention_factor({}), 1);
  EXPECT_EQ(rotary_attention_factor({.type = Type::llama3, .factor = 8}), 1);
  EXPECT_DOUBLE_EQ(rotary_attention_factor({.type = Type::yarn, .factor = 4}), 0.1 * std::log(4.0) + 1);
  EXPECT_EQ(rotary_attention_factor({.type = Type::yarn, .factor = 4, .attention_factor = 1.5}), 1.5);
  EXPECT_DOUBLE_EQ(rotary_attention_factor({.type = Type::yarn, .factor = 40, .mscale = 0.7, .mscale_all_dim = 1}),
                   (0.07 * std::log(40.0) + 1) / (0.1 * std::log(40.0) + 1));
}

std::string refusal(double theta, int64_t head_dim, const RopeScaling& scaling) {
  try {
    rotary_frequencies(theta, head_dim, scaling);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(RotaryFrequencies, RefusalsNameTheNumberAndTheRule) {
  EXPECT_EQ(refusal(1e4, 64, {}), "accepted");
  EXPECT_EQ(refusal(1e4, 63, {}), "rotary positions: head_dim is 63, it must be even: elements turn in pairs");
  EXPECT_EQ(refusal(1, 64, {}), "rotary positions: rope_theta is 1, it must be above 1");
  EXPECT_EQ(refusal(1e4, 64, {.type = Type::linear, .factor = 0}),
            "rotary positions: factor is 0, it must be at least 1");
  EXPECT_EQ(refusal(1e4, 64, {.type = Type::llama3, .factor = 2, .low_freq_factor = 4}),
            "rotary positions: high_freq_factor is 4, it must be above low_freq_factor");
  EXPECT_EQ(refusal(1e4, 64, {.type = Type::yarn, .factor = 2, .beta_fast = 0.5}),
            "rotary positions: beta_fast is 0.5, it must be at least beta_slow");
}

}  // namespace
}  // namespace trireme::model
