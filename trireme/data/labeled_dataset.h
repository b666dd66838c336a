// LabeledDataset: a row for each text, with padding behind it. The label is the target at the first token; no other
// token has a target. So a text counts as one supervised token, and the loss of a step is a mean over texts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/data/dataset.h"

namespace trireme::data {

class LabeledDataset final : public Dataset {
 public:
  struct Row {
    std::vector<int32_t> tokens;  ///< 1 to `sequence`
    int64_t label = 0;
    int64_t record = 0;  ///< its number in the files
  };
  /// `name` is that of the files. At least one row.
  LabeledDataset(std::vector<Row> rows, int64_t sequence, std::string name);

  int64_t num_samples() const override { return static_cast<int64_t>(rows_.size()); }
  int64_t sequence() const override { return sequence_; }
  void sample(int64_t epoch, int64_t index, SampleView out) const override;
  int64_t supervised_tokens(int64_t, int64_t) const override { return 1; }
  std::vector<SampleOrigin> describe(int64_t epoch, int64_t index) const override;

 private:
  std::vector<Row> rows_;
  int64_t sequence_;
  std::string name_;
};

}  // namespace trireme::data
