// The order of samples. Sample number g of a run is a pure function of (seed, g). So ranks agree without communication,
// a run continues on any number of ranks, and the whole state is one integer.
//
// With one source, each epoch has a pseudo-random order of its own (permutation.h). With several sources, the
// interleaving (interleaving.h) says which source g belongs to, and how many earlier samples that source had. This
// number is the source's own g, so each source goes through its own epochs at the pace of its weight.
#pragma once

#include <cstdint>
#include <vector>

#include "trireme/data/interleaving.h"

namespace trireme::data {

/// Sample `index` of epoch `epoch` of source `source`.
struct Draw {
  int source = 0;
  int64_t epoch = 0;
  int64_t index = 0;
  bool operator==(const Draw&) const = default;
};

class Sampler {
 public:
  /// One source with `num_samples` samples in an epoch.
  Sampler(int64_t num_samples, uint64_t seed);
  /// `num_samples` of each source; `weights` above 0, in any unit.
  Sampler(std::vector<int64_t> num_samples, const std::vector<double>& weights, uint64_t seed);

  /// Sample number `global_index`: 0, 1, ... through all epochs.
  Draw operator()(int64_t global_index) const;

  /// Samples of all sources.
  int64_t samples_per_epoch() const;

 private:
  std::vector<int64_t> num_samples_;
  Interleaving interleaving_;
  uint64_t seed_;
};

}  // namespace trireme::data
