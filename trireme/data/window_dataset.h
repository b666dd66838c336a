// WindowDataset: the running text cut into windows of sequence + 1 tokens (inputs, and the same shifted by one as
// targets), whatever documents they cross. Windows follow each other at a stride of `sequence`: no token is a target
// twice in an epoch.
//
// For training, an epoch starts its windows at an offset of its own, so that later epochs cut the text elsewhere; to
// keep every epoch equally long, it has one window fewer than would fit at offset 0 (when it has two or more).
// For validation, windows start at token 0 and the last one is padded: every token but the first is a target once.
#pragma once

#include "trireme/data/dataset.h"
#include "trireme/data/token_range.h"

namespace trireme::data {

struct WindowOptions {
  int64_t sequence = 1;
  uint64_t seed = 0;   ///< of the epochs' offsets
  bool whole = false;  ///< every target once, in order, the last window padded (validation)
  bool apart = false;  ///< first tokens of documents are not targets: their documents know nothing of what comes before
};

class WindowDataset final : public Dataset {
 public:
  /// `tokens` at least sequence + 1, with `whole` at least 2.
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
  /// Targets before the text ends; `sequence` but for the last window of a `whole` one.
  int64_t num_targets(int64_t start) const;

  TokenRange tokens_;
  WindowOptions options_;
  int64_t num_samples_ = 0;
  int64_t num_offsets_ = 1;
};

}  // namespace trireme::data
