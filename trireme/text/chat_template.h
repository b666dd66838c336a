// Writes conversations in the form that a model was trained on. A family is a template that several models share;
// chat_families.cpp has a table of them. Trireme recognises a model's family from the chat_template of its
// tokenizer_config.json, or the user names it.
//
// A conversation becomes pieces of markup and content. Special tokens are recognised in markup only. Content is always
// encoded as ordinary text, so that no message can forge the end of another (chat_encoder.h). Each piece says whether
// training learns it; no code searches text for markers.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/text/settings.h"

namespace trireme::text {

struct ChatMessage {
  std::string role;  ///< "system", "user" or "assistant"
  std::string content;
  std::string input = "";  ///< of a user's message: Alpaca's `input`
  bool learned = true;     ///< of a reply: false if the data give it weight 0
  std::optional<std::string> thought =
      {};  ///< of a reply: what was thought before, if it does not stand in the content
};

struct ChatPiece {
  enum class Token { none, begin, end };
  std::string text;
  bool is_markup = false;
  bool is_learned = false;    ///< usually the assistant's content and the marker that ends it
  Token token = Token::none;  ///< in place of text: the token that begins or ends the tokenizer's texts
};

struct ChatFamily {
  struct Turn {
    const char *open, *close;
  };
  const char* name;        ///< "chatml"
  const char* examples;    ///< models that use it
  const char* begin = "";  ///< before the first message; null: the token that begins the tokenizer's texts
  Turn system = {nullptr, nullptr};  ///< null: a system message stands inside the first user message
  Turn user;
  Turn assistant = {"", ""};
  Turn system_in_user = {};      ///< markup around a system message inside the first user message
  const char* words_begin =
      "";  ///< space between a marker and a user's or assistant's content; encoded with the content
  bool trims = false;            ///< removes white space at both ends of the content
  bool trims_system = true;      ///< with `trims`: of a system message, too
  const char* stop = nullptr;    ///< token that ends a reply; null: the token that ends the tokenizer's texts
  const char* marks = "";        ///< all tokens with a meaning in this template, separated by spaces
  const char* evidence = nullptr;  ///< text that a chat_template of this family contains; null: no model has one
  const char* also = nullptr;      ///< and this text
  const char* beside = nullptr;    ///< and this one between it and the end of its expression, }}
  std::array<const char*, 10> contrary = {};  ///< and none of these: others have the same words and write more, or less
  const char* input_joint = "\n\n";  ///< between a user's instruction and input
  const char* again = "";  ///< before each of the user's turns but the first
  const char* usual_system = "";  ///< the system message if the conversation has none
  const char* usual_system_input = "";  ///< the same if the first user message has an input
  const char* no_thought = nullptr;  ///< begins the last reply of a model that is asked not to think; null: never asked
  /// Replies behind the last question begin with their thought, the last one with an empty thought if it has none.
  /// Earlier replies lose theirs.
  bool has_thoughts = false;
};

std::span<const ChatFamily> chat_families();

/// Errors    UsageError that lists the families
const ChatFamily& find_chat_family(const std::string& name);

/// The family of the model in `folder`, by its chat_template; nothing if it has none or its family is unknown.
std::optional<std::string> chat_family_of(const std::filesystem::path& folder);

/// Whether a Jinja template with the evidence of this family writes what the family does. `family.evidence` is not
/// null.
bool is_written_as(const ChatFamily& family, std::string_view jinja);

/// The family of a Jinja template: that of jinja_of(), else by the tokens that it writes.
std::optional<std::string> chat_family_of_template(std::string_view jinja);

/// The family as a Jinja template. transformers renders it to the text that render_chat() writes. `begins`: the
/// tokenizer puts a token before its texts, which a family without words for the beginning then has.
std::string jinja_of(const ChatFamily& family, bool begins);

/// The Jinja template in a tokenizer_config.json. If the file has a list of templates, the one named "default" counts.
/// Empty if there is none, or if the file is damaged.
std::string chat_template_in(std::string_view tokenizer_config);

/// The Jinja template of a model by its files, name -> bytes, or in its folder: chat_template.jinja counts, else that
/// in tokenizer_config.json. Empty if there is none.
std::string chat_template_of(const std::map<std::string, std::string>& files);
std::string chat_template_of(const std::filesystem::path& folder);

/// Gives these files another Jinja template, as transformers saves it: in chat_template.jinja, and nowhere else.
void set_chat_template(std::map<std::string, std::string>& files, const std::string& jinja);

struct RenderOptions {
  bool for_reply = false;  ///< ends with the opening of the assistant's next turn
  Learn learn = Learn::replies;
  bool thinks = true;  ///< false: the reply that ends the conversation, or is asked for, begins without thinking
};

/// Errors    UsageError for an unknown role, a system message that is not the first message, or a family that has no
///           thoughts or cannot ask a model not to think
std::vector<ChatPiece> render_chat(const ChatFamily& family, std::span<const ChatMessage> messages,
                                   const RenderOptions& options = {});

/// The pieces between a generated reply and the next: the end of the reply's turn (stop token included), the user's
/// turn with `message`, and the opening of the next reply.
std::vector<ChatPiece> render_next(const ChatFamily& family, const ChatMessage& message);

}  // namespace trireme::text
