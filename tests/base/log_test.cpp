#include "trireme/base/log.h"

#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme::base {
namespace {

TEST(Log, ALineCarriesPrefixLevelAndText) {
  EXPECT_EQ(log_line(LogLevel::info, "", "saved", false), "saved\n");
  EXPECT_EQ(log_line(LogLevel::info, "rank 1", "saved", false), "rank 1: saved\n");
  EXPECT_EQ(log_line(LogLevel::warn, "rank 1", "slow disk", false), "rank 1: warn  slow disk\n");
}

TEST(Log, ColourIsNeverTheOnlyCarrier) {
  const std::string line = log_line(LogLevel::warn, "", "slow disk", true);
  EXPECT_NE(line.find("\x1b[33m"), std::string::npos);
  EXPECT_NE(line.find("warn"), std::string::npos);
}

TEST(Log, ErrorsAreHeadedOnce) {
  testing::internal::CaptureStderr();
  report_error(UsageError("no such corpus"));
  report_error(UsageError("error: unknown setting a\n\nerror: unknown setting b"));
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "error: no such corpus\nerror: unknown setting a\n\nerror: unknown setting b\n");
}

TEST(Log, ThePrefixHoldsUntilItIsChanged) {
  testing::internal::CaptureStderr();
  set_log_prefix("rank 3");
  info("{} of {}", 1, 2);
  warn("late by {} s", 3);
  set_log_prefix("");
  info("plain");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "rank 3: 1 of 2\nrank 3: warn  late by 3 s\nplain\n");
}

}  // namespace
}  // namespace trireme::base
