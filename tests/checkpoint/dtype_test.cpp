#include "trireme/checkpoint/dtype.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "trireme/base/error.h"

namespace trireme::checkpoint {
namespace {

const Dtype kFloats[] = {Dtype::f64, Dtype::f32, Dtype::f16, Dtype::bf16};

/// One element through convert(), as bits.
template <class From, class To>
To convert_one(From value, Dtype from, Dtype to) {
  To result{};
  convert(&value, from, &result, to, 1);
  return result;
}

TEST(Dtype, EverySixteenBitValueSurvivesTheWayThroughWiderTypes) {
  for (const Dtype narrow : {Dtype::f16, Dtype::bf16}) {
    for (uint32_t bits = 0; bits < 65536; ++bits) {
      const auto value = static_cast<uint16_t>(bits);
      const auto wide = convert_one<uint16_t, double>(value, narrow, Dtype::f64);
      const auto back = convert_one<double, uint16_t>(wide, Dtype::f64, narrow);
      if (std::isnan(wide)) {
        EXPECT_TRUE(std::isnan(convert_one<uint16_t, float>(back, narrow, Dtype::f32)));
      } else {
        ASSERT_EQ(back, value) << dtype_name(narrow);
        ASSERT_EQ((convert_one<float, uint16_t>(static_cast<float>(wide), Dtype::f32, narrow)), value);
      }
    }
  }
}

TEST(Dtype, RoundingFromFloat32EqualsLibTorch) {
  std::mt19937 random(1);
  for (int i = 0; i < 2'000'000; ++i) {
    uint32_t bits = static_cast<uint32_t>(random());
    if (i % 4 == 0) bits &= 0xffff8000u;  // halfway cases of bf16
    if (i % 4 == 1) bits = (bits & 0x8ffff000u) | 0x38000000u;  // f16's range, halfway cases among them
    if (i % 4 == 2) bits = (bits & 0x83ffffffu) | 0x30000000u;  // f16's subnormals
    const float value = std::bit_cast<float>(bits);
    if (std::isnan(value)) continue;
    ASSERT_EQ((convert_one<float, uint16_t>(value, Dtype::f32, Dtype::bf16)), at::BFloat16(value).x) << value;
    ASSERT_EQ((convert_one<float, uint16_t>(value, Dtype::f32, Dtype::f16)), at::Half(value).x) << value;
  }
}

TEST(Dtype, Float64RoundsToSixteenBitsOnce) {
  // Just above halfway between 1 and the next bf16: rounding to float32 first would lose the "above".
  EXPECT_EQ((convert_one<double, uint16_t>(1 + 0x1p-8 + 0x1p-40, Dtype::f64, Dtype::bf16)), 0x3f81);
  EXPECT_EQ((convert_one<double, uint16_t>(1 + 0x1p-8, Dtype::f64, Dtype::bf16)), 0x3f80);
  EXPECT_EQ((convert_one<double, uint16_t>(-(1 + 0x1p-11 + 0x1p-50), Dtype::f64, Dtype::f16)), 0xbc01);
  EXPECT_EQ((convert_one<double, uint16_t>(0x1p-25 + 0x1p-60, Dtype::f64, Dtype::f16)), 0x0001);
  EXPECT_EQ((convert_one<double, uint16_t>(0x1p-25, Dtype::f64, Dtype::f16)), 0x0000);
  EXPECT_EQ((convert_one<double, uint16_t>(1e300, Dtype::f64, Dtype::bf16)), 0x7f80);
  EXPECT_EQ((convert_one<double, uint16_t>(-1e-300, Dtype::f64, Dtype::f16)), 0x8000);
}

TEST(Dtype, NanAndInfinityStayWhatTheyAre) {
  for (const Dtype from : {Dtype::f64, Dtype::f32}) {
    for (const Dtype to : kFloats) {
      const double specials[] = {NAN, INFINITY, -INFINITY};
      for (const double special : specials) {
        double narrow = 0, back = 0;
        convert(&special, Dtype::f64, &narrow, from, 1);
        double target = 0;
        convert(&narrow, from, &target, to, 1);
        convert(&target, to, &back, Dtype::f64, 1);
        EXPECT_TRUE(std::isnan(special) ? std::isnan(back) : back == special) << dtype_name(from) << dtype_name(to);
      }
    }
  }
}

TEST(Dtype, IntegersAreCarriedAndNeverConverted) {
  const std::vector<int64_t> values = {1, -5, INT64_MAX};
  std::vector<int64_t> copy(3);
  convert(values.data(), Dtype::i64, copy.data(), Dtype::i64, 3);
  EXPECT_EQ(copy, values);
  EXPECT_FALSE(convertible(Dtype::i64, Dtype::f64));
  EXPECT_THROW(convert(values.data(), Dtype::i64, copy.data(), Dtype::f64, 3), ShapeError);
}

TEST(Dtype, AWiderFloatHoldsANarrowerOneAndHalvesDoNotHoldEachOther) {
  EXPECT_TRUE(holds(Dtype::f64, Dtype::f32) && holds(Dtype::f32, Dtype::bf16) && holds(Dtype::f32, Dtype::f16));
  EXPECT_TRUE(holds(Dtype::bf16, Dtype::bf16) && holds(Dtype::u8, Dtype::u8));
  EXPECT_FALSE(holds(Dtype::bf16, Dtype::f32) || holds(Dtype::f32, Dtype::f64) || holds(Dtype::i32, Dtype::u8));
  EXPECT_FALSE(holds(Dtype::bf16, Dtype::f16) || holds(Dtype::f16, Dtype::bf16) || holds(Dtype::bf16, Dtype::u8));
}

TEST(Dtype, NamesReadBack) {
  for (int i = 0; i <= static_cast<int>(Dtype::f8_e5m2); ++i) {
    EXPECT_EQ(parse_dtype(dtype_name(static_cast<Dtype>(i))), static_cast<Dtype>(i));
  }
  EXPECT_EQ(parse_dtype("F4"), std::nullopt);
}

}  // namespace
}  // namespace trireme::checkpoint
