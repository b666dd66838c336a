// How a run treats conversations among its data: which files hold some, how they are written, what of them is learned.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/data/tokenize_conversations.h"

namespace trireme::data {

struct ConversationSource {
  enum class Use { found, never, always };
  Use use = Use::found;  ///< found: where a file's first record is a conversation
  ConversationOptions options;
  std::optional<std::string> chat_template;  ///< none: that of the model in `folder`; for Alpaca's form alpaca
  std::filesystem::path folder;              ///< of the tokenizer

  /// The files of conversations at `path`: itself, or those of a folder (*.json, *.jsonl), sorted; empty where it is
  /// other text.
  ///
  /// Errors    UsageError: with Use::always a folder without any
  std::vector<std::filesystem::path> files(const std::filesystem::path& path) const;

  /// The template to write them with.
  ///
  /// Errors    UsageError asking for a name
  const ChatFamily& family(std::span<const std::filesystem::path> files) const;

  /// Changes with all that decides about the tokens of a file.
  uint64_t fingerprint(const ChatFamily& family) const;
};

}  // namespace trireme::data
