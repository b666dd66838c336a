// An ExactSum is a sum of non-negative doubles. It depends neither on the order of its terms nor on how they are
// divided among ranks. The terms are added without rounding; the result is rounded once. Source    Kulisch's long
// accumulator. Its limbs of 32 bits lie in 64 bits, so that carries can wait
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace trireme::optim {

class ExactSum {
 public:
  /// The number of limbs, which are the sum as integers. Ranks exchange their limbs and add them element by element.
  static constexpr int kLimbs = 70;

  /// A negative or non-finite term makes the result NaN.
  /// Cost      some 3 ns a term
  void add(double term);
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
