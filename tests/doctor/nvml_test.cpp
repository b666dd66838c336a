// The driver's library is tests/doctor/fake_nvml.cpp, which this program finds beside itself.
#include "trireme/machine/nvml.h"

#include <gtest/gtest.h>

namespace trireme::machine {
namespace {

TEST(Nvml, ReadsWhatACardDoes) {
  const auto reading = read_gpu("0000:1B:00.0");
  ASSERT_TRUE(reading);
  EXPECT_EQ(reading->memory_used, int64_t{33} << 30);
  EXPECT_DOUBLE_EQ(reading->watts, 612.345);
  EXPECT_EQ(reading->megahertz_at_most, 0);  // the driver does not say
  EXPECT_EQ(text_of(*reading), "612 of 700 W, 1755 MHz, 58 degrees C");
}

TEST(Nvml, KnowsNoOtherCard) { EXPECT_FALSE(read_gpu("0000:2C:00.0")); }

TEST(Nvml, LeavesOutWhatIsNotKnown) { EXPECT_EQ(text_of({}), ""); }

}  // namespace
}  // namespace trireme::machine
