// Files of conversations to tokens with a loss mask: each conversation is a document of the set.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/data/chat_encoder.h"
#include "trireme/data/conversation.h"
#include "trireme/data/token_set.h"

namespace trireme::data {

struct ConversationOptions {
  std::optional<ConversationFormat> format;  ///< none: told record by record
  Learn learn = Learn::replies;
  int64_t max_tokens = 0;  ///< of a conversation; 0: no limit
  bool drop_long = false;  ///< longer ones are left out; otherwise their end is cut off
  int num_threads = 1;
  std::function<void(double done)> progress = {};
};

struct ConversationCounts {
  int64_t conversations = 0;  ///< read
  int64_t cut = 0;            ///< longer than max_tokens, learned up to there
  int64_t dropped = 0;        ///< longer, left out
  int64_t without_reply = 0;  ///< nothing to learn in them (or not before max_tokens): left out
  int64_t bytes = 0;          ///< of the files
  int64_t tokens = 0, learned = 0;
  uint64_t source_hash = 0;  ///< of the files' bytes

  /// "12,430 conversations, 31 % of 4.95 M tokens learned; 12 cut at 2,048 tokens, 3 without a reply left out"
  std::string text(const ConversationOptions& options) const;
};

/// One conversation as ids and mask; empty where there is nothing to learn in it. `counts` is added to.
///
/// Errors    UsageError, without a place
ChatTokens render_conversation(const Conversation& conversation, const ChatFamily& family, const ChatEncoder& encoder,
                               const ConversationOptions& options, ConversationCounts& counts);

/// Reads files and appends their conversations to `writer`, which has a mask. Nothing is committed.
///
/// Cost      one pass over the files, encoded on `num_threads`
/// Memory    about 2 MB a thread; files are mapped
/// Errors    UsageError naming file, line and field; all tokens learned, or none: then the mask says nothing, and the
///           data or the template is not what it is taken for
ConversationCounts tokenize_conversations(std::span<const std::filesystem::path> files, const ChatFamily& family,
                                          const Tokenizer& tokenizer, TokenSetWriter& writer,
                                          const ConversationOptions& options = {});

struct ConversationSet {
  TokenSetAbout about;
  ConversationCounts counts;
};

/// The same as a set of its own at `prefix`, which appears at the end.
ConversationSet make_conversation_set(const std::filesystem::path& prefix, std::span<const std::filesystem::path> files,
                                      const ChatFamily& family, const Tokenizer& tokenizer,
                                      const ConversationOptions& options = {});

}  // namespace trireme::data
