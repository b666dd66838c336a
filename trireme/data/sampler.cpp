#include "trireme/data/sampler.h"

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/data/permutation.h"

namespace trireme::data {
namespace {

// Two streams out of one seed: where windows start, and in which order they come.
constexpr uint64_t kOffsetStream = 1;
constexpr uint64_t kOrderStream = 2;

}  // namespace

Sampler::Sampler(int64_t num_tokens, int64_t sequence, uint64_t seed) : sequence_(sequence), seed_(seed) {
  check_invariant(sequence >= 1 && num_tokens > sequence, "a corpus holds at least one sample of one token");
  const int64_t fitting = (num_tokens - 1) / sequence;
  samples_per_epoch_ = std::max<int64_t>(1, fitting - 1);
  num_offsets_ = std::min(sequence, num_tokens - samples_per_epoch_ * sequence);
}

int64_t Sampler::epoch_offset(int64_t epoch) const {
  const uint64_t random = mix_key(mix_key(seed_, kOffsetStream), static_cast<uint64_t>(epoch));
  return static_cast<int64_t>(random % static_cast<uint64_t>(num_offsets_));
}

int64_t Sampler::sample(int64_t global_index) const {
  check_invariant(global_index >= 0, "samples are numbered from 0");
  const int64_t epoch = global_index / samples_per_epoch_;
  const Permutation order(samples_per_epoch_, mix_key(mix_key(seed_, kOrderStream), static_cast<uint64_t>(epoch)));
  return epoch_offset(epoch) + order(global_index % samples_per_epoch_) * sequence_;
}

}  // namespace trireme::data
