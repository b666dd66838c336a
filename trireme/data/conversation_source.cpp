#include "trireme/data/conversation_source.h"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/checksum.h"
#include "trireme/base/error.h"
#include "trireme/base/mix64.h"
#include "trireme/base/text.h"

namespace trireme::data {
namespace fs = std::filesystem;
namespace {

constexpr uint64_t kRenderingVersion = 3;  // of rendering and masks: raise it when any conversation gets other tokens

bool is_conversations_name(const fs::path& path) { return path.extension() == ".json" || path.extension() == ".jsonl"; }

}  // namespace

std::vector<fs::path> ConversationSource::files(const fs::path& path) const {
  std::vector<fs::path> files;
  if (use == Use::never) return files;
  std::error_code ignored;
  if (use == Use::always && !fs::exists(path, ignored))
    throw UsageError(fmt::format("the file of conversations {} does not exist", path.string()));
  if (fs::is_directory(path, ignored)) {
    for (const auto& entry : fs::directory_iterator(path, ignored))
      if (is_conversations_name(entry.path()) && entry.is_regular_file(ignored)) files.push_back(entry.path());
    std::sort(files.begin(), files.end());
    if (files.empty() && use == Use::always)
      throw UsageError(fmt::format("{} holds no file of conversations (*.json, *.jsonl)", path.string()));
  } else if (is_conversations_name(path) || use == Use::always) {
    files.push_back(path);
  }
  if (use == Use::found && !files.empty() && !conversation_format_of(files.front())) files.clear();
  return files;
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
