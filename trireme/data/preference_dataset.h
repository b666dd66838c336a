// PreferenceDataset: rows of whole pairs. In a row, each pair is two documents: the prompt with the chosen reply, then
// the prompt with the rejected one. A text of n tokens takes n - 1 places. A row's supervised tokens are its pairs, so
// the loss of a step is a mean over pairs.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trireme/data/dataset.h"

namespace trireme::data {

/// A prompt with one reply.
struct ReplyText {
  std::vector<int32_t> tokens;
  int64_t prompt_tokens = 0;  ///< the reply's first token; the prompt's are not learned
  int64_t places() const { return std::ssize(tokens) - 1; }
  /// The targets that belong to the reply, and all of them.
  int64_t reply_targets() const { return std::ssize(tokens) - std::max<int64_t>(1, prompt_tokens); }
};

struct TokenPair {
  ReplyText chosen, rejected;
  int64_t record = 0;  ///< its number in the files
  int64_t places() const { return chosen.places() + rejected.places(); }
};

class PreferenceDataset final : public Dataset {
 public:
  /// `name` is that of the files. `share_rows`: a row holds as many pairs as fit (as PackedDataset); false: one.
  /// `learns_prompts`: the prompt's tokens of chosen texts are targets, too (orpo). At least one pair; each fits.
  PreferenceDataset(std::vector<TokenPair> pairs, int64_t sequence, bool share_rows, bool learns_prompts,
                    std::string name);

  int64_t num_samples() const override { return std::ssize(rows_); }
  int64_t sequence() const override { return sequence_; }
  void sample(int64_t epoch, int64_t index, SampleView out) const override;
  int64_t supervised_tokens(int64_t, int64_t index) const override { return std::ssize(row(index)); }
  std::vector<SampleOrigin> describe(int64_t epoch, int64_t index) const override;

  std::span<const TokenPair> pairs() const { return pairs_; }
  /// The numbers of a row's pairs, in order.
  std::span<const int64_t> row(int64_t index) const { return rows_[static_cast<size_t>(index)]; }

 private:
  std::vector<TokenPair> pairs_;
  std::vector<std::vector<int64_t>> rows_;
  int64_t sequence_;
  bool learns_prompts_;
  std::string name_;
};

}  // namespace trireme::data
