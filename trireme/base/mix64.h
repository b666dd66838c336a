// Mixes numbers into keys: for hashes, and for random numbers that are functions of seed, epoch, index and the like.
#pragma once

#include <cstdint>

namespace trireme::base {

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

}  // namespace trireme::base
