// Families of chat templates as Jinja, the language in which models' files have them: transformers, llama.cpp and
// others then write what training wrote.
#include <algorithm>
#include <initializer_list>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/text.h"
#include "trireme/text/chat_template.h"

namespace trireme::text {
namespace {

// 'a\nb', as Jinja has it; "" for no text.
std::string quoted(const std::string& text) {
  if (text.empty()) return "";
  std::string out = "'";
  for (const char c : text) {
    if (c == '\n') {
      out += "\\n";
      continue;
    }
    if (c == '\'' || c == '\\') out += '\\';
    out += c;
  }
  return out + "'";
}

// A line that writes these expressions one behind the other.
std::string say(std::initializer_list<std::string> expressions) {
  std::vector<std::string> parts;
  std::ranges::copy_if(expressions, std::back_inserter(parts), [](const auto& part) { return !part.empty(); });
  return parts.empty() ? "" : "{{- " + base::join(parts, " + ") + " }}\n";
}

/// Each line begins with a mark that takes away the line break before it. So the template writes nothing but what say()
/// writes.
class JinjaWriter {
 public:
  JinjaWriter(const ChatFamily& family, bool begins) : f_(family), begins_(begins) {}

  std::string write() {
    begin();
    out_ += "{%- set ns = namespace(system='', users=0) %}\n";
    if (f_.has_thoughts) find_question();
    out_ += "{%- for message in messages %}\n";
    out_ += "{%- if message['role'] == 'system' %}\n";
    system();
    out_ += "{%- elif message['role'] == 'user' %}\n";
    user();
    out_ += "{%- elif message['role'] == 'assistant' %}\n";
    if (f_.has_thoughts) {
      reply_with_thought();
    } else {
      open_reply("loop.last and ");
      close_reply();
    }
    out_ += "{%- endif %}\n{%- endfor %}\n{%- if add_generation_prompt %}\n";
    open_reply("");
    return out_ + "{%- endif %}";
  }

 private:
  void begin() {
    out_ = std::string("{#- ") + f_.name + " #}\n";  // families that write the same messages stay apart
    if (f_.begin != nullptr) out_ += say({quoted(f_.begin)});
    if (f_.begin == nullptr && begins_) out_ += say({"bos_token"});
    if (*f_.usual_system == '\0') return;
    out_ += "{%- if messages[0]['role'] != 'system' %}\n";
    out_ += say({quoted(std::string(f_.system.open) + f_.usual_system + f_.system.close)}) + "{%- endif %}\n";
  }

  void system() {
    const std::string text = words(f_.trims_system);
    out_ += f_.system.open == nullptr ? "{%- set ns.system = " + text + " %}\n"
                                      : say({quoted(f_.system.open), text, quoted(f_.system.close)});
  }

  void user() {
    if (*f_.again != '\0') out_ += "{%- if ns.users > 0 %}\n" + say({quoted(f_.again)}) + "{%- endif %}\n";
    if (*f_.again != '\0') out_ += "{%- set ns.users = ns.users + 1 %}\n";
    const std::string open = f_.user.open, words_begin = f_.words_begin, close = quoted(f_.user.close);
    const std::string alone = say({quoted(open + words_begin), words(), close});
    if (f_.system.open != nullptr) {
      out_ += alone;
      return;
    }
    const std::string around = f_.system_in_user.open;
    out_ += "{%- if ns.system %}\n" + say({quoted(open + (around.empty() ? words_begin : around)), "ns.system",
                                           quoted(f_.system_in_user.close), words(), close});
    out_ += "{%- set ns.system = '' %}\n{%- else %}\n" + alone + "{%- endif %}\n";
  }

  // `where`: a condition of the last reply.
  void open_reply(const std::string& where) {
    out_ += say({quoted(f_.assistant.open)});
    if (f_.no_thought == nullptr) return;
    out_ += "{%- if " + where + "enable_thinking is defined and not enable_thinking %}\n";
    out_ += say({quoted(f_.no_thought)}) + "{%- endif %}\n";
  }

  void close_reply() {
    out_ += say({quoted(f_.words_begin), words(), quoted(f_.assistant.close)});
    if (f_.stop == nullptr) out_ += say({"eos_token"});
  }

  // As Qwen3's own template (Renderer::with_thought in chat_template.cpp).
  void reply_with_thought() {
    out_ +=
        "{%- set thought = '' %}\n{%- set text = message['content'] %}\n"
        "{%- if message['reasoning_content'] is string %}\n{%- set thought = message['reasoning_content'] %}\n"
        "{%- elif '</think>' in text %}\n"
        "{%- set thought = text.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}\n"
        "{%- set text = text.split('</think>')[-1].lstrip('\\n') %}\n{%- endif %}\n";
    out_ += say({quoted(f_.assistant.open)});
    out_ += "{%- if loop.index0 > ns.question and (loop.last or thought) %}\n";
    out_ += say({"'<think>\\n'", "thought.strip('\\n')", "'\\n</think>\\n\\n'", "text.lstrip('\\n')"});
    out_ += "{%- else %}\n" + say({"text"}) + "{%- endif %}\n" + say({quoted(f_.assistant.close)});
  }

  // The place of the last message that is a user's own.
  void find_question() {
    out_ +=
        "{%- set ns.question = messages | length %}\n{%- for message in messages %}\n"
        "{%- if message['role'] == 'user' and not (message['content'].startswith('<tool_response>') and "
        "message['content'].endswith('</tool_response>')) %}\n"
        "{%- set ns.question = loop.index0 %}\n{%- endif %}\n{%- endfor %}\n";
  }

  std::string words(bool trims = true) const {
    return f_.trims && trims ? "(message['content'] | trim)" : "message['content']";
  }

  const ChatFamily& f_;
  bool begins_;
  std::string out_;
};

}  // namespace

std::string jinja_of(const ChatFamily& family, bool begins) { return JinjaWriter(family, begins).write(); }

std::optional<std::string> chat_family_of_template(std::string_view jinja) {
  if (jinja.empty()) return std::nullopt;
  const std::span<const ChatFamily> families = chat_families();
  const auto is_ours = [&](const ChatFamily& f) { return jinja == jinja_of(f, true) || jinja == jinja_of(f, false); };
  if (const auto own = std::ranges::find_if(families, is_ours); own != families.end()) return own->name;
  for (const ChatFamily& family : families)
    if (family.evidence != nullptr && jinja.find(family.evidence) != std::string_view::npos)
      return is_written_as(family, jinja) ? std::optional<std::string>(family.name) : std::nullopt;
  return std::nullopt;
}

}  // namespace trireme::text
