// Opens a data path as a TokenSet. Text and conversations are tokenized into a cache, where the next run finds them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "trireme/data/conversation_source.h"
#include "trireme/data/token_set.h"
#include "trireme/text/tokenizer.h"

namespace trireme::data {

struct SourceOptions {
  std::string setting;              ///< the setting that named the path, for errors
  std::string text_field = "text";  ///< of JSONL and Parquet
  bool append_eos = true;           ///< the tokenizer's document_separator() after each document
  ConversationSource conversations;
  std::filesystem::path cache_dir;
  int64_t vocab_size = 0;  ///< the model's; ids of sets of an unknown tokenizer have to lie below. 0: any id may be
};

/// True if nothing says which tokenizer made the set: Megatron's pairs, LitGPT's folders.
bool is_of_unknown_tokenizer(const TokenSet& set);

/// An upper bound of the tokens at `path`, without reading text: bytes plus separators. Exact for a token set, and
/// beyond any number for Parquet.
/// Errors    UsageError, one sentence: the path does not exist, or holds no text
int64_t most_tokens(const std::filesystem::path& path, const SourceOptions& options);

/// Opens or makes the set. If several processes want the same set, one makes it and the others wait.
///
/// Cost      a pass over the text for its hash; tokenizing, if the set is not cached
/// Errors    UsageError: those of most_tokens; a set of another tokenizer, or with ids outside its vocabulary, or with
///           a mask that is none (up to a million tokens are looked at, others when they are read: TokenSet::copy); a
///           cache that cannot be written
std::shared_ptr<const TokenSet> open_source(const std::filesystem::path& path, const text::Tokenizer& tokenizer,
                                            const SourceOptions& options);

}  // namespace trireme::data
