// JoinedDataset: several datasets one behind the other as one, so that an epoch has the samples of all of them once.
#pragma once

#include <memory>
#include <vector>

#include "trireme/data/dataset.h"

namespace trireme::data {

class JoinedDataset final : public Dataset {
 public:
  /// `parts`: at least one, of one sequence length.
  explicit JoinedDataset(std::vector<std::shared_ptr<const Dataset>> parts);

  int64_t num_samples() const override { return ends_.back(); }
  int64_t sequence() const override { return parts_.front()->sequence(); }
  void sample(int64_t epoch, int64_t index, SampleView out) const override;
  int64_t supervised_tokens(int64_t epoch, int64_t index) const override;
  std::vector<SampleOrigin> describe(int64_t epoch, int64_t index) const override;

 private:
  struct Place {
    const Dataset& part;
    int64_t index;
  };
  Place place(int64_t index) const;

  std::vector<std::shared_ptr<const Dataset>> parts_;
  std::vector<int64_t> ends_;  // first sample behind each part
};

}  // namespace trireme::data
