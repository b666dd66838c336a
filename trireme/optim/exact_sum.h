// ExactSum: a sum of non-negative doubles that does not depend on the order of its terms, nor on how they are divided
// among ranks: the terms are added without rounding, and rounded once at the end.
// Source    the long accumulator of Kulisch; limbs of 32 bits in 64, so that carries wait
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace trireme::optim {

class ExactSum {
 public:
  /// Integers that hold the sum: what ranks send each other. Those of several ranks may be added one by one.
  static constexpr int kLimbs = 70;

  /// Terms that are negative or not finite make the result a NaN.
  /// Cost      some 3 ns a term
  void add(double term);
  void add(std::span<const double> terms);
  void add_limbs(std::span<const int64_t> limbs);
  std::span<int64_t, kLimbs> limbs() { return limbs_; }
  void clear() { limbs_ = {}; }

  /// Moves waiting carries, so that 2^30 more terms or limbs fit.
  void normalize();
  /// The sum as a double: a function of its exact value alone, within two units in the last place.
  double value();

 private:
  // Limb i counts 2^(32 i - 1074); the last one counts terms that are no number.
  std::array<int64_t, kLimbs> limbs_{};
  int64_t waiting_ = 0;
};

}  // namespace trireme::optim
