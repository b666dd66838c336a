// One data path as a TokenSet: a set that is there is opened, text and conversations are tokenized into a cache and
// found there the next time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "trireme/data/conversation_source.h"
#include "trireme/data/token_set.h"
#include "trireme/data/tokenizer.h"

namespace trireme::data {

struct SourceOptions {
  std::string setting;              ///< that the path was given by, for errors
  std::string text_field = "text";  ///< of JSONL and Parquet
  bool append_eos = true;           ///< the tokenizer's document_separator() behind each document
  ConversationSource conversations;
  std::filesystem::path cache_dir;
};

/// The most tokens that the path can have, by stat alone: bytes and separators; of a token set its own number.
/// Errors    UsageError, one sentence: nothing there, no text in it
int64_t most_tokens(const std::filesystem::path& path, const SourceOptions& options);

/// Opens or makes the set. Processes that want the same one wait for the first.
///
/// Cost      a pass over the text for its hash; where the cache has none, tokenizing
/// Errors    UsageError: as most_tokens; a set of another tokenizer; a cache that cannot be written
std::shared_ptr<const TokenSet> open_source(const std::filesystem::path& path, const Tokenizer& tokenizer,
                                            const SourceOptions& options);

}  // namespace trireme::data
