// Makes a run's training and validation data from labelled texts, which it holds in memory: 4 bytes a token.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "trireme/data/labeled_texts.h"
#include "trireme/data/training_data.h"
#include "trireme/text/tokenizer.h"

namespace trireme::data {

/// The tokens of a text as a classifier reads it, with what the tokenizer's template puts around a text ([CLS], [SEP]).
/// Of a longer text, the end is cut off, but not what the template puts behind it. `padding`: at a text's end this
/// token is left out, because a decoder is judged at the last token that is none (transformers'
/// GenericForSequenceClassification).
class TextEncoder {
 public:
  TextEncoder(const text::Tokenizer& tokenizer, int64_t most_tokens, std::optional<int64_t> padding = {});

  struct Encoded {
    std::vector<int32_t> tokens;
    bool cut = false;
  };
  /// Errors    UsageError naming the place of a text without a token
  Encoded encode(const LabeledText& text) const;

 private:
  const text::Tokenizer& tokenizer_;
  int64_t most_tokens_, num_behind_ = 0;
  std::optional<int64_t> padding_;
};

struct LabeledData {
  TrainingData data;
  std::set<int32_t> ends;  ///< last tokens of all texts
  std::string about;  ///< "5,000 texts with 2 labels (no 48 %, yes 52 %), ..."
};

/// Reads and tokenizes the files of data.train_data_path (a folder may hold train.jsonl and val.jsonl). What is held
/// out is data.val_data_path, or a sample of the texts that does not depend on data.seed, or the last ones.
///
/// Cost      reads and tokenizes all texts, on this thread
/// Errors    UsageError: files, lines and labels (labeled_texts.h); nothing left to learn or to hold out
LabeledData load_labeled_data(const DataSettings& settings, int64_t sequence, const std::vector<std::string>& labels,
                              const text::Tokenizer& tokenizer, std::optional<int64_t> padding = {});

}  // namespace trireme::data
