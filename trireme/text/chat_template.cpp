#include "trireme/text/chat_template.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/json.h"
#include "trireme/text/utf8.h"

namespace trireme::text {
namespace fs = std::filesystem;

namespace {

using Token = ChatPiece::Token;

constexpr std::string_view kThoughtBegin = "<think>", kThoughtEnd = "</think>";

std::string without_breaks(std::string text, bool at_begin, bool at_end) {
  if (at_end) text.erase(text.find_last_not_of('\n') + 1);
  if (at_begin) text.erase(0, std::min(text.find_first_not_of('\n'), text.size()));
  return text;
}

// Whether this is a user's own message: the results of tools stand in messages of users, too.
bool is_question(const ChatMessage& message) {
  return message.role == "user" &&
         !(message.content.starts_with("<tool_response>") && message.content.ends_with("</tool_response>"));
}

constexpr const char *kJinjaFile = "chat_template.jinja", *kTokenizerConfig = "tokenizer_config.json";

/// Writes the pieces of one conversation.
class Renderer {
 public:
  Renderer(const ChatFamily& family, Learn learn, bool thinks = true)
      : family_(family), learn_(learn), thinks_(thinks) {}

  void begin(std::span<const ChatMessage> messages) {
    if (family_.begin == nullptr) {
      token(Token::begin, false);
    } else {
      markup(family_.begin);
    }
    if (!messages.empty() && messages[0].role == "system") return;
    const bool has_input = !messages.empty() && !messages[0].input.empty();
    const std::string usual =
        has_input && *family_.usual_system_input != '\0' ? family_.usual_system_input : family_.usual_system;
    if (!usual.empty()) markup(family_.system.open + usual + family_.system.close);
  }

  void system(const ChatMessage& message) {
    const std::string text = family_.trims_system ? words(message.content) : message.content;
    if (family_.system.open == nullptr) {
      system_ = text;
      return;
    }
    markup(family_.system.open);
    content(text, false);
    markup(family_.system.close);
  }

  void user(const ChatMessage& message) {
    const bool learned = learn_ == Learn::messages;
    if (num_users_++ > 0) markup(family_.again);
    markup(family_.user.open);
    std::string before = family_.words_begin;
    if (!system_.empty()) {
      const std::string open = family_.system_in_user.open;
      markup(open);
      content((open.empty() ? before : "") + system_, false);
      markup(family_.system_in_user.close);
      system_.clear();
      before.clear();
    }
    content(before + words(message.content), learned);
    if (!message.input.empty()) {
      markup(family_.input_joint);
      content(words(message.input), learned);
    }
    markup(family_.user.close);
  }

  // A family without a turn for the system puts its text into the next user's.
  void require_no_system() const {
    if (!system_.empty())
      throw UsageError(
          fmt::format("the chat template {} writes a system message into the user's message behind it, and "
                      "none follows; leave it out, or put it before a user's message",
                      family_.name));
  }

  // Where a reply stands: it is the last one; no message follows; the last question stands before it.
  struct Place {
    bool is_last, is_end, is_answer;
  };
  void assistant(const ChatMessage& message, const Place& place) {
    require_no_system();
    const bool learned = message.learned && (learn_ != Learn::last_reply || place.is_last);
    open_reply(place.is_end && !family_.has_thoughts);
    is_kept_out_ = !message.learned;
    if (family_.has_thoughts)
      with_thought(message, place, learned);
    else
      content(family_.words_begin + words(message.content), learned);
    close_reply(learned);
    is_kept_out_ = false;
  }

  void open_reply(bool is_end) {
    markup(family_.assistant.open);
    if (is_end && !thinks_) markup(family_.no_thought);
  }

  // The mark that ends a reply is learned; line breaks behind it are not.
  void close_reply(bool learned) {
    const std::string close = family_.assistant.close;
    if (family_.stop == nullptr) {
      markup(close, learned);
      token(Token::end, learned);
      return;
    }
    const size_t end = close.find(family_.stop) + std::string_view(family_.stop).size();
    markup(close.substr(0, end), learned);
    markup(close.substr(end));
  }

  /// The next turn is not the first one.
  void go_on() { num_users_ = 1; }

  std::vector<ChatPiece> take() {
    require_no_system();
    return std::move(pieces_);
  }

 private:
  // As Qwen3's template: a thought that is no message's own stands in the content, before </think>.
  void with_thought(const ChatMessage& message, const Place& place, bool learned) {
    std::string thought = message.thought.value_or(""), answer = message.content;
    if (const size_t end = answer.find(kThoughtEnd); !message.thought && end != std::string::npos) {
      thought = without_breaks(answer.substr(0, end), false, true);
      const size_t begin = thought.rfind(kThoughtBegin);
      if (begin != std::string::npos) thought.erase(0, begin + kThoughtBegin.size());
      thought = without_breaks(thought, true, false);
      answer = without_breaks(answer.substr(answer.rfind(kThoughtEnd) + kThoughtEnd.size()), true, false);
    }
    if (place.is_answer && (place.is_end || !thought.empty())) {
      thought = without_breaks(thought, true, true);
      if (thought.empty()) {
        markup(family_.no_thought, learned && thinks_);
      } else {  // the line break belongs to the words before it, as in what a model writes
        markup(std::string(kThoughtBegin) + "\n", learned);
        content(thought + "\n", learned);
        markup(std::string(kThoughtEnd) + "\n\n", learned);
      }
      answer = without_breaks(answer, true, false);
    }
    content(answer, learned);
  }

  std::string words(const std::string& text) const { return family_.trims ? stripped(text) : text; }

  void markup(const std::string& text, bool learned = false) { add(text, true, learned); }
  void content(const std::string& text, bool learned) { add(text, false, learned); }
  void add(const std::string& text, bool is_markup, bool learned) {
    if (!text.empty()) pieces_.push_back({.text = text, .is_markup = is_markup, .is_learned = counts(learned)});
  }
  void token(Token which, bool learned) {
    pieces_.push_back({.text = "", .is_markup = true, .is_learned = counts(learned), .token = which});
  }
  bool counts(bool learned) const { return learned || (learn_ == Learn::all && !is_kept_out_); }

  const ChatFamily& family_;
  Learn learn_;
  bool thinks_;
  std::vector<ChatPiece> pieces_;
  std::string system_;  // waits for the first user's turn
  int num_users_ = 0;
  bool is_kept_out_ = false;  // of a reply that the data give weight 0
};

}  // namespace

std::string chat_template_in(std::string_view tokenizer_config) {
  const nlohmann::json config = base::parse_json_if_sound(tokenizer_config);
  if (!config.is_object()) return "";
  const auto at = config.find("chat_template");
  if (at == config.end()) return "";
  if (at->is_string()) return at->get<std::string>();
  if (!at->is_array()) return "";
  for (const nlohmann::json& entry : *at) {
    if (!entry.is_object()) continue;
    const auto name = entry.find("name"), text = entry.find("template");
    if (name != entry.end() && *name == "default" && text != entry.end() && text->is_string())
      return text->get<std::string>();
  }
  return "";
}

std::string chat_template_of(const std::map<std::string, std::string>& files) {
  if (const auto own = files.find(kJinjaFile); own != files.end() && !own->second.empty()) return own->second;
  const auto config = files.find(kTokenizerConfig);
  return config == files.end() ? "" : chat_template_in(config->second);
}

std::string chat_template_of(const fs::path& folder) {
  std::map<std::string, std::string> files;
  for (const char* name : {kJinjaFile, kTokenizerConfig})
    if (fs::exists(folder / name)) files[name] = base::read_side_file(folder / name);
  return chat_template_of(files);
}

void set_chat_template(std::map<std::string, std::string>& files, const std::string& jinja) {
  files[kJinjaFile] = jinja;
  const auto config = files.find(kTokenizerConfig);
  if (config == files.end() || chat_template_in(config->second).empty()) return;
  auto value = base::parse_json<nlohmann::ordered_json>(config->second);  // sound, as it has a template
  value.erase("chat_template");
  config->second = base::json_text(value, 2) + "\n";
}

std::optional<std::string> chat_family_of(const fs::path& folder) {
  return chat_family_of_template(chat_template_of(folder));
}

std::vector<ChatPiece> render_chat(const ChatFamily& family, std::span<const ChatMessage> messages,
                                   const RenderOptions& options) {
  if (!options.thinks && family.no_thought == nullptr)
    throw UsageError(
        fmt::format("enable_thinking false has no meaning in the chat template {}; leave it out", family.name));
  Renderer renderer(family, options.learn, options.thinks);
  renderer.begin(messages);
  size_t last_reply = 0, last_question = messages.size();
  for (size_t i = 0; i < messages.size(); ++i) {
    if (messages[i].role == "assistant") last_reply = i;
    if (is_question(messages[i])) last_question = i;
    if (messages[i].thought && !family.has_thoughts)
      throw UsageError(
          fmt::format("the chat template {} has no place for the thought of a reply; write it into the reply's text, "
                      "or name the template qwen3",
                      family.name));
  }
  for (size_t i = 0; i < messages.size(); ++i) {
    const ChatMessage& m = messages[i];
    if (m.role == "system") {
      if (i > 0) throw UsageError("a system message comes after other messages; it must be the first");
      renderer.system(m);
    } else if (m.role == "user") {
      renderer.user(m);
    } else if (m.role == "assistant") {
      renderer.assistant(m, {i == last_reply, i + 1 == messages.size(), i > last_question});
    } else {
      throw UsageError(fmt::format("a message has the role '{}'; use system, user or assistant", m.role));
    }
  }
  if (options.for_reply) renderer.open_reply(true);
  return renderer.take();
}

std::vector<ChatPiece> render_next(const ChatFamily& family, const ChatMessage& message) {
  Renderer renderer(family, Learn::replies);
  renderer.close_reply(true);
  renderer.go_on();
  renderer.user(message);
  renderer.open_reply(true);
  return renderer.take();
}

}  // namespace trireme::text
