// Tokenizes files of conversations, with a loss mask. Each conversation is a document of the set.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/data/conversation.h"
#include "trireme/data/token_set.h"
#include "trireme/text/chat_encoder.h"

namespace trireme::data {

struct ConversationOptions {
  std::optional<ConversationFormat> format;  ///< empty: recognised record by record
  std::optional<AlpacaColumns> columns = {};  ///< of Alpaca's form; empty: any of the usual names
  text::Learn learn = text::Learn::replies;
  int64_t max_tokens = 0;  ///< the most for one conversation; 0: no limit
  bool drop_long = false;  ///< leaves longer conversations out; false: cuts their end off
  std::optional<int64_t> max_documents = {};  ///< reads only the first conversations; empty: all
  int num_threads = 1;
  std::function<void(double done)> progress = {};
};

struct ConversationCounts : ConversationTally {
  int64_t bytes = 0;  ///< of the files
  int64_t tokens = 0, learned = 0;
  uint64_t source_hash = 0;  ///< of the files' bytes
};

/// "12,430 conversations, 31 % of 4.95 M tokens learned; 12 cut at 2,048 tokens, 1 left out because nothing of it is
/// learned"
std::string tally_text(const ConversationTally& tally, int64_t tokens, int64_t learned);

/// One conversation as ids and mask; empty if there is nothing to learn in it. Adds to `counts`.
///
/// Errors    UsageError that does not name file and line
text::ChatTokens render_conversation(const Conversation& conversation, const text::ChatFamily& family,
                                     const text::ChatEncoder& encoder, const ConversationOptions& options,
                                     ConversationCounts& counts);

/// Reads files and appends their conversations to `writer`, which has a mask. Commits nothing.
///
/// Cost      one pass over the files, encoded on `num_threads`
/// Memory    about 2 MB a thread; files are mapped
/// Errors    UsageError naming file, line and field; also if all tokens are learned and need not be, or none, because
///           then the data or the template is not what the settings say
ConversationCounts tokenize_conversations(std::span<const std::filesystem::path> files, const text::ChatFamily& family,
                                          const text::Tokenizer& tokenizer, TokenSetWriter& writer,
                                          const ConversationOptions& options = {});

struct ConversationSet {
  TokenSetAbout about;
  ConversationCounts counts;
};

/// Does the same into a new set at `prefix`, and commits it.
ConversationSet make_conversation_set(const std::filesystem::path& prefix, std::span<const std::filesystem::path> files,
                                      const text::ChatFamily& family, const text::Tokenizer& tokenizer,
                                      const ConversationOptions& options = {});

}  // namespace trireme::data
