// Which tokens sample number g of a run is made of: a pure function of (seed, g), so that ranks agree
// without talking, a run continues on any number of ranks, and the whole state is one integer.
//
// A training sample is a window of sequence + 1 tokens (inputs, and the same shifted by one as targets).
// Windows follow each other at a stride of `sequence`: no token is a target twice in an epoch. An epoch
// starts them at its own offset, so that later epochs cut the text elsewhere; to keep every epoch equally
// long, the text holds one window fewer than would fit at offset 0 (when it holds two or more).
#pragma once

#include <cstdint>

namespace trireme::data {

class Sampler {
 public:
  /// `num_tokens` of training text, at least sequence + 1.
  Sampler(int64_t num_tokens, int64_t sequence, uint64_t seed);

  /// First token of sample `global_index` (0, 1, ... through all epochs); the sample ends `sequence` further, included.
  int64_t sample(int64_t global_index) const;

  int64_t samples_per_epoch() const { return samples_per_epoch_; }
  int64_t sequence() const { return sequence_; }
  int64_t epoch_offset(int64_t epoch) const;

 private:
  int64_t sequence_;
  uint64_t seed_;
  int64_t samples_per_epoch_;
  int64_t num_offsets_;
};

}  // namespace trireme::data
