#include "trireme/data/conversation_source.h"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/checksum.h"
#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/mix64.h"
#include "trireme/base/not_text.h"
#include "trireme/base/text.h"
#include "trireme/data/text_files.h"

namespace trireme::data {
namespace fs = std::filesystem;
namespace {

constexpr uint64_t kRenderingVersion = 5;  // of rendering and masks: raise it when any conversation gets other tokens

// Tables hold records, too, and are not read.
bool is_table(const fs::path& path) {
  const std::string end = ending_of(path.filename().string());
  return end == ".csv" || end == ".tsv" || end == ".arrow";
}

// A folder's files, by name.
struct Folder {
  std::vector<fs::path> conversations, text;  ///< the second: those of which the name alone says it
  std::string root;
  std::vector<std::string> packed;  ///< compressed files, which would be left out
  bool any_named = false;  ///< also empty files

  explicit Folder(const fs::path& path) : root(path.string()) {
    std::vector<std::string> named, others;
    for_each_file(path.string(), [&](const std::string& name, int64_t bytes) {
      const bool is_named = may_hold_conversations(name);
      any_named = any_named || is_named;
      if (const auto unpacked = base::unpacked_name(name);
          unpacked && (may_hold_conversations(*unpacked) || text_kind(*unpacked)))
        packed.push_back(name);
      if (bytes == 0) return;
      if (is_named)
        named.push_back(name);
      else if (is_table(name) ||
               (text_kind(name) && fs::path(name).filename() != "README.md"))  // that describes the others
        others.push_back(name);
    });
    std::ranges::sort(named);
    std::ranges::sort(others);
    for (const std::string& name : named) conversations.push_back(path / name);
    for (const std::string& name : others) text.push_back(path / name);
  }
};

[[noreturn]] void refuse_beside(const fs::path& conversations, const fs::path& other) {
  if (!is_table(other)) throw UsageError(mixed_kinds(conversations, other));
  throw UsageError(fmt::format("{} holds conversations, and {} beside it is a table, which is not read: move it away",
                               conversations.string(), other.string()));
}

// The files of a folder whose first file decides. A folder of text would leave out its *.json without a word.
std::vector<fs::path> found_in(Folder folder) {
  std::vector<fs::path>& files = folder.conversations;
  if (files.empty()) return {};
  if (conversation_format_of(files.front())) {
    refuse_packed(folder.root, folder.packed);
    if (!folder.text.empty()) refuse_beside(files.front(), folder.text.front());
    return std::move(files);
  }
  const auto is_text = [](const fs::path& file) { return text_kind(file.string()).has_value(); };
  const auto text = std::ranges::find_if(files, is_text);
  if (text == files.end() && folder.text.empty()) return {};
  for (const fs::path& file : files)
    if (!is_text(file) && conversation_format_of(file))
      refuse_beside(file, text == files.end() ? folder.text.front() : *text);
  return {};
}

// A novel or other records given as conversations. What is said later of templates and tokens would mislead.
void check_first_record(const fs::path& file, const ConversationOptions& options) {
  base::require_text_file(file);
  const base::MappedFile mapped(file);
  const auto bytes = mapped.bytes();
  std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) throw UsageError(file.string() + ": the file is empty, and holds no record");
  if (text[first] == '{' || text[first] == '[') {
    RecordReader reader(text, file.string());
    if (const auto record = reader.next())
      parse_conversation(record->text, reader.place(*record), options.format, options.columns);
    return;
  }
  throw UsageError(
      fmt::format("{}:{}: a record is a JSON object, such as {{\"messages\": [...]}}, and this is text; --data "
                  "TextFiles learns text "
                  "as it stands",
                  file.string(), 1 + std::ranges::count(text.substr(0, first), '\n')));
}

}  // namespace

std::string mixed_kinds(const fs::path& conversations, const fs::path& text) {
  return fmt::format(
      "some of these files hold conversations and some text; a set holds one or the other: {} holds conversations, {} "
      "text. Name the files of one kind",
      conversations.string(), text.string());
}

std::vector<fs::path> ConversationSource::files(const fs::path& path) const {
  if (use == Use::never) return {};
  std::error_code ignored;
  if (use == Use::always && !fs::exists(path, ignored))
    throw UsageError(fmt::format("the file of conversations {} does not exist", path.string()));
  if (fs::is_directory(path, ignored)) {
    Folder folder(path);
    if (use == Use::found) return found_in(std::move(folder));
    refuse_packed(folder.root, folder.packed);
    if (!folder.any_named)
      throw UsageError(fmt::format("{} holds no file of conversations (*.json, *.jsonl, *.ndjson)", path.string()));
    if (folder.conversations.empty())
      throw UsageError(fmt::format("every file of conversations in {} is empty", path.string()));
    if (!folder.text.empty()) refuse_beside(folder.conversations.front(), folder.text.front());
    check_first_record(folder.conversations.front(), options);
    return std::move(folder.conversations);
  }
  if (use == Use::always && !base::is_file(path)) refuse_pipe(path);
  if (!may_hold_conversations(path) && use != Use::always) return {};
  if (use == Use::found && !conversation_format_of(path)) return {};
  if (use == Use::always) check_first_record(path, options);
  return {path};
}

const text::ChatFamily& ConversationSource::family(std::span<const fs::path> files) const {
  if (chat_template) return text::find_chat_family(*chat_template);
  const auto of_model = folder.empty() ? std::nullopt : text::chat_family_of(folder);
  if (of_model) return text::find_chat_family(*of_model);
  const bool is_alpaca = options.format == ConversationFormat::alpaca ||
                         (!files.empty() && conversation_format_of(files.front()) == ConversationFormat::alpaca);
  if (is_alpaca) return text::find_chat_family("alpaca");
  std::vector<std::string> names;
  for (const text::ChatFamily& family : text::chat_families()) names.emplace_back(family.name);
  throw UsageError(
      fmt::format("{} holds conversations, and {} to write them with: name one with --data.chat_template, of {}",
                  files.empty() ? "the data" : files.front().string(),
                  folder.empty() ? "there is no model's folder that names a chat template"
                                 : fmt::format("{} names no chat template that is known", folder.string()),
                  base::join(names, ", ")));
}

uint64_t ConversationSource::fingerprint(const text::ChatFamily& family) const {
  uint64_t value = base::mix_key(kRenderingVersion, base::hash_text(family.name));
  for (const uint64_t part : {static_cast<uint64_t>(options.learn), static_cast<uint64_t>(options.max_tokens),
                              uint64_t{options.drop_long}, options.format ? static_cast<uint64_t>(*options.format) : 9})
    value = base::mix_key(value, part);
  if (options.columns)
    for (const char* column : {options.columns->instruction, options.columns->output, options.columns->input})
      value = base::mix_key(value, base::hash_text(column == nullptr ? "" : column));
  return value;
}

}  // namespace trireme::data
