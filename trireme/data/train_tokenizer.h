// Trains a tokenizer on files of text: reads and cuts them on all cores (text_source.h, piece_counts.h), then learns
// the merges (bpe_trainer.h).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "trireme/data/text_source.h"
#include "trireme/text/bpe_trainer.h"
#include "trireme/text/trained_tokenizer.h"

namespace trireme::data {

struct TrainTokenizerOptions {
  std::vector<std::string> sources;  ///< files and folders
  std::string text_field = "text";
  std::string pattern = "gpt2";  ///< pattern_named
  text::BpeTrainerOptions bpe;
  int64_t block_bytes = kTextBlockBytes;
  std::function<void(double done)> reading = [](double) {};
};

struct TrainTokenizerResult {
  text::TrainedBpe trained;
  int64_t source_bytes = 0, num_pieces = 0, num_distinct_pieces = 0;
};

/// Errors    UsageError: what TextFiles, TextSource, pattern_named and train_bpe refuse
TrainTokenizerResult train_tokenizer(const TrainTokenizerOptions& options);

}  // namespace trireme::data
