// Conversations as text that a model was trained on. The common families are data (chat_template.cpp); which one a
// model speaks is read from the chat_template of its tokenizer_config.json, or named.
//
// A conversation becomes pieces: markup, whose special tokens count, and content, which is encoded as ordinary text
// whatever it says, so that no message can forge the end of another.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/data/tokenizer.h"

namespace trireme::data {

struct ChatMessage {
  std::string role;  ///< "system", "user" or "assistant"
  std::string content;
};

struct ChatPiece {
  std::string text;
  bool is_markup = false;
  bool is_reply = false;  ///< what the assistant says, with the mark that ends it: what training supervises
};

struct ChatFamily {
  const char* name;      ///< "chatml"
  const char* examples;  ///< models that speak it
  const char* begin;     ///< before everything
  struct Turn {
    const char *open, *close;
  } system, user, assistant;  ///< system.open null: a system message goes in front of the first user's words
  const char* system_joint;   ///< what then stands between the two
  bool trims;                 ///< content without white space at its ends
  const char* stop;           ///< token that ends a reply
  const char* evidence;       ///< a chat_template that speaks it holds this
};

std::span<const ChatFamily> chat_families();

/// Errors    UsageError naming the families there are
const ChatFamily& find_chat_family(const std::string& name);

/// The family of the model in `folder`, by its chat_template; nothing where it has none, or one of no family.
std::optional<std::string> chat_family_of(const std::filesystem::path& folder);

/// Renders messages; with `for_reply` the opening of the assistant's next turn stands at the end.
///
/// Errors    UsageError for a role that is not known, and a system message that is not the first
std::vector<ChatPiece> render_chat(const ChatFamily& family, std::span<const ChatMessage> messages, bool for_reply);

/// What comes after a reply that has been generated, up to its stop token: the rest of that turn, and `message`.
std::vector<ChatPiece> render_next(const ChatFamily& family, const ChatMessage& message);

/// Ids of pieces, and for each whether it is supervised.
struct ChatTokens {
  std::vector<int32_t> ids;
  std::vector<bool> is_reply;
};
ChatTokens encode_chat(const Tokenizer& tokenizer, std::span<const ChatPiece> pieces);

}  // namespace trireme::data
