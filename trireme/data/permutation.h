// A pseudo-random order of n items without a table. Position i of the shuffled order is computed in O(1) from (key, i).
// Any rank can start anywhere in an epoch of any length, without memory and without skipping.
//
// Method (fixed: changing it changes every run's data order): a balanced Feistel network of 6 rounds over the smallest
// 2h bits that hold n-1; its round function is the splitmix64 finaliser of (half + round key). Results outside [0, n)
// are fed in again until one is inside ("cycle walking", on average at most 4 times, since 4^h < 4n). Network and walk
// are bijections for any round function. Source: Black and Rogaway, Ciphers with Arbitrary Finite Domains (2002), 3, 4
#pragma once

#include <array>
#include <cstdint>

namespace trireme::data {

class Permutation {
 public:
  /// A bijection of [0, size); `size` from 1 to 2^62.
  Permutation(int64_t size, uint64_t key);

  /// The item at position `index` of the order. Both are in [0, size).
  int64_t operator()(int64_t index) const;

 private:
  static constexpr int kNumRounds = 6;
  int64_t size_;
  int half_bits_;
  uint64_t half_mask_;
  std::array<uint64_t, kNumRounds> round_keys_;
};

}  // namespace trireme::data
