// From paths to what a run learns from and is judged by. A path may be text, JSONL, Parquet or conversations, which are
// tokenized once into a cached TokenSet whose name carries the fingerprint of texts and tokenizer (other texts make
// another set, nothing is ever stale), or a TokenSet that is there already. Validation is a part of the data that no
// sample of training reaches into: a sample of the documents, the last tokens (of packed documents the last documents),
// or paths of its own.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/data/conversation_source.h"
#include "trireme/data/data_identity.h"
#include "trireme/data/held_out.h"
#include "trireme/data/sample_stream.h"
#include "trireme/data/tokenizer.h"

namespace trireme::data {

struct DataSource {
  std::filesystem::path path;
  std::optional<double> weight;  ///< of all sources or of none; none: every sample of all of them once an epoch
};

enum class Packing {
  wrapped,  ///< the running text in windows (window_dataset.h)
  best_fit,  ///< whole documents in rows (packed_dataset.h)
  none,  ///< a row for each document
};

struct TrainingDataOptions {
  std::vector<DataSource> sources;  ///< at least one
  std::string setting;  ///< that the sources were given by: "data.train_data_path"
  std::filesystem::path val_data_path;  ///< empty: split off each source
  double val_split_fraction = 0.1;  ///< of the tokens; 0: no validation; unused with val_data_path
  Split split = Split::automatic;  ///< which ones (held_out.h)
  int64_t sequence = 256;  ///< tokens of one sample (train.max_seq_length)
  Packing packing = Packing::wrapped;
  bool apart = false;  ///< attention ends at documents: nor are their first tokens learned from others
  uint64_t seed = 42;
  std::string text_field = "text";  ///< of JSONL and Parquet
  bool append_eos = true;  ///< the tokenizer's document_separator() behind each document
  ConversationSource conversations;
  std::filesystem::path cache_dir;  ///< where tokenized texts are kept; made when missing
};

struct TrainingData {
  std::shared_ptr<const SampleStream> train;
  std::shared_ptr<const Dataset> val;  ///< null: none
  int64_t num_documents = 0, source_bytes = 0, train_tokens = 0, val_tokens = 0;  ///< bytes 0 where nobody knows
  std::string held_out;  ///< in words: "a sample of 40 of 400 documents", "the end of the text"; empty: nothing is
  double filled = 1;  ///< share of the samples' places that hold tokens
  DataIdentity identity;
};

/// Refuses in milliseconds what load_training_data would refuse later; meant for the moment before ranks start.
///
/// Cost      a stat per file; reads no text, so tokens are bounded by bytes (exact for the byte tokenizer)
/// Errors    UsageError: missing, empty or unreadable data, a fraction outside [0, 1), less than one sample
void check_training_data(const TrainingDataOptions& options);

/// Name of the fact that an identity has where a sample was held out; one without it tells of a run that held out the
/// last part.
inline constexpr const char* kSplitFact = "data.val_split";

/// Maps the data, tokenizing first where the cache has none.
///
/// Cost      one pass over texts for their hash; when not cached, one more to tokenize
/// Errors    as check_training_data; also a cache that cannot be written and texts that change while they are read
TrainingData load_training_data(const TrainingDataOptions& options, const Tokenizer& tokenizer);

}  // namespace trireme::data
