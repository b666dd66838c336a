#include "trireme/base/units.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace trireme::base {
namespace {

using std::chrono::milliseconds;

TEST(Units, CountsReadExponentsAndGrouping) {
  EXPECT_EQ(parse_count("42"), 42);
  EXPECT_EQ(parse_count("-1"), -1);
  EXPECT_EQ(parse_count("3e9"), 3'000'000'000);
  EXPECT_EQ(parse_count("1.5e3"), 1500);
  EXPECT_EQ(parse_count("4_096"), 4096);
  EXPECT_EQ(parse_count("9223372036854775807"), INT64_MAX);
}

TEST(Units, CountsRefuseFractionsOverflowAndWords) {
  for (const char* text :
       {"", "1.5", "four", "1e30", "nan", "inf", "0x10", "1_", "_1", "1__0", "1 2", "--1", "9223372036854775808"}) {
    EXPECT_EQ(parse_count(text), std::nullopt) << text;
  }
}

TEST(Units, BytesReadDecimalAndBinaryUnits) {
  EXPECT_EQ(parse_bytes("16MiB"), int64_t{16} << 20);
  EXPECT_EQ(parse_bytes("5GB"), 5'000'000'000);
  EXPECT_EQ(parse_bytes("5 gb"), 5'000'000'000);
  EXPECT_EQ(parse_bytes("1.5GiB"), int64_t{3} << 29);
  EXPECT_EQ(parse_bytes("123"), 123);
  EXPECT_EQ(parse_bytes("1.3GiB"), 1'395'864'371) << "to the nearest byte";
  EXPECT_EQ(parse_bytes("1.001GB"), 1'001'000'000);
  for (const char* text : {"", "MiB", "5 G", "5 giga", "-1MB", "1.5B", "1e30GB"}) {
    EXPECT_EQ(parse_bytes(text), std::nullopt) << text;
  }
}

TEST(Units, DurationsReadCompoundsAndBareSeconds) {
  EXPECT_EQ(parse_duration("30s"), milliseconds(30'000));
  EXPECT_EQ(parse_duration("1h30m"), milliseconds(5'400'000));
  EXPECT_EQ(parse_duration("250ms"), milliseconds(250));
  EXPECT_EQ(parse_duration("1.5"), milliseconds(1500));
  EXPECT_EQ(parse_duration("0"), milliseconds(0));
  for (const char* text : {"", "s", "30x", "30m1h", "1s1s", "-3s", "1h30", "5 s"}) {
    EXPECT_EQ(parse_duration(text), std::nullopt) << text;
  }
}

TEST(Units, NumbersAreWrittenShort) {
  EXPECT_EQ(format_number(6e-5), "6e-5");
  EXPECT_EQ(format_number(0.1), "0.1");
  EXPECT_EQ(format_number(1), "1");
  EXPECT_EQ(format_number(1e300), "1e300");
}

RC_GTEST_PROP(Units, WhatIsWrittenReadsBack, (int64_t seed, double number)) {
  const int64_t amount = seed & INT64_C(0x7fffffffffff);
  RC_ASSERT(parse_bytes(format_bytes(amount)) == amount);
  RC_ASSERT(parse_bytes(format_bytes(amount % 5000 * 1000)) == amount % 5000 * 1000);
  RC_ASSERT(parse_duration(format_duration(milliseconds(amount))) == milliseconds(amount));
  RC_ASSERT(parse_duration(format_duration(milliseconds(amount / 1000 * 1000))) == milliseconds(amount / 1000 * 1000));
  RC_ASSERT(parse_number(format_number(number)) == number);
}

}  // namespace
}  // namespace trireme::base
