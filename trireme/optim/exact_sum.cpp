#include "trireme/optim/exact_sum.h"

#include <bit>
#include <cmath>
#include <limits>

namespace trireme::optim {
namespace {
constexpr int kBits = 32, kLowest = -1074;                  // the smallest double is 2^-1074
constexpr int64_t kMask = (int64_t{1} << kBits) - 1;
constexpr int64_t kMostWaiting = int64_t{1} << 30;          // additions before a limb could overflow
}  // namespace

void ExactSum::add(double term) {
  const auto bits = std::bit_cast<uint64_t>(term);
  const int exponent = static_cast<int>(bits >> 52);        // with the sign on top
  if (exponent >= 0x7ff) {
    ++limbs_[kLimbs - 1];
    return;
  }
  const uint64_t fraction = bits & ((uint64_t{1} << 52) - 1);
  const uint64_t mantissa = exponent == 0 ? fraction : fraction | uint64_t{1} << 52;
  const int shift = exponent == 0 ? 0 : exponent - 1;       // the term is mantissa 2^(shift - 1074)
  const int first = shift / kBits, within = shift % kBits;
  const unsigned __int128 wide = static_cast<unsigned __int128>(mantissa) << within;
  limbs_[first] += static_cast<int64_t>(static_cast<uint64_t>(wide) & kMask);
  limbs_[first + 1] += static_cast<int64_t>(static_cast<uint64_t>(wide >> kBits) & kMask);
  limbs_[first + 2] += static_cast<int64_t>(static_cast<uint64_t>(wide >> (2 * kBits)) & kMask);
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
