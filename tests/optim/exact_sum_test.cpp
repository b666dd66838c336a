#include "trireme/optim/exact_sum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace trireme::optim {
namespace {

std::vector<double> terms_of_many_sizes(int count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> mantissa(1, 2);
  std::uniform_int_distribution<int> exponent(-300, 300);
  std::vector<double> terms;
  for (int i = 0; i < count; ++i) terms.push_back(std::ldexp(mantissa(random), exponent(random)));
  return terms;
}

TEST(ExactSum, DoesNotDependOnOrderOrOnHowTermsAreDivided) {
  std::vector<double> terms = terms_of_many_sizes(5000, 1);
  ExactSum one;
  one.add(terms);
  std::mt19937_64 random(2);
  for (int parts : {2, 3, 7}) {
    std::shuffle(terms.begin(), terms.end(), random);
    std::vector<ExactSum> ranks(parts);
    for (size_t i = 0; i < terms.size(); ++i) ranks[i % parts].add(terms[i]);
    ExactSum all;
    for (ExactSum& rank : ranks) all.add_limbs(rank.limbs());
    EXPECT_EQ(all.value(), one.value());
  }
}

TEST(ExactSum, KeepsWhatDoublesLose) {
  ExactSum sum;
  sum.add(1e300);
  for (int i = 0; i < 1000; ++i) sum.add(1e-300);
  EXPECT_EQ(sum.value(), 1e300);
  ExactSum small;
  for (int i = 0; i < 10; ++i) small.add(0.1);  // ten times the double nearest 0.1, rounded once
  EXPECT_NEAR(small.value(), 1.0, 2e-16);
  ExactSum tiny;
  for (int i = 0; i < 3; ++i) tiny.add(std::numeric_limits<double>::denorm_min());
  EXPECT_EQ(tiny.value(), 3 * std::numeric_limits<double>::denorm_min());
}

TEST(ExactSum, IsWithinTwoUnitsOfALongDoubleSum) {
  std::mt19937_64 random(3);
  std::exponential_distribution<double> draw(1);
  ExactSum sum;
  long double expected = 0;
  for (int i = 0; i < 100000; ++i) {
    const double term = draw(random);
    sum.add(term);
    expected += term;
  }
  EXPECT_NEAR(sum.value() / double(expected), 1, 4e-16);
}

TEST(ExactSum, WhatIsNoNumberMakesItNaN) {
  for (double bad : {std::nan(""), std::numeric_limits<double>::infinity(), -1.0}) {
    ExactSum a, b;
    a.add(1);
    a.add(bad);
    b.add_limbs(a.limbs());
    EXPECT_TRUE(std::isnan(b.value())) << bad;
  }
  ExactSum zero;
  zero.add(0);
  EXPECT_EQ(zero.value(), 0);
}

}  // namespace
}  // namespace trireme::optim
