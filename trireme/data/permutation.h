// A pseudo-random order of n things without a table: position i of the shuffled order is computed in O(1)
// from (key, i), so any rank can start anywhere in an epoch of any length with no memory and no skipping.
//
// Method (fixed: changing it changes every run's data order): a balanced Feistel network of 6 rounds over
// the smallest 2h bits that hold n-1, its round function the splitmix64 finaliser of (half + round key);
// results outside [0, n) are fed back in until one falls inside ("cycle walking", at most 4 rounds of it
// on average, since 4^h < 4n). A Feistel network is a bijection whatever its round function is, and so is
// the walk. Source: Black and Rogaway, Ciphers with Arbitrary Finite Domains (2002), sections 3 and 4.
#pragma once

#include <array>
#include <cstdint>

namespace trireme::data {

/// The finaliser of splitmix64: a bijection of 64-bit numbers whose every output bit depends on every input bit.
constexpr uint64_t mix64(uint64_t x) {
  x ^= x >> 30;
  x *= 0xBF58476D1CE4E5B9u;
  x ^= x >> 27;
  x *= 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

/// One 64-bit key out of two numbers, for instance (seed, epoch).
constexpr uint64_t mix_key(uint64_t a, uint64_t b) {
  constexpr uint64_t kGolden = 0x9E3779B97F4A7C15u;
  return mix64(mix64(a + kGolden) + b * kGolden + 1);
}

class Permutation {
 public:
  /// A bijection of [0, size); `size` from 1 to 2^62.
  Permutation(int64_t size, uint64_t key);

  /// Where position `index` of the order points; `index` in [0, size).
  int64_t operator()(int64_t index) const;

  int64_t size() const { return size_; }

 private:
  static constexpr int kNumRounds = 6;
  int64_t size_;
  int half_bits_;
  uint64_t half_mask_;
  std::array<uint64_t, kNumRounds> round_keys_;
};

}  // namespace trireme::data
