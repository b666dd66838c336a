#include "trireme/base/crew.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace trireme::base {
namespace {

TEST(Crew, EachPartRunsOnce) {
  std::vector<int> ran(7);
  Crew crew(ran.size(), [&](size_t i) { ++ran[i]; });
  crew.join();
  EXPECT_EQ(ran, std::vector<int>(7, 1));
  EXPECT_FALSE(crew.has_failed());
}

// Out of a bare thread it would end the process.
TEST(Crew, WhatAPartThrowsComesOutWhereItIsWaitedFor) {
  Crew crew(4, [](size_t i) {
    if (i == 2) throw std::runtime_error("part 2");
  });
  EXPECT_THROW(crew.join(), std::runtime_error);
  EXPECT_TRUE(crew.has_failed());
  crew.join();  // said once
}

TEST(Crew, NobodyNeedsToWait) {
  const Crew crew(2, [](size_t) { throw std::runtime_error("unheard"); });
}

}  // namespace
}  // namespace trireme::base
