#include "trireme/data/preference_pairs.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/not_text.h"
#include "trireme/data/conversation.h"
#include "trireme/data/record_json.h"

namespace trireme::data {
namespace {

using nlohmann::json;
using Messages = std::vector<text::ChatMessage>;

bool same_message(const text::ChatMessage& a, const text::ChatMessage& b) {
  return a.role == b.role && a.content == b.content && a.thought == b.thought;
}

class Record {
 public:
  Record(const json& object, const std::string& place) : object_(object), place_(place) {}

  bool has(const char* key) const {
    const auto found = object_.find(key);
    return found != object_.end() && !found->is_null();
  }
  bool is_text(const char* key) const { return value(key).is_string(); }
  std::string text(const char* key) const {
    if (!is_text(key)) refuse(key, "is a list of messages, but another key of the pair is text");
    return value(key).get<std::string>();
  }
  Messages messages(const char* key) const {
    const json& list = value(key);
    if (!list.is_array()) refuse(key, "is neither a text nor a list of messages");
    return parse_conversation(json{{"messages", list}}.dump(), fmt::format("{}: {}", place_, key),
                              ConversationFormat::messages)
        .messages;
  }
  bool thinks() const {
    return !has("chat_template_kwargs") || parse_thinks(object_["chat_template_kwargs"].dump(), place_);
  }
  [[noreturn]] void refuse(const char* key, const char* what) const {
    throw UsageError(fmt::format("{}: \"{}\" {}", place_, key, what));
  }

 private:
  const json& value(const char* key) const {
    const auto found = object_.find(key);
    if (found == object_.end() || found->is_null()) {
      if (has("completion") && has("label"))
        refuse(key,
               "is missing: a reply with a label is a record of KTO, which is not built; a pair has \"chosen\" and "
               "\"rejected\"");
      refuse(key, "is missing; a pair has \"chosen\" and \"rejected\", and \"prompt\" if they do not begin with it");
    }
    return *found;
  }

  const json& object_;
  const std::string& place_;
};

// What both replies begin with is the prompt, without a space at its end.
void take_common_start(PreferencePair& p) {
  const auto [chosen, rejected] = std::ranges::mismatch(p.chosen_text, p.rejected_text);
  auto length = static_cast<size_t>(chosen - p.chosen_text.begin());
  while (length > 0 && length < p.chosen_text.size() && (p.chosen_text[length] & 0xC0) == 0x80) --length;  // UTF-8
  if (length > 0 && p.chosen_text[length - 1] == ' ') --length;
  p.prompt_text = p.chosen_text.substr(0, length);
  p.chosen_text.erase(0, length);
  p.rejected_text.erase(0, length);
}

void take_common_messages(PreferencePair& p) {
  const auto [chosen, rejected] = std::ranges::mismatch(p.chosen, p.rejected, same_message);
  p.prompt.assign(p.chosen.begin(), chosen);
  p.chosen.erase(p.chosen.begin(), chosen);
  p.rejected.erase(p.rejected.begin(), rejected);
}

// A prompt as text is the question of replies that stand alone. Whole conversations have it already.
void take_question(PreferencePair& p, std::string question) {
  const auto first = p.prompt.begin() + (!p.prompt.empty() && p.prompt[0].role == "system" ? 1 : 0);
  const text::ChatMessage& opening = first == p.prompt.end() ? p.chosen.front() : *first;
  if (opening.role == "assistant") p.prompt.insert(first, {.role = "user", .content = std::move(question)});
}

}  // namespace

bool PreferencePair::same() const {
  return is_conversation ? std::ranges::equal(chosen, rejected, same_message) : chosen_text == rejected_text;
}

PreferencePair parse_preference_pair(std::string_view text, const std::string& place) {
  const json object = parse_record_json(text, place);
  const Record record(object, place);
  refuse_unbuilt_keys(object, place);
  refuse_system_beside(object, place);
  PreferencePair p{.thinks = record.thinks(), .where = place};
  constexpr const char* kQuestions[] = {"question", "instruction", "input", "query", "messages", "conversations"};
  for (const char* key : kQuestions)
    if (!record.has("prompt") && record.has(key))
      record.refuse(key, "is not read, and a pair without its question is another one; name this key \"prompt\"");
  p.is_conversation = !record.is_text("chosen");
  if (!p.is_conversation) {
    p.chosen_text = record.text("chosen");
    p.rejected_text = record.text("rejected");
    if (record.has("prompt")) {
      p.prompt_text = record.text("prompt");
    } else if (!p.same()) {
      take_common_start(p);
    }
    return p;
  }
  p.chosen = record.messages("chosen");
  p.rejected = record.messages("rejected");
  for (const auto& [key, reply] : {std::pair("chosen", &p.chosen), std::pair("rejected", &p.rejected)})
    if (!reply->empty() && reply->back().role != "assistant")
      record.refuse(key, "does not end with a message of the assistant, which is the reply");
  // Some sets have the prompt as text: beside whole conversations, which have it too, or beside replies alone.
  if (record.has("prompt") && !record.is_text("prompt")) {
    p.prompt = record.messages("prompt");
  } else if (!p.same()) {
    take_common_messages(p);
    if (record.has("prompt") && !p.chosen.empty()) take_question(p, record.text("prompt"));
  }
  return p;
}

std::vector<PreferencePair> read_preference_pairs(const std::filesystem::path& path) {
  base::refuse_folder(path, "name a file of pairs in it");
  const std::string text = base::read_file(path);
  RecordReader records(text, path.string());
  std::vector<PreferencePair> pairs;
  while (const auto record = records.next())
    pairs.push_back(parse_preference_pair(record->text, records.place(*record)));
  if (pairs.empty()) throw UsageError(path.string() + " holds no pair of replies");
  return pairs;
}

}  // namespace trireme::data
