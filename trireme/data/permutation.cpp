#include "trireme/data/permutation.h"

#include <bit>

#include "trireme/base/error.h"
#include "trireme/base/mix64.h"

namespace trireme::data {

Permutation::Permutation(int64_t size, uint64_t key) : size_(size) {
  check_invariant(size >= 1 && size <= (int64_t{1} << 62), "a permutation has 1 to 2^62 elements");
  const int bits = std::bit_width(static_cast<uint64_t>(size - 1));
  half_bits_ = bits < 2 ? 1 : (bits + 1) / 2;
  half_mask_ = (uint64_t{1} << half_bits_) - 1;
  for (int round = 0; round < kNumRounds; ++round)
    round_keys_[round] = base::mix_key(key, static_cast<uint64_t>(round));
}

int64_t Permutation::operator()(int64_t index) const {
  check_invariant(index >= 0 && index < size_, "a permutation's index is in [0, size)");
  auto x = static_cast<uint64_t>(index);
  do {
    uint64_t left = x >> half_bits_;
    uint64_t right = x & half_mask_;
    for (const uint64_t round_key : round_keys_) {
      const uint64_t mixed = left ^ (base::mix64(right + round_key) & half_mask_);
      left = right;
      right = mixed;
    }
    x = left << half_bits_ | right;
  } while (x >= static_cast<uint64_t>(size_));
  return static_cast<int64_t>(x);
}

}  // namespace trireme::data
