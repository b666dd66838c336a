#include "trireme/data/sampler.h"

#include <numeric>

#include "trireme/base/error.h"
#include "trireme/base/mix64.h"
#include "trireme/data/permutation.h"

namespace trireme::data {
namespace {
constexpr uint64_t kOrderStream = 2;   // of the seed; window_dataset.cpp has the other
constexpr uint64_t kSourceStream = 3;  // parts the orders of sources
}  // namespace

Sampler::Sampler(int64_t num_samples, uint64_t seed) : Sampler(std::vector<int64_t>{num_samples}, {1.0}, seed) {}

Sampler::Sampler(std::vector<int64_t> num_samples, const std::vector<double>& weights, uint64_t seed)
    : num_samples_(std::move(num_samples)), interleaving_(weights), seed_(seed) {
  check_invariant(num_samples_.size() == weights.size(), "every source has a weight");
  for (const int64_t count : num_samples_) check_invariant(count >= 1, "a source has at least one sample");
}

Draw Sampler::operator()(int64_t global_index) const {
  check_invariant(global_index >= 0, "samples are numbered from 0");
  const Interleaving::Turn turn = interleaving_(global_index);
  const auto source = static_cast<uint64_t>(turn.source);
  const int64_t size = num_samples_[source], epoch = turn.before / size;
  const uint64_t seed = source == 0 ? seed_ : base::mix_key(base::mix_key(seed_, kSourceStream), source);
  const Permutation order(size, base::mix_key(base::mix_key(seed, kOrderStream), static_cast<uint64_t>(epoch)));
  return {.source = turn.source, .epoch = epoch, .index = order(turn.before % size)};
}

int64_t Sampler::samples_per_epoch() const {
  return std::accumulate(num_samples_.begin(), num_samples_.end(), int64_t{0});
}

}  // namespace trireme::data
