#include "trireme/text/trained_tokenizer.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <map>
#include <nlohmann/json.hpp>
#include <system_error>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/made_folders.h"
#include "trireme/text/load_tokenizer.h"

namespace trireme::text {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kConfigFile = "tokenizer_config.json";

constexpr NamedPattern kPatterns[] = {
    {"gpt2", kGpt2Pattern},
    {"llama3", kLlama3Pattern},
    {"qwen2", kQwen2Pattern},
};

Json byte_level(bool add_prefix_space, bool use_regex) {
  return {
      {"type", "ByteLevel"}, {"add_prefix_space", add_prefix_space}, {"trim_offsets", true}, {"use_regex", use_regex}};
}

Json pre_tokenizer_section(const NamedPattern& pattern) {
  if (pattern.regex == kGpt2Pattern) return byte_level(false, true);
  const Json split = {
      {"type", "Split"}, {"pattern", {{"Regex", pattern.regex}}}, {"behavior", "Isolated"}, {"invert", false}};
  return {{"type", "Sequence"}, {"pretokenizers", Json::array({split, byte_level(false, false)})}};
}

Json added_token(const std::string& content, size_t id) {
  return {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", true}};
}

Json model_section(const TrainedBpe& trained) {
  Json vocabulary = Json::object(), merges = Json::array();
  // An ordered object's operator[] would search for each key from the beginning.
  auto& entries = vocabulary.get_ref<Json::object_t&>();
  for (size_t id = 0; id < trained.tokens.size(); ++id) entries.Container::emplace_back(trained.tokens[id], id);
  const auto token = [&](int32_t id) { return trained.tokens[static_cast<size_t>(id)]; };
  for (const auto& [left, right] : trained.merges) merges.push_back(Json::array({token(left), token(right)}));
  return {{"type", "BPE"},
          {"dropout", nullptr},
          {"unk_token", nullptr},
          {"continuing_subword_prefix", nullptr},
          {"end_of_word_suffix", nullptr},
          {"fuse_unk", false},
          {"byte_fallback", false},
          {"ignore_merges", false},
          {"vocab", std::move(vocabulary)},
          {"merges", std::move(merges)}};
}

}  // namespace

const NamedPattern& pattern_named(std::string_view name) {
  std::string known;
  for (const NamedPattern& pattern : kPatterns) {
    if (pattern.name == name) return pattern;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", pattern.name);
  }
  throw UsageError(fmt::format("there is no pre-tokenizer '{}'; there are {}", name, known));
}

PreTokenizer pre_tokenizer_of(const NamedPattern& pattern) {
  PreTokenizer pre_tokenizer;
  pre_tokenizer.add(SplitStep{.pattern = Regex(pattern.regex)});
  return pre_tokenizer;
}

std::string tokenizer_json(const TrainedBpe& trained, const NamedPattern& pattern) {
  Json added = Json::array();
  for (size_t id = 0; id < trained.special_tokens.size(); ++id)
    added.push_back(added_token(trained.special_tokens[id], id));
  const Json file = {{"version", "1.0"},
                     {"truncation", nullptr},
                     {"padding", nullptr},
                     {"added_tokens", std::move(added)},
                     {"normalizer", nullptr},
                     {"pre_tokenizer", pre_tokenizer_section(pattern)},
                     {"post_processor", nullptr},
                     {"decoder", byte_level(true, true)},
                     {"model", model_section(trained)}};
  return file.dump(2) + "\n";
}

void check_output(const std::filesystem::path& folder, bool overwrite) {
  std::error_code ignored;
  std::filesystem::path there = std::filesystem::absolute(folder);
  while (!std::filesystem::exists(there, ignored) && there.has_relative_path()) there = there.parent_path();
  if (!std::filesystem::is_directory(there, ignored))
    throw UsageError(fmt::format("{} cannot be a folder, because {} is a file; name another --output", folder.string(),
                                 there.string()));
  if (::access(there.c_str(), W_OK | X_OK) != 0) base::throw_file_error("create files in", there, errno);
  if (overwrite) return;
  for (const std::filesystem::path& path : {find_tokenizer(folder), folder / kConfigFile})
    if (std::filesystem::exists(path, ignored))
      throw UsageError(
          fmt::format("{} already exists; name another --output, or let the new tokenizer take its place with "
                      "--overwrite",
                      path.string()));
}

namespace {

/// Writes all files beside their places before the first takes its own. If one fails, the folder is as it was.
void write_together(const std::filesystem::path& folder, const std::map<std::string, std::string>& files) {
  base::MadeFolders made;
  made.make(folder);
  const std::filesystem::path aside = folder / fmt::format(".tmp-tokenizer-{}", ::getpid());
  struct Aside {
    const std::filesystem::path& path;
    ~Aside() {
      std::error_code ignored;
      std::filesystem::remove_all(path, ignored);
    }
  } const removed{aside};
  std::filesystem::create_directory(aside);
  for (const auto& [name, text] : files) base::write_file_atomic(aside / name, text);
  for (const auto& [name, text] : files) std::filesystem::rename(aside / name, folder / name);
  base::fsync_directory(folder);
}

}  // namespace

void write_tokenizer(const std::filesystem::path& folder, const TrainedBpe& trained, const NamedPattern& pattern,
                     bool overwrite) {
  check_output(folder, overwrite);
  Json config = {{"tokenizer_class", "PreTrainedTokenizerFast"}, {"clean_up_tokenization_spaces", false}};
  if (!trained.special_tokens.empty()) config["eos_token"] = trained.special_tokens.front();
  try {
    write_together(folder,
                   {{kConfigFile, config.dump(2) + "\n"}, {"tokenizer.json", tokenizer_json(trained, pattern)}});
  } catch (const std::filesystem::filesystem_error& error) {
    base::throw_file_error(error);
  }
}

}  // namespace trireme::text
