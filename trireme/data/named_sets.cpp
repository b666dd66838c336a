#include "trireme/data/named_sets.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/data/token_set.h"

namespace trireme::data {
namespace fs = std::filesystem;
namespace {

constexpr AlpacaColumns kAlpaca = {.instruction = "instruction", .output = "output", .input = "input"};

constexpr NamedSet kSets[] = {
    {.name = Corpus::alpaca,
     .folder = "data/alpaca",
     .file = "alpaca_data_cleaned_archive.json",
     .format = ConversationFormat::alpaca,
     .columns = kAlpaca,
     .chat_template = "alpaca"},
    {.name = Corpus::alpaca2k,
     .folder = "data/alpaca2k",
     .file = "alpaca2k_data_cleaned_archive.json",
     .format = ConversationFormat::alpaca,
     .columns = kAlpaca,
     .chat_template = "alpaca"},
    {.name = Corpus::alpaca_gpt4,
     .folder = "data/alpacagpt4",
     .file = "alpacagpt4_data_cleaned_archive.json",
     .published_as = "alpaca_gpt4_data.json",
     .format = ConversationFormat::alpaca,
     .columns = kAlpaca,
     .chat_template = "alpaca"},
    {.name = Corpus::dolly,
     .folder = "data/dolly",
     .file = "dolly_data_cleaned.json",
     .published_as = "databricks-dolly-15k.jsonl",
     .format = ConversationFormat::alpaca,
     .columns = AlpacaColumns{.instruction = "instruction", .output = "response", .input = "context"},
     .chat_template = "alpaca"},
    {.name = Corpus::longform,
     .folder = "data/longform",
     .file = "train.json",
     .validation = "val.json",
     .format = ConversationFormat::alpaca,
     .columns = AlpacaColumns{.instruction = "input", .output = "output"},
     .chat_template = "longform"},
    {.name = Corpus::flan,
     .folder = "data/flan",
     .file = "*_train.jsonl",
     .format = ConversationFormat::alpaca,
     .columns = AlpacaColumns{.instruction = "inputs", .output = "targets"},
     .chat_template = "flan"},
    {.name = Corpus::lima, .format = ConversationFormat::sharegpt, .chat_template = "alpaca"},
    {.name = Corpus::deita, .format = ConversationFormat::messages, .chat_template = "alpaca"},
};

std::string columns_text(const NamedSet& set) {
  if (set.format == ConversationFormat::sharegpt) return "conversations (a list of texts)";
  if (set.format == ConversationFormat::messages) return "messages (a list of role and content)";
  const AlpacaColumns& columns = *set.columns;
  const std::string input = columns.input == nullptr ? "" : fmt::format(", and may have {}", columns.input);
  return fmt::format("{} and {}{}", columns.instruction, columns.output, input);
}

std::string files_text(const NamedSet& set) {
  std::string text = set.file;
  if (set.published_as != nullptr) text += fmt::format(" (or {})", set.published_as);
  if (set.validation != nullptr) text += fmt::format(" and {}", set.validation);
  return text;
}

[[noreturn]] void refuse(const NamedSet& set, const std::string& what) {
  throw UsageError(fmt::format("data {} {}; {} with --data.json_path FILE; its records need {}",
                               config::name_of(set.name), what, base::kFetchFirst, columns_text(set)));
}

std::vector<fs::path> matches(const fs::path& folder, std::string_view name) {
  std::vector<fs::path> found;
  std::error_code ignored;
  if (!name.starts_with('*')) {
    if (fs::exists(folder / name, ignored)) found.push_back(folder / name);
    return found;
  }
  for (const auto& entry : fs::directory_iterator(folder, ignored))
    if (entry.path().filename().string().ends_with(name.substr(1))) found.push_back(entry.path());
  std::ranges::sort(found);
  return found;
}

// The first of `names` that is a file, with one of these extensions; empty: none.
fs::path file_named(const fs::path& folder, std::initializer_list<const char*> names,
                    std::initializer_list<const char*> extensions) {
  std::error_code ignored;
  for (const char* name : names)
    for (const char* extension : extensions)
      if (fs::path file = folder / (std::string(name) + extension); fs::is_regular_file(file, ignored)) return file;
  return {};
}

}  // namespace

const NamedSet* find_named_set(Corpus name) {
  const auto found = std::ranges::find(kSets, name, &NamedSet::name);
  return found == std::end(kSets) ? nullptr : found;
}

SetFiles find_files(const NamedSet& set, const std::optional<std::string>& given) {
  std::error_code ignored;
  if (given && TokenSet::is_named_by(*given)) return {.train = {*given}};
  if (given && !fs::exists(*given, ignored))
    refuse(set, set.file == nullptr ? fmt::format("is looked for at {}, which does not exist", *given)
                                    : fmt::format("reads {}, and {} does not exist", files_text(set), *given));
  if (given && !fs::is_directory(*given, ignored)) return {.train = {*given}};
  if (set.file == nullptr)
    refuse(set, given ? fmt::format("has no file of a fixed name to look for in the folder {}", *given)
                      : std::string("has no file of a fixed name to look for"));
  const fs::path folder = given ? *given : set.folder;
  SetFiles files{.train = matches(folder, set.file)};
  if (files.train.empty() && set.published_as != nullptr) files.train = matches(folder, set.published_as);
  if (set.validation != nullptr) files.validation = folder / set.validation;
  if (files.train.empty() || (set.validation != nullptr && !fs::exists(files.validation, ignored)))
    refuse(set, fmt::format("reads {}, which {} not in the folder {}", files_text(set),
                            set.validation == nullptr ? "is" : "are", folder.string()));
  return files;
}

std::optional<SetFiles> find_json_splits(const fs::path& folder) {
  const auto split = [&](std::initializer_list<const char*> names) {
    return file_named(folder, names, {".json", ".jsonl", ".ndjson"});
  };
  SetFiles files{.train = {split({"train"})}, .validation = split({"val", "validation", "valid", "dev"})};
  if (files.train[0].empty()) return std::nullopt;
  if (!files.validation.empty()) return files;
  if (const fs::path other = split({"test", "eval"}); !other.empty())
    throw UsageError(fmt::format(
        "{} holds {} and {}, and all files of a folder are learned; name one with --data.json_path {}, and "
        "what to validate on with --data.val_data_path",
        folder.string(), files.train[0].filename().string(), other.filename().string(), files.train[0].string()));
  return std::nullopt;
}

std::string splits_learned_alike(const fs::path& folder) {
  const std::initializer_list<const char*> text = {".jsonl", ".ndjson", ".json", ".txt", ".text", ".md", ".parquet"};
  const fs::path train = file_named(folder, {"train"}, text),
                 other = file_named(folder, {"val", "validation", "valid", "dev", "test", "eval"}, text);
  if (train.empty() || other.empty()) return "";
  return fmt::format(
      "{} holds {} and {}, and all files of a folder are learned alike; to hold the second out, say "
      "--data.train_data_path {} --data.val_data_path {}",
      folder.string(), train.filename().string(), other.filename().string(), base::shell_quoted(train.string()),
      base::shell_quoted(other.string()));
}

}  // namespace trireme::data
