// From text files to the tokens a run learns from and is judged by. The text is tokenized once into a cached
// TokenSet, whose name carries the fingerprint of texts and tokenizer: other texts make another file,
// nothing is ever stale. Several processes may build the same corpus at once; each renames whole files
// into place. Validation is one contiguous tail of the text, so no window of training reaches into it.
#pragma once

#include <cstdint>
#include <filesystem>

#include "trireme/data/token_view.h"
#include "trireme/data/tokenizer.h"

namespace trireme::data {

struct CorpusOptions {
  std::filesystem::path train_data_path;  ///< a text file, or a folder of .txt files
  std::filesystem::path val_data_path;    ///< likewise; empty: split it off the training text
  double val_split_fraction = 0.1;  ///< of the tokens, the last ones; 0: no validation; unused with val_data_path
  int64_t sequence = 256;  ///< tokens of one sample (train.max_seq_length)
  std::filesystem::path cache_dir;  ///< where tokenized texts are kept; made when missing
};

struct Corpus {
  TokenView train;
  TokenView val;  ///< empty when there is no validation
  int64_t num_documents = 0;
  int64_t source_bytes = 0;  ///< of text, both parts together
  int64_t sequence = 0;
  uint64_t fingerprint = 0;  ///< of texts, tokenizer, sequence and split: equal means the same samples
};

/// Refuses in milliseconds what load_corpus would refuse later; meant for the moment before ranks start.
///
/// Cost      a stat per file; reads no text, so tokens are bounded by bytes (exact for the byte tokenizer)
/// Errors    UsageError: missing, empty or unreadable text, a fraction outside [0, 1), less than one sample
void check_corpus(const CorpusOptions& options);

/// Maps the corpus, tokenizing it first where the cache has none.
///
/// Cost      one pass over the text for its hash; when not cached, one more to tokenize
/// Errors    as check_corpus; also a cache that cannot be written and texts that change while they are read
Corpus load_corpus(const CorpusOptions& options, const Tokenizer& tokenizer);

/// UsageError when a run that began on data `saved` would go on with `corpus`: its order would be another.
void check_same_data(const Corpus& corpus, uint64_t saved_fingerprint);

}  // namespace trireme::data
