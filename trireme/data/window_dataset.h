// A WindowDataset cuts the running text into windows of sequence + 1 tokens: inputs, and targets shifted by one.
// Windows ignore borders of documents. Their stride is `sequence`, so no token is a target twice in an epoch.
//
// For training, each epoch starts its windows at an offset of its own, so it cuts the text elsewhere. To keep all
// epochs equally long, an epoch has one window fewer than would fit at offset 0 (if two or more fit). For validation,
// windows start at token 0 and the last one is padded, so every token but the first is a target once.
#pragma once

#include "trireme/data/dataset.h"
#include "trireme/data/token_range.h"

namespace trireme::data {

struct WindowOptions {
  int64_t sequence = 1;
  uint64_t seed = 0;  ///< of the epochs' offsets
  bool whole = false;  ///< every target once, in order, the last window padded (validation)
  bool apart = false;  ///< first tokens of documents are not targets: attention stays inside documents
};

class WindowDataset final : public Dataset {
 public:
  /// `tokens` has at least sequence + 1 tokens; with `whole`, at least 2.
  /// Errors    UsageError if it has fewer, or sequence is below 1
  WindowDataset(TokenRange tokens, WindowOptions options);

  int64_t num_samples() const override { return num_samples_; }
  int64_t sequence() const override { return options_.sequence; }
  void sample(int64_t epoch, int64_t index, SampleView out) const override;
  int64_t supervised_tokens(int64_t epoch, int64_t index) const override;
  std::vector<SampleOrigin> describe(int64_t epoch, int64_t index) const override;

  /// First token of the epoch's first window.
  int64_t epoch_offset(int64_t epoch) const;

 private:
  int64_t start(int64_t epoch, int64_t index) const { return epoch_offset(epoch) + index * options_.sequence; }
  /// Targets before the text ends: `sequence`, or fewer in the last window with `whole`.
  int64_t num_targets(int64_t start) const;

  TokenRange tokens_;
  WindowOptions options_;
  int64_t num_samples_ = 0;
  int64_t num_offsets_ = 1;
};

}  // namespace trireme::data
