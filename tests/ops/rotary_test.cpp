#include <gtest/gtest.h>

#include <cmath>

#include "tests/ops/reference.h"
#include "tests/ops/support.h"
#include "trireme/base/error.h"
#include "trireme/ops/ops.h"

namespace trireme::ops::test {
namespace {

constexpr int64_t kHeads = 4, kKvHeads = 2, kRotaryBatch = 2;
struct RotarySize {
  int64_t sequence, head_dim;
};
std::vector<double> frequencies(double theta, int64_t head_dim) {
  std::vector<double> all;
  for (int64_t i = 0; i < head_dim; i += 2)
    all.push_back(std::pow(theta, -static_cast<double>(i) / static_cast<double>(head_dim)));
  return all;
}

const RotarySize kRotarySizes[] = {{1, 2}, {5, 14}, {3, 64}, {7, 80}};

TEST(Rotary, TableAgreesWithTheReference) {
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    for (const int64_t first : {0, 1000, 131022}) {
      const auto cosine = unwritten({50, 7}, dtype), sine = unwritten({50, 7}, dtype);
      const auto f = frequencies(10000.0, 14);
      rotary_table(cosine, sine, f, 1.25, first);
      const auto expected = reference::rotary_table(at::tensor(f, at::kDouble), 1.25, 50, first);
      expect_close(cosine, expected.first, "cosine");
      expect_close(sine, expected.second, "sine");
    }
  }
}

TEST(Rotary, AgreesWithTheReferenceAndLeavesValuesAlone) {
  for_each_case([](at::ScalarType dtype) {
    for (const auto& [sequence, head_dim] : kRotarySizes) {
      const int64_t width = (kHeads + 2 * kKvHeads) * head_dim;
      const auto before = random({kRotaryBatch * sequence, width}, dtype, 1);
      const auto cosine = unwritten({sequence, head_dim / 2}, wide(dtype)),
                 sine = unwritten(cosine.sizes(), wide(dtype));
      rotary_table(cosine, sine, frequencies(10000.0, head_dim), 1.0, 3);
      const auto reference = [&](const std::vector<at::Tensor>& in) {
        return reference::rotary(in[0], cosine.to(at::kDouble), sine.to(at::kDouble), kHeads, kKvHeads);
      };
      const auto qkv = before.clone();
      rotary_forward(qkv, cosine, sine, kHeads, kKvHeads);
      expect_close(qkv, reference({before.to(at::kDouble)}), "qkv");
      const int64_t rotated = (kHeads + kKvHeads) * head_dim;
      expect_same_bits(qkv.narrow(1, rotated, width - rotated).contiguous(),
                       before.narrow(1, rotated, width - rotated).contiguous(), "v");

      const auto d_out = random(before.sizes(), dtype, 2), dqkv = d_out.clone();
      rotary_backward(dqkv, cosine, sine, kHeads, kKvHeads);
      expect_close(dqkv, autograd(reference, {before}, d_out)[0], "dqkv");
    }
  });
}

TEST(Rotary, BackwardAgreesWithFiniteDifferences) {
  const auto qkv = random({6, (2 + 2) * 6}, at::kDouble, 1), d_out = random(qkv.sizes(), at::kDouble, 2);
  const auto cosine = unwritten({3, 3}, at::kDouble), sine = unwritten({3, 3}, at::kDouble);
  rotary_table(cosine, sine, frequencies(100.0, 6), 1.0, 0);
  const auto ours = [&](const std::vector<at::Tensor>& in) {
    const auto rotated = in[0].clone();
    rotary_forward(rotated, cosine, sine, 2, 1);
    return rotated;
  };
  const auto dqkv = d_out.clone();
  rotary_backward(dqkv, cosine, sine, 2, 1);
  EXPECT_LE(relative_error(dqkv, finite_differences(ours, {qkv}, d_out)[0]), 1e-8);
}

TEST(Rotary, TakesPositionsOfTheirOwnFromTheTables) {
  const auto cosine = unwritten({5, 3}, at::kFloat), sine = unwritten({5, 3}, at::kFloat);
  rotary_table(cosine, sine, frequencies(100.0, 6), 1.0, 0);
  const auto before = random({7, (2 + 2) * 6}, at::kFloat, 1);
  const at::Tensor ids = at::tensor({0, 1, 2, 0, 4, 0, 1}, at::kLong), rotated = before.clone();
  rotary_forward(rotated, cosine, sine, 2, 1, ids);
  for (int64_t t = 0; t < 7; ++t) {
    const auto row = before.narrow(0, t, 1).clone();
    const int64_t position = ids[t].item<int64_t>();
    rotary_forward(row, cosine.narrow(0, position, 1), sine.narrow(0, position, 1), 2, 1);
    EXPECT_TRUE(at::equal(rotated.narrow(0, t, 1), row)) << t;
  }
  rotary_backward(rotated, cosine, sine, 2, 1, ids);
  EXPECT_LE(relative_error(rotated, before), 1e-6);  // the rotation back
  ids[4] = 5;
  try {
    rotary_forward(rotated, cosine, sine, 2, 1, ids);
    FAIL() << "no error";
  } catch (const ShapeError& error) {
    EXPECT_STREQ(error.what(), "rotary_forward: position_ids[4] = 5 is outside the tables of 5 positions");
  }
}

TEST(Rotary, HasTheSameBitsOnAnyNumberOfThreads) {
  const auto before = random({2 * 200, 4 * 20}, at::kBFloat16, 1);
  const auto cosine = unwritten({200, 10}, at::kFloat), sine = unwritten({200, 10}, at::kFloat);
  rotary_table(cosine, sine, frequencies(10000.0, 20), 1.0, 0);
  expect_same_on_all_threads([&] {
    const auto qkv = before.clone();
    rotary_forward(qkv, cosine, sine, 2, 1);
    return std::vector{qkv};
  });
}

TEST(Rotary, RefusesRowsThatAreNoWholeSequences) {
  const auto cosine = at::zeros({3, 4}), sine = at::zeros({3, 4});
  try {
    rotary_forward(at::zeros({7, 24}), cosine, sine, 1, 1);
    FAIL() << "no error";
  } catch (const ShapeError& error) {
    EXPECT_STREQ(error.what(),
                 "rotary_forward: qkv has 7 rows, which is not a multiple of the sequence length 3 of cosine");
  }
}

TEST(Rotary, RefusesTheWrongNumberOfFrequenciesAndPositionsWithoutAFloat) {
  const auto cosine = at::zeros({3, 4}), sine = at::zeros({3, 4});
  const auto refusal = [&](int64_t head_dim, int64_t first) -> std::string {
    try {
      rotary_table(cosine, sine, frequencies(100.0, head_dim), 1.0, first);
    } catch (const ShapeError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal(10, 0), "rotary_table: 5 inverse frequencies for cosine of [3, 4]; there must be one per column");
  EXPECT_EQ(refusal(8, (1 << 24) - 2), "rotary_table: positions 16777214 to 16777216 must be in 0 to 16777215");
  EXPECT_EQ(refusal(8, (1 << 24) - 3), "");
}

}  // namespace
}  // namespace trireme::ops::test
