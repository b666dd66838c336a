#include "trireme/launch/machines/host_filter.h"

#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "trireme/base/error.h"

namespace trireme::launch {
namespace {

using ::testing::HasSubstr;

const std::vector<HostRanks> kHosts = {{"a", 4}, {"me@b", 4}, {"c", 2}};

// "a:4 b:2[0,2]"
std::string filtered(std::string_view include, std::string_view exclude) {
  std::string text;
  for (const HostRanks& host : filter_hosts(kHosts, include, exclude)) {
    text += fmt::format("{}{}:{}", text.empty() ? "" : " ", host.name, host.ranks);
    if (!host.slots.empty()) text += fmt::format("[{}]", fmt::join(host.slots, ","));
  }
  return text;
}

std::string refusal(std::string_view include, std::string_view exclude = "") {
  try {
    return filtered(include, exclude);
  } catch (const UsageError& error) {
    return error.what();
  }
}

TEST(HostFilter, WithoutOneAllHostsStay) { EXPECT_EQ(filtered("", ""), "a:4 me@b:4 c:2"); }

TEST(HostFilter, IncludesHostsAndSlots) {
  EXPECT_EQ(filtered("c@a", ""), "a:4 c:2");
  EXPECT_EQ(filtered("a@b:2,0", ""), "a:4 me@b:2[0,2]");
}

TEST(HostFilter, ExcludesHostsAndSlots) {
  EXPECT_EQ(filtered("", "b"), "a:4 c:2");
  EXPECT_EQ(filtered("", "a:1@c"), "a:3[0,2,3] me@b:4");
  EXPECT_EQ(filtered("", "c:0,1"), "a:4 me@b:4");
}

TEST(HostFilter, RefusesWhatIsNotInTheListOrLeavesNothing) {
  EXPECT_THAT(refusal("a", "b"), HasSubstr("contradict each other"));
  EXPECT_THAT(refusal("d"), HasSubstr("d is not in the list of machines"));
  EXPECT_THAT(refusal("a@a"), HasSubstr("it names a twice"));
  EXPECT_THAT(refusal("c:2"), HasSubstr("c has 2 slots, so its slots are 0 to 1"));
  EXPECT_THAT(refusal("c:x"), HasSubstr("'x' is no slot"));
  EXPECT_THAT(refusal("@a"), HasSubstr("a host's name is empty"));
  EXPECT_THAT(refusal("", "a@b@c"), HasSubstr("no machine remains"));
}

}  // namespace
}  // namespace trireme::launch
