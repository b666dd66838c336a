// A SampleStream has all samples of a run, in order. It is made of datasets with weights, and of a sampler that says
// which of their samples is number g. It is endless and without state, so all ranks, threads and later ledgers see the
// same.
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
  /// `sources` has at least one. All have the same sequence length.
  SampleStream(std::vector<WeightedDataset> sources, uint64_t seed);

  int64_t sequence() const { return datasets_.front()->sequence(); }
  /// Samples of all sources. If there is one source, an epoch has each of its samples once.
  int64_t samples_per_epoch() const { return sampler_.samples_per_epoch(); }

  Draw draw(int64_t global_index) const { return sampler_(global_index); }
  void sample(int64_t global_index, SampleView out) const;
  /// Learned targets of samples [first, first + count). A step's loss is divided by this number.
  int64_t supervised_tokens(int64_t first, int64_t count) const;
  std::vector<SampleOrigin> describe(int64_t global_index) const;

 private:
  std::vector<std::shared_ptr<const Dataset>> datasets_;
  Sampler sampler_;
};

}  // namespace trireme::data
