// Every printed figure of the textbooks that Trireme's users learn from, by the functions of plan/arithmetic.h.
#include "trireme/plan/arithmetic.h"

#include <gtest/gtest.h>

#include <cmath>

namespace trireme::plan {
namespace {

constexpr double kGiga = 1e9, kBillion = 1e9;

double gigabytes(double parameters, const StateBytes& bytes) { return parameters * bytes.sum() / kGiga; }

TEST(Arithmetic, SevenBillionParametersInThreeRegimes) {
  EXPECT_DOUBLE_EQ(gigabytes(7 * kBillion, kFloat32Adam), 112);  // 28 + 28 + 56
  EXPECT_DOUBLE_EQ(7 * kFloat32Adam.weights, 28);
  EXPECT_DOUBLE_EQ(7 * kFloat32Adam.optimizer, 56);
  EXPECT_DOUBLE_EQ(gigabytes(7 * kBillion, kBfloat16WithFloat32Moments), 84);
  EXPECT_DOUBLE_EQ(gigabytes(7 * kBillion, {}), 112);  // with masters
  EXPECT_DOUBLE_EQ(gigabytes(7 * kBillion, {2, 4, 12}), 126);  // gradients summed in fp32
  EXPECT_DOUBLE_EQ(gigabytes(13 * kBillion, kBfloat16WithFloat32Moments), 156);
  EXPECT_DOUBLE_EQ(zero_bytes(3, 13 * kBillion, 4, kBfloat16WithFloat32Moments) / kGiga, 39);
}

TEST(Arithmetic, StagesOfZeroOnFourRanks) {
  const double expected[] = {112, 70, 49, 28};
  for (int stage = 0; stage < 4; ++stage)
    EXPECT_DOUBLE_EQ(zero_bytes(stage, 7 * kBillion, 4, kFloat32Adam) / kGiga, expected[stage]) << stage;
}

TEST(Arithmetic, TheZeroPapersFigureOne) {
  const double expected[] = {120, 31.4, 16.6, 1.9};  // 7.5 billion parameters on 64 ranks
  for (int stage = 0; stage < 4; ++stage)
    EXPECT_NEAR(zero_bytes(stage, 7.5 * kBillion, 64) / kGiga, expected[stage], 0.05) << stage;
}

// "Saves 4 times, 8 times, N times": true for many ranks and 16 bytes a parameter; with 8 bytes of optimizer state
// stage 1 saves 2 times and stage 2 four times.
TEST(Arithmetic, SavingsOfZeroAreThoseOfManyRanks) {
  EXPECT_NEAR(zero_saving(1, 1e6), 4, 1e-4);
  EXPECT_NEAR(zero_saving(2, 1e6), 8, 1e-4);
  EXPECT_DOUBLE_EQ(zero_saving(3, 16), 16);
  EXPECT_NEAR(zero_saving(1, 1e6, kFloat32Adam), 2, 1e-4);
  EXPECT_NEAR(zero_saving(2, 1e6, kFloat32Adam), 4, 1e-4);
  EXPECT_DOUBLE_EQ(zero_saving(1, 4, kFloat32Adam), 1.6);
}

TEST(Arithmetic, ShardedModelsOfTheLitgptGuide) {
  EXPECT_DOUBLE_EQ(zero_bytes(3, 1 * kBillion, 8, kFloat32Adam) / kGiga, 2);  // 16 GB on 8 devices
  EXPECT_DOUBLE_EQ(zero_bytes(3, 7 * kBillion, 32, kFloat32Adam) / kGiga, 3.5);
}

// Llama 2 7B by LoRA on 4 devices "about 20 GB", 70B on 8 "about 70 GB", Llama 3 405B on 64 "about 60 GB" a device.
TEST(Arithmetic, WhatTheGuideAssumedOfAdapters) {
  const double frozen7 = adapter_tuning_bytes(6.74 * kBillion, 16, 4.2e6) / kGiga;
  EXPECT_NEAR(frozen7, 13.5, 0.1);  // on every device; the other 6.5 GB are activations
  const double frozen70 = adapter_tuning_bytes(68.98 * kBillion, 16, 16.4e6) / kGiga;
  EXPECT_NEAR(frozen70, 138.2, 0.2);  // 17 GB a device if sharded over 8, so "70 GB" counts more than the model
  EXPECT_NEAR(frozen70 / 8, 17.3, 0.1);
  const double frozen405 = adapter_tuning_bytes(405.85 * kBillion, 16, 126e6) / kGiga;
  EXPECT_NEAR(frozen405 / 64, 12.7, 0.1);
  EXPECT_NEAR(adapter_tuning_bytes(68.98 * kBillion, kNestedNf4Bits, 16.4e6) / kGiga, 35.8, 0.1);  // QLoRA, one device
  EXPECT_DOUBLE_EQ(adapter_parameters(4096, 4096, 8), 65536);
}

TEST(Arithmetic, OperationsOfATraining) {
  const TrainingFlops f = compute_training_flops(7 * kBillion, 512, 4096, 1000);
  EXPECT_DOUBLE_EQ(f.tokens_per_step, 512 * 4096);
  EXPECT_DOUBLE_EQ(f.total_flops, 6 * 7e9 * 512 * 4096 * 1000);
  EXPECT_DOUBLE_EQ(f.pflops() * 1e15, f.total_flops);
  EXPECT_DOUBLE_EQ(chinchilla_tokens(7 * kBillion), 140 * kBillion);
}

TEST(Arithmetic, ChinchillasBudget) {
  const Chinchilla best = chinchilla_optimal(5.76e23);  // Gopher's
  EXPECT_NEAR(best.parameters / kBillion, 69, 0.5);
  EXPECT_NEAR(best.tokens / 1e12, 1.39, 0.01);
  EXPECT_NEAR(best.loss, 1.93, 0.02);
  EXPECT_NEAR(6 * best.parameters * best.tokens / 5.76e23, 1, 1e-12);
}

TEST(Arithmetic, TimeAndMoney) {
  // 7B on 140B tokens, 8 H100 at 40 %: 5.88e21 operations.
  const double days = training_days(6 * 7e9 * 140e9, 8, 989e12, 0.4);
  EXPECT_NEAR(days, 21.5, 0.05);
  EXPECT_DOUBLE_EQ(training_cost(10, 8, 2.5), 4800);
  EXPECT_DOUBLE_EQ(cost_per_sample(3.6, 2, 4), 5e-4);
  EXPECT_NEAR(checkpoint_interval(50, 86400), 2939, 1);
}

TEST(Arithmetic, KorthikantisTable) {
  // GPT-3: s 2048, b 1, h 12288, a 96, t 8.
  const LayerShape gpt3{.sequence = 2048, .micro_batch = 1, .hidden = 12288, .heads = 96, .tensor_parallel = 8};
  const double sbh = 2048.0 * 12288;
  EXPECT_DOUBLE_EQ(activation_bytes({2048, 1, 12288, 96}), sbh * (34 + 5 * 96 * 2048.0 / 12288));
  EXPECT_DOUBLE_EQ(activation_bytes(gpt3), sbh * (10 + 24.0 / 8 + 5 * 96 * 2048.0 / (12288 * 8)));
  LayerShape with_sequence = gpt3;
  with_sequence.sequence_parallel = true;
  EXPECT_DOUBLE_EQ(activation_bytes(with_sequence, ActivationsKept::selective), 34 * sbh / 8);
  EXPECT_DOUBLE_EQ(activation_bytes(gpt3, ActivationsKept::inputs), 2 * sbh);
}

TEST(Arithmetic, RingsPipelinesAndCaches) {
  EXPECT_DOUBLE_EQ(ring_all_reduce_seconds(4, 28e9, 50e9), 2 * 0.75 * 28 / 50);
  EXPECT_DOUBLE_EQ(ring_all_reduce_seconds(1, 28e9, 50e9), 0);
  EXPECT_DOUBLE_EQ(bubble_fraction(4, 4), 3.0 / 7);
  EXPECT_DOUBLE_EQ(bubble_fraction(4, 32), 3.0 / 35);
  EXPECT_DOUBLE_EQ(cache_bytes_per_token(32, 8, 128, 2), 131072);  // Llama 3 8B
  EXPECT_NEAR(tokens_that_hide_gathers(2, 0.5 * 989e12, 50e9), 9890, 1);
}

}  // namespace
}  // namespace trireme::plan
