// SampleStream: everything a run learns from, in its order: datasets with weights, and the sampler that says which of
// their samples is number g. Endless, without state: two ranks, two threads or a ledger years later see the same.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "trireme/data/dataset.h"
#include "trireme/data/sampler.h"

namespace trireme::data {

struct WeightedDataset {
  std::shared_ptr<const Dataset> dataset;
  double weight = 1;  ///< share of the samples, in any unit
};

class SampleStream {
 public:
  /// `sources`: at least one, of one sequence length.
  SampleStream(std::vector<WeightedDataset> sources, uint64_t seed);

  int64_t sequence() const { return datasets_.front()->sequence(); }
  /// Samples of all sources. One source: an epoch has each of them once.
  int64_t samples_per_epoch() const { return sampler_.samples_per_epoch(); }

  Draw draw(int64_t global_index) const { return sampler_(global_index); }
  void sample(int64_t global_index, SampleView out) const;
  /// Learned targets of samples [first, first + count): what a step's loss is divided by.
  int64_t supervised_tokens(int64_t first, int64_t count) const;
  std::vector<SampleOrigin> describe(int64_t global_index) const;

 private:
  std::vector<std::shared_ptr<const Dataset>> datasets_;
  Sampler sampler_;
};

}  // namespace trireme::data
