// A Dataset is a text cut into samples of one length: the rows of training batches. Samples are windows of the running
// text (window_dataset.h), or documents packed into rows (packed_dataset.h). JoinedDataset joins datasets. Every sample
// is a pure function of (epoch, index): nothing is read ahead or remembered, and any thread may ask for any sample.
// sampler.h decides the order of the samples.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace trireme::data {

/// The target where neither training nor evaluation counts the loss (padding, masked tokens, borders of documents).
inline constexpr int64_t kIgnoredTarget = -100;

/// Where a sample's values are written; each span has sequence() elements.
struct SampleView {
  std::span<int64_t> inputs;
  std::span<int64_t> targets;  ///< kIgnoredTarget if not learned
  std::span<int64_t> document_starts;  ///< for each position, where its document begins in the row (0 if before the
                                       ///< row); ascending. Padding counts as a document
};

/// Pads the row from position `first` on.
void pad(SampleView out, size_t first);

/// A range of a source's tokens in a sample, for the ledger (ledger.h).
struct SampleOrigin {
  std::string source;  ///< the dataset's name, which is its path
  int64_t first_document = 0;  ///< counted from 0
  int64_t last_document = 0;  ///< included
  int64_t first_token = 0;
  int64_t num_tokens = 0;  ///< inputs; the last target is the token after them
  bool operator==(const SampleOrigin&) const = default;
};

class Dataset {
 public:
  virtual ~Dataset() = default;

  /// Samples of one epoch, the same in every epoch; at least 1.
  virtual int64_t num_samples() const = 0;
  /// The number of inputs of a sample, and of its targets.
  virtual int64_t sequence() const = 0;

  /// Writes sample `index`, in [0, num_samples()), of `epoch`.
  virtual void sample(int64_t epoch, int64_t index, SampleView out) const = 0;
  /// The number of the sample's targets that are learned.
  ///
  /// Cost      arithmetic; reads `sequence` bytes if single tokens are masked
  virtual int64_t supervised_tokens(int64_t epoch, int64_t index) const = 0;
  /// What the sample is made of, in the order of its tokens.
  virtual std::vector<SampleOrigin> describe(int64_t epoch, int64_t index) const = 0;
};

/// Several datasets, one after the other. An epoch has every sample of each dataset once.
class JoinedDataset final : public Dataset {
 public:
  /// `parts` has at least one dataset. All have the same sequence length.
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
  std::vector<int64_t> ends_;  // first sample after each part
};

}  // namespace trireme::data
