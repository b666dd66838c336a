// An ExactSum is a sum of non-negative doubles. It depends neither on the order of its terms nor on how they are
// divided among ranks. The terms are added without rounding; the result is rounded once. Source    Kulisch's long
// accumulator. Its limbs of 32 bits lie in 64 bits, so that carries can wait
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <span>

namespace trireme::optim {

/// A double as integers: parts[i] multiples of 2^(32 (first + i) - 1074).
struct ExactTerm {
  int first;
  uint64_t parts[3];
};

class ExactSum {
 public:
  /// The number of limbs, which are the sum as integers. Ranks exchange their limbs and add them element by element.
  static constexpr int kLimbs = 70;

  /// A negative or non-finite term makes the result NaN.
  /// Cost      some 3 ns a term
  void add(double term);
  /// The term as its parts; `first` is -1 for one that is negative or not finite.
  static constexpr ExactTerm parts_of(double term) {
    constexpr uint64_t kMask = 0xffffffff;
    const auto bits = std::bit_cast<uint64_t>(term);
    const int exponent = static_cast<int>(bits >> 52);  // with the sign on top
    if (exponent >= 0x7ff) return {-1, {}};
    const uint64_t fraction = bits & ((uint64_t{1} << 52) - 1);
    const uint64_t mantissa = exponent == 0 ? fraction : fraction | uint64_t{1} << 52;
    const int shift = exponent == 0 ? 0 : exponent - 1;  // the term is mantissa 2^(shift - 1074)
    const int within = shift % 32;
    // mantissa 2^within, of at most 84 bits, in two words
    const uint64_t low = mantissa << within, high = within == 0 ? 0 : mantissa >> (64 - within);
    return {shift / 32, {low & kMask, low >> 32, high}};
  }
  void add(std::span<const double> terms);
  void add_limbs(std::span<const int64_t> limbs);
  std::span<int64_t, kLimbs> limbs() { return limbs_; }
  void clear() { limbs_ = {}; }

  /// Propagates pending carries, so that 2^30 more terms or limbs fit.
  void normalize();
  /// The sum as a double: a function of its exact value alone, within two units in the last place.
  double value();

 private:
  // Limb i counts multiples of 2^(32 i - 1074); the last one counts negative and non-finite terms.
  std::array<int64_t, kLimbs> limbs_{};
  int64_t waiting_ = 0;  // additions since the last normalize()
};

}  // namespace trireme::optim
