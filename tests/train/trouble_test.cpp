#include "trireme/train/trouble.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace trireme::train {
namespace {

std::string trouble_with(double loss, Learning task) {
  return trouble_of({.loss = loss, .gradient_norm = 1}, loss_of_guessing(task, 256));
}

TEST(Trouble, ALossFarAboveThatOfGuessingIsDivergence) {
  for (const Learning task : {Learning::language, Learning::classify}) {
    EXPECT_EQ(trouble_with(9.9 * std::log(256), task), "");
    EXPECT_EQ(trouble_with(56, task), "the loss was 56, more than 10 times the 5.55 of guessing");
  }
}

TEST(Trouble, LossesOfPreferencesAndRewardsHaveNoBound) {
  for (const Learning task : {Learning::preferences, Learning::rewards}) {
    EXPECT_EQ(trouble_with(2500, task), "");  // ipo, where beta is 0.01
    EXPECT_NE(trouble_with(std::numeric_limits<double>::infinity(), task), "");
    EXPECT_NE(trouble_with(std::nan(""), task), "");
  }
}

}  // namespace
}  // namespace trireme::train
