// Makes a run's training and validation data from paths. A path may be a TokenSet, or text, JSONL, Parquet or
// conversations. All but a TokenSet are tokenized once, into a cached TokenSet. Its name contains the fingerprint of
// texts and tokenizer, so other texts make another set and no set is ever stale. The validation data is a sample of the
// documents, the last tokens (with packing the last documents), or a path of its own. No training sample reaches into
// it.
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
#include "trireme/data/settings.h"
#include "trireme/data/token_range.h"
#include "trireme/text/tokenizer.h"

namespace trireme::data {

struct DataSource {
  std::filesystem::path path;
  std::optional<double> weight;  ///< all sources have one or none has; without weights, an epoch has every sample once
};

struct TrainingDataOptions {
  std::vector<DataSource> sources;  ///< at least one
  std::string setting;  ///< the setting that names the sources: "data.train_data_path"
  std::filesystem::path val_data_path;  ///< empty: a part of each source is held out
  double val_split_fraction = 0.1;  ///< share of the tokens; 0: no validation; unused with val_data_path
  Split split = Split::automatic;  ///< which part (held_out.h)
  int64_t sequence = 256;  ///< tokens of one sample (train.max_seq_length)
  Packing packing = Packing::wrapped;
  bool apart = false;  ///< attention stays inside documents, and their first tokens are not learned
  uint64_t seed = 42;
  std::string text_field = "text";  ///< of JSONL and Parquet
  bool append_eos = true;  ///< the tokenizer's document_separator() after each document
  ConversationSource conversations;
  bool keep_long = false;  ///< sources that are sets keep all parts of long conversations, as in earlier versions
  std::filesystem::path cache_dir;  ///< for tokenized texts; made if missing
  int64_t vocab_size = 0;  ///< the model's, for ids of an unknown tokenizer; 0: any id may be
};

struct TrainingData {
  std::shared_ptr<const SampleStream> train;
  std::shared_ptr<const Dataset> val;  ///< null: no validation
  int64_t num_documents = 0, source_bytes = 0, train_tokens = 0, val_tokens = 0;  ///< source_bytes 0: unknown
  std::string held_out;  ///< "a sample of 40 of 400 documents", "the end of the text"; empty: nothing
  double filled = 1;  ///< share of the samples' places that hold tokens
  bool of_unknown_tokenizer = false;  ///< some of it
  std::string chat_template;  ///< of the first source; empty: plain text
  std::shared_ptr<const TokenRange> examples;  ///< what is held out, else what is trained on, of the first such source
  std::vector<std::string> conversations;  ///< "chat.jsonl as chatml: 50 conversations, ...", for each source of them
  DataIdentity identity;
  uint64_t held_out_hash = 0;  ///< of held-out data that are no part of `identity`; 0: there are none
};

/// Refuses in milliseconds, before ranks start, what load_training_data would refuse later.
///
/// Cost      a stat per file; reads no text, because bytes are an upper bound of tokens (exact for the byte tokenizer)
/// Errors    UsageError: missing, empty or unreadable data, a fraction outside [0, 1), less than one sample
void check_training_data(const TrainingDataOptions& options);

/// The fact that a DataIdentity has if a sample was held out. Without this fact, the run held out the last part.
inline constexpr const char* kSplitFact = "data.val_split";

/// The fact that a DataIdentity has if conversations of a tokenized set were cut or dropped. Without this fact, the run
/// had none, or learned all of their parts (TrainingDataOptions::keep_long).
inline constexpr const char* kLongFact = "data.long_conversations";

/// Maps the data. Tokenizes what is not in the cache.
///
/// Cost      one pass over texts for their hash; one more to tokenize texts that are not in the cache
/// Errors    as check_training_data; also a cache that cannot be written, and texts that change while they are read
TrainingData load_training_data(const TrainingDataOptions& options, const text::Tokenizer& tokenizer);

}  // namespace trireme::data
