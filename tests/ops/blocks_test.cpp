// Matrices in blocks of 4 bits. Whether they are bitsandbytes' to the bit is judged by
// tests/checkpoint/blocks_judge.py.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "trireme/base/error.h"
#include "trireme/ops/blocks/codes.h"
#include "trireme/ops/blocks/quantize.h"

namespace trireme::ops {
namespace {

using base::BlockFormat;

Quantized quantized(BlockFormat format, const std::vector<float>& values, int64_t piece) {
  Quantizer quantizer(format, std::ssize(values));
  for (int64_t begin = 0; begin < std::ssize(values); begin += piece)
    quantizer.add(begin, std::min(piece, std::ssize(values) - begin), values.data() + begin);
  return quantizer.finish();
}

std::vector<float> normal_values(int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

// What bitsandbytes 0.50.1 makes of these values.
TEST(Blocks, HaveTheBytesOfBitsandbytes) {
  const std::vector<float> values = {0.f, -0.f, 1e-6f, -1e-6f, .5f, 1.f, -1.f};
  EXPECT_EQ(quantized(BlockFormat::fp4, values, 64).codes, (std::vector<uint8_t>{0x00, 0x80, 0x53, 0xb0}));
  EXPECT_EQ(quantized(BlockFormat::nf4, values, 64).codes, (std::vector<uint8_t>{0x77, 0x77, 0xcf, 0x07}));
}

TEST(Blocks, OfAMatrixThatArrivesInPiecesAreThoseOfTheWhole) {
  const std::vector<float> values = normal_values(64 * 700 + 13, 1);
  for (const base::BlockFormatTraits& row : base::kBlockFormats) {
    if (!row.blocks()) continue;
    const Quantized whole = quantized(row.format, values, std::ssize(values)),
                    pieces = quantized(row.format, values, 640);
    EXPECT_EQ(whole.codes, pieces.codes) << row.name;
    EXPECT_EQ(whole.scales, pieces.scales) << row.name;
    EXPECT_EQ(whole.nested_codes, pieces.nested_codes) << row.name;
    EXPECT_EQ(whole.nested_scales, pieces.nested_scales) << row.name;
    EXPECT_EQ(whole.scales.empty(), row.nested);
  }
}

TEST(Blocks, AreAsCloseAsTheirCodes) {
  const std::vector<float> values = normal_values(64 * 512, 2);
  for (const base::BlockFormatTraits& row : base::kBlockFormats) {
    if (!row.blocks()) continue;
    std::vector<float> back(values.size());
    dequantize(quantized(row.format, values, 64), 0, std::ssize(values), back.data());
    double squares = 0, error = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      squares += double(values[i]) * values[i];
      error += std::pow(double(values[i]) - back[i], 2);
    }
    EXPECT_LT(std::sqrt(error / squares), row.code == "nf4" ? 0.095 : 0.125) << row.name;
  }
}

TEST(Blocks, RefuseValuesThatAreNotFinite) {
  for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<float> values = normal_values(200, 3);
    values[150] = bad;
    EXPECT_THROW(quantized(BlockFormat::nf4, values, 64), ShapeError);
  }
}

TEST(Blocks, TheDynamicMapIsAscendingAndHasBothEnds) {
  for (const bool is_signed : {true, false}) {
    const EightBitCode& code = dynamic_code(is_signed);
    EXPECT_TRUE(std::is_sorted(code.begin(), code.end()));
    EXPECT_EQ(code[255], 1);
    EXPECT_EQ(dynamic_byte(is_signed, 2), 255);
    EXPECT_NEAR(code[dynamic_byte(is_signed, 0)], 0, 3e-5);  // its table has no place for 0 itself
  }
}

}  // namespace
}  // namespace trireme::ops
