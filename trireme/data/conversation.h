// Reads conversations from files of three forms:
//
//   alpaca     {"instruction": "...", "input": "...", "output": "..."}; other usual names are read too
//   sharegpt   {"conversations": [{"from": "human", "value": "..."}, {"from": "gpt", "value": "..."}]}, or texts of the
//              two in turn: {"conversations": ["...", "..."]}
//   messages   {"messages": [{"role": "user", "content": "..."}, {"role": "assistant", "content": "..."}]}
//
// Each may have the system message under "system" or "system_prompt", and alpaca earlier turns under "history".
// A file has one conversation a line (JSONL), or one JSON list of them. Keys that say more of a conversation, such as
// tool_calls, are refused; others are ignored. Files are mapped and read record by record, so they may have any size.
// Records are limited (kMostRecordBytes), so memory is bounded.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/files.h"
#include "trireme/text/chat_template.h"

namespace trireme::data {

enum class ConversationFormat { alpaca, sharegpt, messages };

struct Conversation {
  std::vector<text::ChatMessage> messages;
  bool thinks = true;  ///< chat_template_kwargs: {"enable_thinking": false} asks the model not to
};

/// What a record's chat_template_kwargs says of thinking; they are JSON, and "" where there are none. Errors
/// UsageError naming `place`: other variables than enable_thinking
bool parse_thinks(std::string_view chat_template_kwargs, const std::string& place);

/// Refuses keys of a record of conversations whose values would be read by the model, and that are not built: tools,
/// functions and images. An empty value, or null, says nothing.
/// Errors    UsageError naming `place` and the key
void refuse_unbuilt_keys(const nlohmann::json& record, const std::string& place);

/// Refuses a system message, and earlier turns, under keys of their own: "system", "system_prompt" and "history". For
/// records of a prompt, of which no form has such keys. An empty value, or null, says nothing.
/// Errors    UsageError naming `place` and the key
void refuse_system_beside(const nlohmann::json& record, const std::string& place);

/// The columns of records in Alpaca's form, if they are known: of a set that is named (named_sets.h).
struct AlpacaColumns {
  const char *instruction, *output;
  const char* input = nullptr;  ///< may be absent from records; null: the set has none
};

/// Reads a conversation; recognises its form if `format` is empty. Without `columns`, Alpaca's form may use any of the
/// usual names.
/// Errors    UsageError naming `place` ("chat.jsonl:12"), the field and what it should hold
Conversation parse_conversation(std::string_view record, const std::string& place,
                                std::optional<ConversationFormat> format = {},
                                const std::optional<AlpacaColumns>& columns = {});

inline constexpr int64_t kMostRecordBytes = int64_t{8} << 20;
inline constexpr int64_t kMostRecordValues = 100'000;

/// A record of a file, not yet parsed, and its place.
struct ConversationRecord {
  std::string_view text;
  int64_t line = 0;  ///< its first line, counted from 1
  int64_t index = 0;  ///< counted from 0
};

/// Cuts JSONL or a JSON list into its records without parsing them.
class RecordReader {
 public:
  /// `name` is for errors; `text` has to outlive the reader.
  RecordReader(std::string_view text, std::string name);

  /// The next record; nothing at the end.
  ///
  /// Errors    UsageError: a list that does not end, or has other text between records; records beyond the limits
  std::optional<ConversationRecord> next();

  /// The record's place for messages: "chat.jsonl:12", and for lists "chat.json:12 (record 3)".
  std::string place(const ConversationRecord& record) const;
  bool is_list() const { return is_list_; }
  int64_t position() const { return static_cast<int64_t>(at_); }  ///< bytes read

 private:
  std::optional<ConversationRecord> next_line();
  std::optional<ConversationRecord> next_of_list();
  std::string_view value();
  void skip_space();
  [[noreturn]] void refuse(const std::string& what) const;

  std::string_view text_;
  std::string name_;
  size_t at_ = 0;
  int64_t line_ = 1, index_ = 0;
  bool is_list_ = false, is_done_ = false;
};

/// True for *.json, *.jsonl and *.ndjson.
bool may_hold_conversations(const std::filesystem::path& file);

/// The form of a file's first record; nothing if the file holds no conversations (plain text, JSONL with "text").
/// Throws nothing: errors are reported when the file is read.
std::optional<ConversationFormat> conversation_format_of(const std::filesystem::path& file);

/// What the first record holds beside the form that is read: "its records have text, too, not read: see data.format".
/// Empty: nothing. `format` as in parse_conversation. Throws nothing
std::string read_beside(const std::filesystem::path& file, std::optional<ConversationFormat> format = {});

}  // namespace trireme::data
