// Dataset: a text cut into samples of one length, the rows of training batches. How it is cut is the difference
// between the siblings: windows of the running text (window_dataset.h), documents packed into rows
// (packed_dataset.h), several datasets one behind the other (joined_dataset.h). What they share is that a sample is a
// pure function of (epoch, index): nothing is read ahead, nothing is remembered, any thread may ask for any sample.
//
// Which sample comes when is not decided here: sampler.h.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace trireme::data {

/// Target of positions that are not to be learned or judged (padding, masked tokens, borders of documents).
inline constexpr int64_t kIgnoredTarget = -100;

/// Where a sample's values go, each of sequence() elements.
struct SampleView {
  std::span<int64_t> inputs;
  std::span<int64_t> targets;          ///< kIgnoredTarget where not learned
  std::span<int64_t> document_starts;  ///< position in the row at which the document of this position begins, never
                                       ///< falling; 0 for one that began before the row. Padding is a document
};

/// Pads the row from position `first` on.
void pad(SampleView out, size_t first);

/// A stretch of tokens that a sample is made of, for the ledger.
struct SampleOrigin {
  std::string source;  ///< the name that the dataset was given: its path
  int64_t first_document = 0;  ///< of the source, counted from 0
  int64_t last_document = 0;  ///< included
  int64_t first_token = 0;  ///< of the source
  int64_t num_tokens = 0;  ///< inputs; the last target lies one further
  bool operator==(const SampleOrigin&) const = default;
};

class Dataset {
 public:
  virtual ~Dataset() = default;

  /// Samples of one epoch, the same in every epoch; at least 1.
  virtual int64_t num_samples() const = 0;
  /// Inputs of a sample, and as many targets.
  virtual int64_t sequence() const = 0;

  /// Writes sample `index`, in [0, num_samples()), of `epoch`.
  virtual void sample(int64_t epoch, int64_t index, SampleView out) const = 0;
  /// Targets of the sample that are learned.
  ///
  /// Cost      arithmetic; a look at `sequence` bytes where single tokens are masked
  virtual int64_t supervised_tokens(int64_t epoch, int64_t index) const = 0;
  /// What the sample is made of, in the order of its tokens.
  virtual std::vector<SampleOrigin> describe(int64_t epoch, int64_t index) const = 0;
};

}  // namespace trireme::data
