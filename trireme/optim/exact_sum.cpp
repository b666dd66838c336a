#include "trireme/optim/exact_sum.h"

#include <cmath>
#include <limits>

namespace trireme::optim {
namespace {
constexpr int kBits = 32, kLowest = -1074;                  // the smallest double is 2^-1074
constexpr int64_t kMask = (int64_t{1} << kBits) - 1;
constexpr int64_t kMostWaiting = int64_t{1} << 30;          // additions before a limb could overflow
}  // namespace

void ExactSum::add(double term) {
  const ExactTerm t = parts_of(term);
  if (t.first < 0) {
    ++limbs_[kLimbs - 1];
    return;
  }
  for (int i = 0; i < 3; ++i) limbs_[static_cast<size_t>(t.first + i)] += static_cast<int64_t>(t.parts[i]);
  if (++waiting_ >= kMostWaiting) normalize();
}

void ExactSum::add(std::span<const double> terms) {
  for (double term : terms) add(term);
}

void ExactSum::add_limbs(std::span<const int64_t> limbs) {
  normalize();
  for (int i = 0; i < kLimbs; ++i) limbs_[i] += limbs[i];
  normalize();
}

void ExactSum::normalize() {
  int64_t carry = 0;
  for (int i = 0; i + 1 < kLimbs; ++i) {
    limbs_[i] += carry;
    carry = limbs_[i] >> kBits;
    limbs_[i] &= kMask;
  }
  waiting_ = 0;
}

double ExactSum::value() {
  normalize();
  if (limbs_[kLimbs - 1] != 0) return std::numeric_limits<double>::quiet_NaN();
  int top = kLimbs - 2;
  while (top > 0 && limbs_[top] == 0) --top;
  double sum = 0;  // what lies below three limbs is less than half a unit in the last place of the highest
  for (int i = std::max(0, top - 3); i <= top; ++i) sum += std::ldexp(double(limbs_[i]), kBits * i + kLowest);
  return sum;
}

}  // namespace trireme::optim
