// Interleaving gives each turn to one of several sources. After any number of turns, every source has had its share of
// them, within one turn. It is a pure function of (weights, turn), without random numbers and counters.
//
// Method (fixed: changing it changes every mixture's data order): weights become whole numbers. Their sum is the
// period, at most 2^20 turns. Tijdeman's rule for the chairman assignment problem assigns the turns of one period. It
// keeps each of n sources within 1 - 1/(2n - 2) turns of its share at every turn. Weights with up to six decimals are
// exact if the period allows it, others are exact to 2^-21. Source: Tijdeman, The chairman assignment problem, Discrete
// Mathematics 32 (1980)
#pragma once

#include <cstdint>
#include <vector>

namespace trireme::data {

class Interleaving {
 public:
  /// `weights` has at least one number. Each is finite and above 0, in any unit.
  ///
  /// Cost      O(period x log(sources)): at most a second
  /// Errors    UsageError for other weights
  explicit Interleaving(const std::vector<double>& weights);

  struct Turn {
    int source = 0;
    int64_t before = 0;  ///< earlier turns of the same source
  };
  /// The source of turn 0, 1, ... Cost      O(1)
  Turn operator()(int64_t turn) const;

  int64_t period() const { return static_cast<int64_t>(sources_.size()); }
  /// Turns of each source in a period.
  const std::vector<int64_t>& counts() const { return counts_; }

 private:
  void deal();

  std::vector<int64_t> counts_;
  std::vector<uint16_t> sources_;  // of each turn of a period
  std::vector<int32_t> before_;  // turns of the same source earlier in the period
};

}  // namespace trireme::data
