#include "trireme/data/load_tokenizer.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "trireme/base/files.h"
#include "trireme/base/json.h"
#include "trireme/data/tokenizer_json.h"
#include "trireme/data/tokenizer_sentencepiece.h"
#include "trireme/data/tokenizer_tiktoken.h"
#include "trireme/data/vocabulary.h"

namespace trireme::data {
namespace fs = std::filesystem;
namespace {

// Side files are read leniently: some models' have mistakes, and each only adds what the tokenizer lacks.
nlohmann::json read_side_file(const fs::path& path) {
  if (!base::is_file(path)) return nlohmann::json::object();
  const nlohmann::json file = base::parse_json_if_sound(base::read_side_file(path));
  return file.is_object() ? file : nlohmann::json::object();
}

// "bos_token": "<s>" or {"content": "<s>", ...}
std::optional<int32_t> id_of_token(const nlohmann::json& file, const std::string& key, const TokenizerParts& parts) {
  auto at = file.find(key);
  if (at == file.end()) return std::nullopt;
  const nlohmann::json content = at->is_object() ? at->value("content", nlohmann::json()) : *at;
  if (!content.is_string()) return std::nullopt;
  const std::string text = content.get<std::string>();
  if (const AddedToken* added = parts.added.find(std::string_view(text))) return added->id;
  return parts.model->id_of(text);
}

// "eos_token_id": 2 or [2, 7]: the first counts.
std::optional<int32_t> id_given(const nlohmann::json& file, const std::string& key) {
  const auto at = file.find(key);
  if (at == file.end()) return std::nullopt;
  const nlohmann::json& id = at->is_array() && !at->empty() ? at->front() : *at;
  if (!id.is_number_unsigned() || id.get<uint64_t>() > uint64_t{kLargestTokenId}) return std::nullopt;
  return id.get<int32_t>();
}

void read_side_files(const fs::path& folder, TokenizerParts& parts) {
  const nlohmann::json tokens = read_side_file(folder / "tokenizer_config.json");
  if (const auto id = id_of_token(tokens, "bos_token", parts)) parts.bos = id;
  if (const auto id = id_of_token(tokens, "eos_token", parts)) parts.eos = id;
  for (const char* name : {"generation_config.json", "config.json"}) {
    if (parts.bos && parts.eos) return;
    const nlohmann::json file = read_side_file(folder / name);
    if (!parts.bos) parts.bos = id_given(file, "bos_token_id");
    if (!parts.eos) parts.eos = id_given(file, "eos_token_id");
  }
}

// The first that is there counts.
constexpr const char* kTokenizerFiles[] = {"tokenizer.json", "tokenizer.model", "tekken.json"};
constexpr const char* kSideFiles[] = {
    "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json", "merges.txt",
    "chat_template.jinja",   "generation_config.json"};

fs::path tokenizer_file(const fs::path& path) {
  if (base::is_file(path)) return path;
  for (const char* name : kTokenizerFiles)
    if (base::is_file(path / name)) return path / name;
  std::vector<fs::path> lists;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(path, ignored))
    if (entry.path().extension() == ".tiktoken") lists.push_back(entry.path());
  return lists.size() == 1 ? lists.front() : fs::path();
}

TokenizerParts parse(const fs::path& file) {
  const std::string text = base::read_side_file(file), path = file.string(), name = file.filename().string();
  if (name.ends_with(".tiktoken")) return parse_tiktoken(text, path);
  if (name.starts_with("tekken") && name.ends_with(".json")) return parse_tekken(text, path);
  if (name.find(".model") != std::string::npos) return parse_sentencepiece_model(text, path);
  return parse_tokenizer_json(text, path);
}

}  // namespace

bool has_tokenizer(const fs::path& folder) { return !tokenizer_file(folder).empty(); }

std::unique_ptr<Tokenizer> load_tokenizer(const fs::path& path) {
  const fs::path file = tokenizer_file(path);
  if (file.empty()) {
    throw UsageError(fs::exists(path)
                         ? fmt::format("{} holds no tokenizer: it needs a tokenizer.json, tokenizer.model, "
                                       "tekken.json or one *.tiktoken",
                                       path.string())
                         : fmt::format("there is no tokenizer at {}: name a folder that holds one, or the file itself",
                                       path.string()));
  }
  TokenizerParts parts = parse(file);
  read_side_files(file.parent_path(), parts);
  return std::make_unique<PipelineTokenizer>(std::move(parts));
}

std::map<std::string, std::string> tokenizer_files(const fs::path& path) {
  const fs::path file = tokenizer_file(path);
  std::map<std::string, std::string> files;
  if (file.empty()) return files;
  files[file.filename().string()] = base::read_side_file(file);
  if (base::is_file(path)) return files;
  for (const char* name : kSideFiles)
    if (base::is_file(path / name)) files[name] = base::read_side_file(path / name);
  return files;
}

}  // namespace trireme::data
