// Conversations to learn from, as files of three forms hold them:
//
//   alpaca     {"instruction": "...", "input": "...", "output": "..."}, or prompt and response (or completion)
//   sharegpt   {"conversations": [{"from": "human", "value": "..."}, {"from": "gpt", "value": "..."}]}
//   messages   {"messages": [{"role": "user", "content": "..."}, {"role": "assistant", "content": "..."}]}
//
// one a line (JSONL) or in one JSON list. Other keys are left alone. Files are mapped and read record by record, so
// their size does not matter; a record's does (kMostRecordBytes), which keeps memory in bounds for any input.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/files.h"
#include "trireme/data/chat_template.h"

namespace trireme::data {

enum class ConversationFormat { alpaca, sharegpt, messages };

struct Conversation {
  std::vector<ChatMessage> messages;
};

/// A conversation, and its form where none was asked for.
///
/// `place` is what errors begin with: "chat.jsonl:12".
/// Errors    UsageError naming the place, the field and what it should hold
Conversation parse_conversation(std::string_view record, const std::string& place,
                                std::optional<ConversationFormat> format = {});

inline constexpr int64_t kMostRecordBytes = int64_t{8} << 20;
inline constexpr int64_t kMostRecordValues = 100'000;

/// A record of a file, not yet parsed, and where it stands.
struct ConversationRecord {
  std::string_view text;
  int64_t line = 0;   ///< counted from 1, at which it begins
  int64_t index = 0;  ///< counted from 0
};

/// Cuts JSONL or a JSON list into its records without parsing them.
class RecordReader {
 public:
  /// `name` is for errors; `text` has to stay.
  RecordReader(std::string_view text, std::string name);

  /// The next record; nothing at the end.
  ///
  /// Errors    UsageError: a list that does not end, or has something else between records; records above the bounds
  std::optional<ConversationRecord> next();

  /// "chat.jsonl:12", and for lists "chat.json:12 (record 3)".
  std::string place(const ConversationRecord& record) const;
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

/// The form of a file's first record; nothing where the file holds no conversations (plain text, JSONL with "text").
/// Never an error: what is broken is told by who reads it.
std::optional<ConversationFormat> conversation_format_of(const std::filesystem::path& file);

}  // namespace trireme::data
