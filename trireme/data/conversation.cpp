#include "trireme/data/conversation.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>

#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/base/text.h"
#include "trireme/data/record_json.h"
#include "trireme/data/text_files.h"
#include "trireme/text/utf8.h"

namespace trireme::data {
namespace {

using nlohmann::json;

/// An object of a record, with errors that name the field.
class Fields {
 public:
  Fields(const json& object, std::string path, const std::string& place)
      : object_(object), path_(std::move(path)), place_(place) {}

  const json* find(const char* key) const {
    const auto at = object_.find(key);
    return at == object_.end() ? nullptr : &*at;
  }
  bool has(const char* key) const { return find(key) != nullptr; }
  bool has_any(std::span<const char* const> keys) const {
    return std::ranges::any_of(keys, [this](const char* key) { return has(key); });
  }

  std::string text(const char* key) const {
    const json* value = find(key);
    if (value == nullptr) refuse(key, "is missing");
    if (!value->is_string()) refuse(key, fmt::format("is {}, not text", kind_of(*value)));
    return value->get<std::string>();
  }
  /// The value of the first key there is.
  std::string text_of(std::span<const char* const> keys) const {
    for (const char* key : keys)
      if (has(key)) return text(key);
    std::vector<std::string> others(keys.begin() + 1, keys.end());
    refuse(keys.front(), others.empty() ? "is missing" : fmt::format("is missing (or {})", base::join(others, ", ")));
  }
  /// The same; "" where there is none, or null.
  std::string optional_text_of(std::span<const char* const> keys) const {
    for (const char* key : keys)
      if (const json* value = find(key); value != nullptr && !value->is_null()) return text(key);
    return "";
  }
  [[noreturn]] void refuse(const std::string& key, const std::string& what) const {
    throw UsageError(fmt::format("{}: {}{} {}", place_, path_, key, what));
  }

  static std::string kind_of(const json& value) {
    return value.is_null()      ? "null"
           : value.is_number()  ? "a number"
           : value.is_boolean() ? "true or false"
           : value.is_array()   ? "a list"
                                : "an object";
  }

 private:
  const json& object_;
  std::string path_;
  const std::string& place_;
};

// OpenAI's content is text, or a list of parts: [{"type": "text", "text": "..."}].
std::string content_of(const Fields& fields, const std::string& path, const std::string& place) {
  const json* content = fields.find("content");
  if (content == nullptr || !content->is_array()) return fields.text("content");
  std::string text;
  for (size_t i = 0; i < content->size(); ++i) {
    const json& part = (*content)[i];
    const std::string name = fmt::format("content[{}]", i);
    if (!part.is_object()) fields.refuse(name, "is not an object");
    const Fields part_fields(part, path + name + ".", place);
    if (part_fields.text("type") != "text") part_fields.refuse("type", "is not \"text\", all that is learned here");
    text += part_fields.text("text");
  }
  return text;
}

// OpenAI's weight: 0 keeps a reply out of what is learned.
bool is_learned(const Fields& fields) {
  const json* weight = fields.find("weight");
  if (weight == nullptr || weight->is_null()) return true;
  if (*weight != 0 && *weight != 1) fields.refuse("weight", "is neither 0 nor 1");
  return *weight == 1;
}

std::string role_of(const Fields& fields, const char* key) {
  const std::string role = fields.text(key);
  for (const char* name : {"user", "human"})
    if (role == name) return "user";
  for (const char* name : {"assistant", "gpt", "chatgpt", "model"})
    if (role == name) return "assistant";
  for (const char* name : {"system", "developer"})
    if (role == name) return "system";
  fields.refuse(key,
                fmt::format("is \"{}\"; speakers are system, user (human) and assistant (gpt)", role.substr(0, 40)));
}

constexpr const char* kOfMessages[] = {"tool_calls", "function_call"};
constexpr const char* kThought[] = {"reasoning_content", "thinking"};  // OpenAI's servers; TRL's for gpt-oss

bool says_something(const json& value) {
  if (value.is_null() || value.empty()) return false;
  const auto* text = value.get_ptr<const std::string*>();
  return text == nullptr || (!text->empty() && *text != "[]" && *text != "{}");  // a column may hold JSON as text
}

// What is left out of a message would be missing in what is learned: of a call, an empty reply would be left.
void refuse_unbuilt(const Fields& fields, std::span<const char* const> keys) {
  for (const char* key : keys)
    if (const json* value = fields.find(key); value != nullptr && says_something(*value))
      fields.refuse(key, "is not built; leave it out, or write it into the text of a message");
}

void read_turns(const Fields& record, const char* list_key, const char* role_key, const char* text_key,
                const std::string& place, Conversation& out) {
  const json* list = record.find(list_key);
  if (list == nullptr) record.refuse(list_key, "is missing");
  if (!list->is_array()) record.refuse(list_key, fmt::format("is {}, not a list", Fields::kind_of(*list)));
  if (list->empty()) record.refuse(list_key, "is empty: a conversation has messages");
  for (size_t i = 0; i < list->size(); ++i) {
    const json& turn = (*list)[i];
    const std::string name = fmt::format("{}[{}]", list_key, i);
    if (turn.is_string() && std::string_view(list_key) == "conversations") {  // LIMA's
      out.messages.push_back({.role = i % 2 == 0 ? "user" : "assistant", .content = turn.get<std::string>()});
      continue;
    }
    if (!turn.is_object()) record.refuse(name, "is not an object");
    const Fields fields(turn, name + ".", place);
    refuse_unbuilt(fields, kOfMessages);
    std::string role = role_of(fields, role_key);
    if (role == "system" && i == 0 && out.messages.size() == 1 && out.messages[0].role == "system")
      fields.refuse(role_key, "is a second system message: the record has one under a key of its own; leave one out");
    if (role == "system" && !out.messages.empty())
      fields.refuse(role_key, "is system behind others: it has to be the first message");
    std::string text =
        std::string_view(text_key) == "content" ? content_of(fields, name + ".", place) : fields.text(text_key);
    if (role != "assistant") refuse_unbuilt(fields, kThought);
    std::optional<std::string> thought;
    for (const char* key : kThought)
      if (const json* value = fields.find(key); value != nullptr && says_something(*value)) thought = fields.text(key);
    out.messages.push_back({.role = std::move(role),
                            .content = std::move(text),
                            .learned = is_learned(fields),
                            .thought = std::move(thought)});
  }
}

// The usual names of columns in Alpaca's form: of Alpaca itself, Dolly, FLAN and other sets.
constexpr const char* kInstruction[] = {"instruction", "prompt", "inputs"};
constexpr const char* kInput[] = {"input", "context"};
constexpr const char* kOutput[] = {"output", "response", "completion", "targets"};

// LLaMA-Factory's: [question, answer] of each turn before the instruction.
void read_history(const Fields& record, Conversation& out) {
  const json* history = record.find("history");
  if (history == nullptr || !says_something(*history)) return;
  const auto is_turn = [](const json& turn) {
    return turn.is_array() && turn.size() == 2 && turn[0].is_string() && turn[1].is_string();
  };
  if (!history->is_array() || !std::ranges::all_of(*history, is_turn))
    record.refuse("history", "is no list of [question, answer] pairs");
  for (const json& turn : *history) {
    out.messages.push_back({.role = "user", .content = turn[0].get<std::string>()});
    out.messages.push_back({.role = "assistant", .content = turn[1].get<std::string>()});
  }
}

void read_alpaca(const Fields& record, const std::optional<AlpacaColumns>& columns, Conversation& out) {
  read_history(record, out);
  if (columns) {
    std::string input = columns->input == nullptr ? "" : record.optional_text_of({&columns->input, 1});
    out.messages.push_back({.role = "user", .content = record.text(columns->instruction), .input = std::move(input)});
    out.messages.push_back({.role = "assistant", .content = record.text(columns->output)});
    return;
  }
  out.messages.push_back(
      {.role = "user", .content = record.text_of(kInstruction), .input = record.optional_text_of(kInput)});
  out.messages.push_back({.role = "assistant", .content = record.text_of(kOutput)});
}

// TRL's conversation in two lists of messages. The first one's replies are not learned.
bool has_two_parts(const Fields& record) {
  const json *prompt = record.find("prompt"), *completion = record.find("completion");
  return prompt != nullptr && completion != nullptr && prompt->is_array() && completion->is_array();
}

void read_two_parts(const Fields& record, const std::string& place, Conversation& out) {
  read_turns(record, "prompt", "role", "content", place, out);
  for (auto& message : out.messages) message.learned = message.role != "assistant";
  read_turns(record, "completion", "role", "content", place, out);
}

// What all forms may have beside their turns.
constexpr const char* kSystem[] = {"system", "system_prompt"};

void read_system(const Fields& record, Conversation& out) {
  if (std::string system = record.optional_text_of(kSystem); !system.empty())
    out.messages.push_back({.role = "system", .content = std::move(system)});
}

// Turns have their place in the list.
void refuse_history(const Fields& record) {
  if (const json* history = record.find("history"); history != nullptr && says_something(*history))
    record.refuse("history", "is read in Alpaca's form only; put its turns into the list of messages");
}

std::optional<ConversationFormat> format_of(const json& record) {
  if (!record.is_object()) return std::nullopt;
  if (record.contains("messages")) return ConversationFormat::messages;
  if (record.contains("conversations")) return ConversationFormat::sharegpt;
  const std::string place;
  const Fields fields(record, "", place);
  if (fields.has_any(kInstruction) && fields.has_any(kOutput)) return ConversationFormat::alpaca;
  return std::nullopt;
}

}  // namespace

void refuse_unbuilt_keys(const json& record, const std::string& place) {
  constexpr const char* kOfRecords[] = {"tools", "functions", "images", "image"};
  refuse_unbuilt(Fields(record, "", place), kOfRecords);
}

void refuse_system_beside(const json& record, const std::string& place) {
  const Fields fields(record, "", place);
  constexpr const char* kHistory = "history";
  for (const char* key : {kSystem[0], kSystem[1], kHistory})
    if (const json* value = fields.find(key);
        value != nullptr && says_something(*value) && (key != kHistory || value->is_array()))  // a text is any column
      fields.refuse(key, "is not read beside a prompt; put it into the prompt");
}

bool parse_thinks(std::string_view chat_template_kwargs, const std::string& place) {
  const json given = base::parse_json_if_sound(chat_template_kwargs);
  if (given.is_null() || given.is_discarded()) return true;
  const auto refuse = [&](const std::string& what) {
    throw UsageError(fmt::format(
        "{}: chat_template_kwargs {}; its only variable here is enable_thinking, true or false", place, what));
  };
  if (!given.is_object()) refuse("is no object");
  bool thinks = true;
  for (const auto& [name, value] : given.items()) {
    if (value.is_null()) continue;  // a column that other records of a set fill
    if (name != "enable_thinking") refuse(fmt::format("sets {}", name.substr(0, 40)));
    if (!value.is_boolean()) refuse("sets enable_thinking to something else");
    thinks = value.get<bool>();
  }
  return thinks;
}

Conversation parse_conversation(std::string_view record, const std::string& place,
                                std::optional<ConversationFormat> format, const std::optional<AlpacaColumns>& columns) {
  const json object = parse_record_json(record, place);
  const Fields fields(object, "", place);
  if (!format) format = format_of(object);
  const bool has_turns = fields.has("messages") || fields.has("conversations") || fields.has_any(kOutput);
  if (!has_turns && is_pair(object)) throw UsageError(fmt::format("{}: {}", place, kOfPairs));
  if (!format && fields.has_any(kInstruction)) format = ConversationFormat::alpaca;  // so that it says what is missing
  if (!format)
    throw UsageError(
        fmt::format("{}: this is no conversation: it has {}, and neither messages, nor conversations, nor instruction "
                    "and output (or prompt and response)",
                    place, keys_of(object)));
  refuse_unbuilt_keys(object, place);
  Conversation conversation;
  read_system(fields, conversation);
  if (*format != ConversationFormat::alpaca) refuse_history(fields);
  switch (*format) {
    case ConversationFormat::alpaca:
      if (!columns && has_two_parts(fields)) {
        refuse_history(fields);
        read_two_parts(fields, place, conversation);
      } else {
        read_alpaca(fields, columns, conversation);
      }
      break;
    case ConversationFormat::sharegpt:
      read_turns(fields, "conversations", "from", "value", place, conversation);
      break;
    case ConversationFormat::messages:
      read_turns(fields, "messages", "role", "content", place, conversation);
      break;
  }
  if (const json* given = fields.find("chat_template_kwargs")) conversation.thinks = parse_thinks(given->dump(), place);
  return conversation;
}

bool may_hold_conversations(const std::filesystem::path& file) {
  const std::string end = ending_of(file.filename().string());
  return end == ".json" || end == ".jsonl" || end == ".ndjson";
}

std::optional<ConversationFormat> conversation_format_of(const std::filesystem::path& file) try {
  if (!may_hold_conversations(file)) return std::nullopt;
  const base::MappedFile mapped(file);
  const auto bytes = mapped.bytes();
  RecordReader reader({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, file.string());
  const auto record = reader.next();
  return record ? format_of(parse_record_json(record->text, "")) : std::nullopt;
} catch (const UsageError&) {
  return std::nullopt;
}

std::string read_beside(const std::filesystem::path& file, std::optional<ConversationFormat> format) try {
  const base::MappedFile mapped(file);
  const auto bytes = mapped.bytes();
  RecordReader reader({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, file.string());
  const auto first = reader.next();
  if (!first) return "";
  const json record = parse_record_json(first->text, "");
  if (!format) format = format_of(record);
  const std::string place;
  const Fields fields(record, "", place);
  const bool has_alpaca = fields.has_any(kInstruction) && fields.has_any(kOutput);
  std::vector<std::string> others;
  if (fields.has("messages") && format != ConversationFormat::messages) others.emplace_back("messages");
  if (fields.has("conversations") && format != ConversationFormat::sharegpt) others.emplace_back("conversations");
  if (has_alpaca && format != ConversationFormat::alpaca) others.emplace_back("instruction and output");
  if (const json* text = fields.find("text"); text != nullptr && text->is_string()) others.emplace_back("text");
  if (!format || others.empty()) return "";
  return fmt::format("its records have {}, too, not read: see data.format", base::join(others, ", "));
} catch (const UsageError&) {
  return "";
}

}  // namespace trireme::data
