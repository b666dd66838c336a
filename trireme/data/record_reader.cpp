#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/base/not_text.h"
#include "trireme/base/text.h"
#include "trireme/data/conversation.h"

namespace trireme::data {
namespace {

constexpr int kDeepestRecord = 32;

bool is_json_space(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

}  // namespace

RecordReader::RecordReader(std::string_view text, std::string name)
    : text_(base::without_byte_order_mark(text)), name_(std::move(name)) {
  base::require_text(text, name_);
  skip_space();
  if (at_ < text_.size() && text_[at_] == '[') {
    is_list_ = true;
    ++at_;
  }
}

std::string RecordReader::place(const ConversationRecord& record) const {
  return is_list_ ? fmt::format("{}:{} (record {})", name_, record.line, record.index)
                  : fmt::format("{}:{}", name_, record.line);
}

void RecordReader::refuse(const std::string& what) const {
  throw UsageError(fmt::format("{}:{}: {}", name_, line_, what));
}

void RecordReader::skip_space() {
  for (; at_ < text_.size() && is_json_space(text_[at_]); ++at_) line_ += text_[at_] == '\n' ? 1 : 0;
}

std::optional<ConversationRecord> RecordReader::next() {
  auto record = is_list_ ? next_of_list() : next_line();
  if (record) ++index_;
  return record;
}

std::optional<ConversationRecord> RecordReader::next_line() {
  skip_space();
  if (at_ == text_.size()) return std::nullopt;
  const size_t end = std::min(text_.find('\n', at_), text_.size());
  const ConversationRecord record{.text = value(), .line = line_, .index = index_};
  const size_t rest = std::min(text_.find_first_not_of(" \t\r", at_), end);
  if (at_ > end || rest < end) refuse("the line is not one JSON object: JSONL has one in each line");
  at_ = end;
  return record;
}

std::optional<ConversationRecord> RecordReader::next_of_list() {
  if (is_done_) return std::nullopt;
  skip_space();
  if (at_ < text_.size() && text_[at_] == ']') {
    ++at_;
    skip_space();
    if (at_ < text_.size()) refuse("the JSON list has ended, and more follows");
    is_done_ = true;
    return std::nullopt;
  }
  if (index_ > 0 && at_ < text_.size()) {
    if (text_[at_] != ',') refuse("a comma or the end of the JSON list is missing here");
    ++at_;
    skip_space();
    if (at_ < text_.size() && text_[at_] == ']') refuse("the JSON list ends behind a comma; remove the comma");
  }
  if (at_ == text_.size()) refuse("the JSON list does not end: is the file whole?");
  const int64_t line = line_;
  return ConversationRecord{.text = value(), .line = line, .index = index_};
}

// The object that begins here, found by its braces alone. Its values are counted: parsing it takes bounded memory.
std::string_view RecordReader::value() {
  if (text_[at_] != '{') refuse("a record is a JSON object, such as {\"messages\": [...]}");
  const size_t begin = at_;
  bool in_string = false, ends = false;
  int64_t values = 0, lines = 0;
  int depth = 0;
  for (; at_ < text_.size() && !ends && depth <= kDeepestRecord && values <= kMostRecordValues; ++at_) {
    const char c = text_[at_];
    if (c == '\n') {
      if (!is_list_) break;
      ++lines;
    } else if (in_string) {
      if (c == '"') in_string = false;
      if (c == '\\' && at_ + 1 < text_.size()) ++at_;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      ++depth;
      ++values;
    } else if (c == '}' || c == ']') {
      ends = --depth == 0;
    } else if (c == ',' || c == ':') {
      ++values;
    }
  }
  const auto bytes = static_cast<int64_t>(at_ - begin);
  if (depth > kDeepestRecord) refuse(fmt::format("the record nests more than {} deep", kDeepestRecord));
  if (values > kMostRecordValues)
    refuse(fmt::format("the record holds more than {} values", base::human_count(kMostRecordValues)));
  if (bytes > kMostRecordBytes)
    refuse(fmt::format("the record has {}, more than the {} that a record may have", base::human_bytes(bytes),
                       base::human_bytes(kMostRecordBytes)));
  if (!ends && !is_list_ && at_ < text_.size())
    refuse(
        "the JSON object that begins here does not end in its line: write each object in one line, or put all into one "
        "list [...] with commas");
  if (!ends) refuse("the JSON object that begins here does not end");
  line_ += lines;
  return text_.substr(begin, at_ - begin);
}

}  // namespace trireme::data
