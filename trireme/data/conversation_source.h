// How a run treats conversations in its data: which files hold them, which template writes them, and what it learns.
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
  Use use = Use::found;  ///< found: only if the first record of the first file that is not empty is a conversation
  ConversationOptions options;
  std::optional<std::string> chat_template;  ///< empty: the template of the model in `folder`; alpaca for Alpaca's form
  std::filesystem::path folder;  ///< of the tokenizer

  /// The files of conversations at `path`: the file itself, or the *.json, *.jsonl and *.ndjson of a folder and of all
  /// folders below it that are not empty, sorted by the bytes of their names. Empty for other text.
  /// Errors    UsageError: a folder without any, or a file of text, with Use::always; a folder of conversations and
  /// text
  ///           (or tables)
  std::vector<std::filesystem::path> files(const std::filesystem::path& path) const;

  /// The template that writes the conversations. Errors    UsageError that asks for a template's name
  const text::ChatFamily& family(std::span<const std::filesystem::path> files) const;

  /// Differs if any option differs that changes a file's tokens.
  uint64_t fingerprint(const text::ChatFamily& family) const;
};

/// What is said of files of both kinds, which would need different tokens: one file of each is named.
std::string mixed_kinds(const std::filesystem::path& conversations, const std::filesystem::path& text);

}  // namespace trireme::data
