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

TEST(Trouble, AnOverflowOfScaledGradientsBesideAFiniteLossIsNone) {
  const double guessing = loss_of_guessing(Learning::language, 256);
  const double nan = std::nan("");
  EXPECT_EQ(trouble_of({.loss = 3.1, .gradient_norm = nan, .overflowed = true}, guessing), "");
  EXPECT_NE(trouble_of({.loss = 56, .gradient_norm = nan, .overflowed = true}, guessing), "");
  EXPECT_NE(trouble_of({.loss = nan, .gradient_norm = nan, .overflowed = true}, guessing), "");
  EXPECT_NE(trouble_of({.loss = 3.1, .gradient_norm = nan}, guessing), "");
}

}  // namespace
}  // namespace trireme::train
