// Interleaving: which source each turn belongs to, so that after any number of turns every source has had its share
// to less than one turn. A pure function of (weights, turn): nothing is drawn at random and nothing counted along.
//
// Method (fixed: changing it changes every mixture's data order): weights become whole numbers that sum to a period of
// at most 2^20 turns; the turns of one period are dealt by Tijdeman's rule for the chairman assignment problem, which
// keeps every source of n within 1 - 1/(2n - 2) turns of its share at every turn. Weights with up to six decimals
// are kept exactly where the period allows it, others to 2^-21. Source: Tijdeman, The chairman assignment
// problem, Discrete Mathematics 32 (1980)
#pragma once

#include <cstdint>
#include <vector>

namespace trireme::data {

class Interleaving {
 public:
  /// `weights`: at least one, each finite and above 0, in any unit.
  explicit Interleaving(const std::vector<double>& weights);

  struct Turn {
    int source = 0;
    int64_t before = 0;  ///< earlier turns of the same source
  };
  /// Turn 0, 1, ...; O(1).
  Turn operator()(int64_t turn) const;

  int64_t period() const { return static_cast<int64_t>(sources_.size()); }
  /// Turns of each source in a period.
  const std::vector<int64_t>& counts() const { return counts_; }

 private:
  std::vector<int64_t> counts_;
  std::vector<uint16_t> sources_;  // of each turn of a period
  std::vector<int32_t> before_;    // turns of the same source earlier in the period
};

}  // namespace trireme::data
