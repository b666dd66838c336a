#include "trireme/text/load_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "trireme/base/checksum.h"
#include "trireme/base/files.h"
#include "trireme/base/json.h"
#include "trireme/base/mix64.h"
#include "trireme/base/units.h"
#include "trireme/text/tokenizer_formats.h"
#include "trireme/text/vocabulary.h"

namespace trireme::text {
namespace fs = std::filesystem;
namespace {

// Side files are read leniently: those of some models have mistakes, and they only add what the tokenizer lacks.
nlohmann::json read_side_file(const fs::path& path) {
  if (!base::is_file(path)) return nlohmann::json::object();
  const nlohmann::json file = base::parse_json_if_sound(base::read_side_file(path));
  return file.is_object() ? file : nlohmann::json::object();
}

// "bos_token": "<s>" or {"content": "<s>", ...}
std::optional<std::string> token_named(const nlohmann::json& file, const std::string& key) {
  auto at = file.find(key);
  if (at == file.end()) return std::nullopt;
  const nlohmann::json content = at->is_object() ? at->value("content", nlohmann::json()) : *at;
  if (!content.is_string()) return std::nullopt;
  return content.get<std::string>();
}

std::optional<int32_t> id_of_token(const nlohmann::json& file, const std::string& key, const TokenizerParts& parts) {
  const std::optional<std::string> text = token_named(file, key);
  if (!text) return std::nullopt;
  if (const AddedToken* added = parts.added.find(std::string_view(*text))) return added->id;
  return parts.model->id_of(*text);
}

// "eos_token_id": 2 or [2, 7]: the first counts.
std::optional<int32_t> id_given(const nlohmann::json& file, const std::string& key) {
  const auto at = file.find(key);
  if (at == file.end()) return std::nullopt;
  const nlohmann::json& id = at->is_array() && !at->empty() ? at->front() : *at;
  if (!id.is_number_unsigned() || id.get<uint64_t>() > uint64_t{kLargestTokenId}) return std::nullopt;
  return id.get<int32_t>();
}

// For tokenizers of Llama's classes, transformers puts these tokens around a text where the keys are written, whatever
// the tokenizer's file says.
void add_as_told(const nlohmann::json& config, TokenizerParts& parts) {
  const auto name = config.find("tokenizer_class");
  if (name == config.end() || !name->is_string() || !name->get<std::string>().starts_with("LlamaTokenizer")) return;
  const auto tell = [&](const char* key, std::optional<int32_t> id, std::vector<int32_t>& ids) {
    const auto flag = config.find(key);
    if (flag == config.end() || !flag->is_boolean() || !id) return;
    const std::vector<int32_t> told = *flag == true ? std::vector<int32_t>{*id} : std::vector<int32_t>();
    if (ids == told) return;
    ids = told;
    parts.fingerprint = base::mix_key(parts.fingerprint, base::hash_text(fmt::format("{} {}", key, told.size())));
  };
  tell("add_bos_token", parts.bos, parts.before);
  tell("add_eos_token", parts.eos, parts.after);
}

void read_side_files(const fs::path& folder, TokenizerParts& parts) {
  const nlohmann::json tokens = read_side_file(folder / "tokenizer_config.json");
  if (const auto id = id_of_token(tokens, "bos_token", parts)) parts.bos = id;
  if (const auto id = id_of_token(tokens, "eos_token", parts)) parts.eos = id;
  add_as_told(tokens, parts);
  for (const char* name : {"generation_config.json", "config.json"}) {
    if (parts.bos && parts.eos) return;
    const nlohmann::json file = read_side_file(folder / name);
    if (!parts.bos) parts.bos = id_given(file, "bos_token_id");
    if (!parts.eos) parts.eos = id_given(file, "eos_token_id");
  }
}

// The first one found counts.
constexpr const char* kTokenizerFiles[] = {"tokenizer.json", "tokenizer.model", "tekken.json"};
// Both or none: the last tokenizer that is looked for.
constexpr const char* kVocabFiles[] = {"vocab.json", "merges.txt"};

// A name that stands for no file must not count as a tokenizer that is not there: bytes would take its place.
bool is_tokenizer_file(const fs::path& path) {
  if (base::is_file(path)) return true;
  std::error_code ignored;
  if (!fs::exists(fs::symlink_status(path, ignored))) return false;
  throw UsageError(fmt::format("{} is {}: put the tokenizer's file there, or take it away", path.string(),
                               fs::is_directory(path, ignored)                     ? "a folder"
                               : fs::is_symlink(fs::symlink_status(path, ignored)) ? "a link that leads to no file"
                                                                                   : "no regular file"));
}

bool has_vocab_files(const fs::path& folder) {
  return std::ranges::all_of(kVocabFiles, [&](const char* name) { return is_tokenizer_file(folder / name); });
}
constexpr const char* kSideFiles[] = {
    "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",     "vocab.json", "merges.txt",
    "chat_template.jinja",   "chat_template.json",      "generation_config.json"};

// Tokenizers that are recognised but not read: part of them is in the code of the program that made them.
struct OtherTokenizer {
  std::vector<const char*> files;
  const char* words;
};
const std::vector<OtherTokenizer>& other_tokenizers() {
  static const std::vector<OtherTokenizer> all = {
      {{"vocab.txt"}, "vocab.txt, which does not say how text is cut"},
      {{"spiece.model"}, "spiece.model, whose ids some models move"},
      {{"sentencepiece.bpe.model"}, "sentencepiece.bpe.model, whose ids some models move"}};
  return all;
}

const OtherTokenizer* find_other_tokenizer(const fs::path& folder) {
  for (const OtherTokenizer& other : other_tokenizers())
    if (std::ranges::all_of(other.files, [&](const char* name) { return is_tokenizer_file(folder / name); }))
      return &other;
  return nullptr;
}

std::vector<fs::path> tiktoken_lists(const fs::path& folder) {
  std::vector<fs::path> lists;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored))
    if (entry.path().extension() == ".tiktoken") lists.push_back(entry.path());
  return lists;
}

fs::path tokenizer_file(const fs::path& path) {
  if (base::is_file(path)) return path;
  for (const char* name : kTokenizerFiles)
    if (is_tokenizer_file(path / name)) return path / name;
  const std::vector<fs::path> lists = tiktoken_lists(path);
  if (lists.empty() && has_vocab_files(path)) return path / kVocabFiles[0];
  return lists.size() == 1 ? lists.front() : fs::path();
}

[[noreturn]] void refuse_path(const fs::path& path) {
  const std::string folder = path.string();
  if (!fs::exists(path))
    throw UsageError(
        fmt::format("there is no tokenizer at {}: name a folder that holds one, or the file itself", folder));
  if (const OtherTokenizer* other = find_other_tokenizer(path))
    throw UsageError(
        fmt::format("{} holds its tokenizer as {}: write its tokenizer.json with transformers, "
                    "AutoTokenizer.from_pretrained('{}').save_pretrained('{}')",
                    folder, other->words, folder, folder));
  if (const size_t lists = tiktoken_lists(path).size(); lists > 1)
    throw UsageError(fmt::format("{} holds {} *.tiktoken files; name the one to use", folder, lists));
  throw UsageError(
      fmt::format("{} holds no tokenizer: it needs a tokenizer.json, tokenizer.model, tekken.json, one *.tiktoken, or "
                  "vocab.json and "
                  "merges.txt",
                  folder));
}

TokenizerParts parse_vocab_files(const fs::path& folder) {
  const auto read = [&](const char* name) {
    return base::is_file(folder / name) ? base::read_side_file(folder / name) : std::string();
  };
  return parse_vocab_and_merges({.vocab = read(kVocabFiles[0]),
                                 .merges = read(kVocabFiles[1]),
                                 .tokenizer_config = read("tokenizer_config.json"),
                                 .special_tokens_map = read("special_tokens_map.json"),
                                 .added_tokens = read("added_tokens.json"),
                                 .config = read("config.json")},
                                folder.string());
}

/// The texts of "eos_token", "additional_special_tokens" and the like.
void add_special_names(const nlohmann::json& file, std::set<std::string>& names) {
  const auto add = [&](const nlohmann::json& token) {
    const nlohmann::json content = token.is_object() ? token.value("content", nlohmann::json()) : token;
    if (content.is_string()) names.insert(content.get<std::string>());
  };
  for (const auto& [key, value] : file.items()) {
    if (key.ends_with("_token")) add(value);
    if (key == "additional_special_tokens" && value.is_array())
      for (const nlohmann::json& token : value) add(token);
  }
}

/// The tokens that transformers keeps beside a tokenizer.model. Those that the model has no row for are left out.
std::vector<AddedToken> tokens_beside(const fs::path& folder) {
  const nlohmann::json config = read_side_file(folder / "tokenizer_config.json"),
                       more = read_side_file(folder / "added_tokens.json"),
                       model = read_side_file(folder / "config.json");
  std::set<std::string> special;
  add_special_names(config, special);
  add_special_names(read_side_file(folder / "special_tokens_map.json"), special);
  const auto rows = model.find("vocab_size");
  const uint64_t end = rows != model.end() && rows->is_number_unsigned() ? rows->get<uint64_t>() : kLargestTokenId;
  std::map<int32_t, AddedToken> tokens;
  const auto add = [&](uint64_t id, const nlohmann::json& content) -> AddedToken* {
    if (id >= end || id > uint64_t{kLargestTokenId} || !content.is_string()) return nullptr;
    const auto text = content.get<std::string>();
    AddedToken& token = tokens[static_cast<int32_t>(id)];
    token = {.id = static_cast<int32_t>(id), .content = text, .special = special.contains(text)};
    return &token;
  };
  for (const auto& [content, id] : more.items())
    if (id.is_number_unsigned()) add(id.get<uint64_t>(), content);
  if (const auto found = config.find("added_tokens_decoder"); found != config.end() && found->is_object())
    for (const auto& [id, said] : found->items()) {
      const auto number = base::parse_count(id);
      if (!number || !said.is_object()) continue;
      AddedToken* token = add(static_cast<uint64_t>(*number), said.value("content", nlohmann::json()));
      if (token == nullptr) continue;
      const auto is = [&](const char* key) { return said.value(key, nlohmann::json()) == true; };
      token->single_word = is("single_word"), token->lstrip = is("lstrip"), token->rstrip = is("rstrip");
      token->normalized = is("normalized"), token->special = is("special");
    }
  std::vector<AddedToken> all;
  for (auto& [id, token] : tokens) all.push_back(std::move(token));
  return all;
}

TokenizerParts parse(const fs::path& file) {
  const std::string text = base::read_side_file(file), path = file.string(), name = file.filename().string();
  if (name.ends_with(".tiktoken") || is_tiktoken_list(text)) return parse_tiktoken(text, path);
  if (name.starts_with("tekken") && name.ends_with(".json")) return parse_tekken(text, path);
  if (name.find(".model") != std::string::npos)
    return parse_sentencepiece_model(text, path, tokens_beside(file.parent_path()));
  if (name == kVocabFiles[0] && has_vocab_files(file.parent_path())) return parse_vocab_files(file.parent_path());
  return parse_tokenizer_json(text, path);
}

}  // namespace

fs::path find_tokenizer(const fs::path& folder) {
  if (folder.empty()) return {};  // empty is not the current folder
  if (const fs::path file = tokenizer_file(folder); !file.empty()) return file;
  if (const OtherTokenizer* other = find_other_tokenizer(folder)) return folder / other->files.front();
  const std::vector<fs::path> lists = tiktoken_lists(folder);
  return lists.empty() ? fs::path() : lists.front();
}

std::unique_ptr<Tokenizer> load_tokenizer(const fs::path& path) {
  const fs::path file = tokenizer_file(path);
  if (file.empty()) refuse_path(path);
  TokenizerParts parts = parse(file);
  read_side_files(file.parent_path(), parts);
  return std::make_unique<PipelineTokenizer>(std::move(parts));
}

std::vector<std::string> tokenizer_file_names() {
  std::vector<std::string> names(std::begin(kTokenizerFiles), std::end(kTokenizerFiles));
  names.insert(names.end(), std::begin(kSideFiles), std::end(kSideFiles));
  for (const OtherTokenizer& other : other_tokenizers())
    names.insert(names.end(), other.files.begin(), other.files.end());
  return names;
}

std::map<std::string, std::string> tokenizer_files(const fs::path& path) {
  std::map<std::string, std::string> files;
  if (!has_tokenizer(path)) return files;
  const fs::path file = tokenizer_file(path);
  if (!file.empty()) files[file.filename().string()] = base::read_side_file(file);
  if (base::is_file(path)) return files;
  if (const OtherTokenizer* other = find_other_tokenizer(path))
    for (const char* name : other->files) files[name] = base::read_side_file(path / name);
  for (const char* name : kSideFiles)
    if (base::is_file(path / name)) files[name] = base::read_side_file(path / name);
  return files;
}

std::optional<int32_t> pad_token_in(const std::map<std::string, std::string>& files, const Tokenizer& tokenizer) {
  for (const char* name : {"tokenizer_config.json", "special_tokens_map.json"}) {
    const auto file = files.find(name);
    if (file == files.end()) continue;
    const nlohmann::json tokens = base::parse_json_if_sound(file->second);
    if (!tokens.is_object()) continue;
    if (const auto text = token_named(tokens, "pad_token")) return tokenizer.token_id(*text);
  }
  return std::nullopt;
}

}  // namespace trireme::text
