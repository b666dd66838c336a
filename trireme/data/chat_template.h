// Conversations as text that a model was trained on. The common families are data (chat_families.cpp); which one a
// model speaks is read from the chat_template of its tokenizer_config.json, or named.
//
// A conversation becomes pieces: markup, whose special tokens count, and content, which is encoded as ordinary text
// whatever it says, so that no message can forge the end of another (chat_encoder.h). What training learns is decided
// here, piece by piece, and nowhere by looking for marks in text.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::data {

struct ChatMessage {
  std::string role;  ///< "system", "user" or "assistant"
  std::string content;
  std::string input = "";  ///< of a user: what the words are about (Alpaca's `input`)
  bool learned = true;     ///< of an assistant: false where the data gives the message the weight 0
};

struct ChatPiece {
  enum class Token { none, begin, end };
  std::string text;
  bool is_markup = false;
  bool is_learned = false;    ///< by default: what the assistant says, with the mark that ends it
  Token token = Token::none;  ///< not text but the token that begins or ends the tokenizer's texts, where it has one
};

struct ChatFamily {
  const char* name;      ///< "chatml"
  const char* examples;  ///< models that speak it
  const char* begin;     ///< before everything; null: what the tokenizer puts before a text
  struct Turn {
    const char *open, *close;
  } system, user, assistant;  ///< system.open null: a system message goes in front of the first user's words
  Turn system_in_user;        ///< what then stands around it
  const char* words_begin;    ///< the space between a mark and the words of a user or assistant; one token with them
  bool trims;                 ///< content without white space at its ends
  const char* stop;           ///< token that ends a reply; null: the one that ends the tokenizer's texts
  const char* marks;          ///< all tokens that mean something in it, a space between them
  const char* evidence;       ///< a chat_template that speaks it holds this; null: no token tells it
  const char* input_joint = "\n\n";        ///< between a user's words and their input
  const char* again = "";                  ///< before the user's later turns
  const char* usual_system = "";           ///< what the model is told where the conversation does not say
  const char* usual_system_input = "";     ///< the same where the first user's words have an input
};

std::span<const ChatFamily> chat_families();

/// Errors    UsageError naming the families there are
const ChatFamily& find_chat_family(const std::string& name);

/// The family of the model in `folder`, by its chat_template; nothing where it has none, or one of no family.
std::optional<std::string> chat_family_of(const std::filesystem::path& folder);

/// The family that a Jinja template is of, by the tokens it writes.
std::optional<std::string> chat_family_of_template(std::string_view jinja);

/// The Jinja template in a tokenizer_config.json: a string, or the one named "default" of a list. Empty where there is
/// none; side files of models are read leniently.
std::string chat_template_in(std::string_view tokenizer_config);

/// What training learns of a conversation.
enum class Learn {
  replies,     ///< what the assistant says, each with the mark that ends it
  last_reply,  ///< of the last one
  messages,    ///< what users and assistant say: all but markup and system messages
};

struct RenderOptions {
  bool for_reply = false;  ///< the opening of the assistant's next turn stands at the end
  Learn learn = Learn::replies;
};

/// Errors    UsageError for a role that is not known, and a system message that is not the first
std::vector<ChatPiece> render_chat(const ChatFamily& family, std::span<const ChatMessage> messages,
                                   const RenderOptions& options = {});

/// What comes after a reply that has been generated, up to its stop token: the rest of that turn, and `message`.
std::vector<ChatPiece> render_next(const ChatFamily& family, const ChatMessage& message);

}  // namespace trireme::data
