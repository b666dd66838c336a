#include "trireme/text/ends_of_text.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "trireme/base/json.h"

namespace trireme::text {

using nlohmann::ordered_json;

std::vector<int64_t> eos_ids_in(const nlohmann::json& file) {
  std::vector<int64_t> ids;
  const bool is_whole = file.is_object() && file.contains("text_config");  // whose text half may say it
  if (!file.is_object() || !file.contains("eos_token_id") || (is_whole && file["eos_token_id"].is_null()))
    return is_whole ? eos_ids_in(file["text_config"]) : ids;
  const nlohmann::json& eos = file["eos_token_id"];
  for (const nlohmann::json& id : eos.is_array() ? eos : nlohmann::json::array({eos}))
    if (base::is_whole_number(id)) ids.push_back(id.get<int64_t>());
  return ids;
}

std::optional<int32_t> special_separator(const Tokenizer& tokenizer) {
  const std::vector<int32_t> ids = tokenizer.document_separator();
  if (ids.size() != 1 || !tokenizer.is_special(ids.front())) return std::nullopt;
  return ids.front();
}

std::optional<int32_t> end_of_reply(const ChatFamily& family, const Tokenizer& tokenizer) {
  if (family.stop != nullptr) return tokenizer.token_id(family.stop);
  return tokenizer.eos_id() ? tokenizer.eos_id() : special_separator(tokenizer);
}

void add_end_of_text(int32_t id, const Tokenizer& tokenizer, const std::string& config_json,
                     std::map<std::string, std::string>& files) {
  constexpr const char* kName = "generation_config.json";
  const auto config = base::parse_json_if_sound<ordered_json>(config_json);
  const std::vector<int64_t> of_config = eos_ids_in(config);
  ordered_json generation = ordered_json::object();
  std::vector<int64_t> ids;
  if (const auto file = files.find(kName); file != files.end()) {
    generation = base::parse_json_if_sound<ordered_json>(file->second);
    if (!generation.is_object()) return;
    ids = eos_ids_in(generation);
  } else {
    for (const char* key : {"bos_token_id", "pad_token_id"})
      if (config.is_object() && config.contains(key)) generation[key] = config[key];
    if (std::ranges::count(of_config, id) > 0) return;
  }
  if (std::ranges::count(ids, id) > 0) return;
  if (ids.empty()) ids = of_config;
  if (ids.empty() && tokenizer.eos_id()) ids.push_back(*tokenizer.eos_id());
  if (std::ranges::count(ids, id) == 0) ids.push_back(id);
  generation["eos_token_id"] = ids;
  generation.erase("_from_model_config");  // it says something of its own now
  files[kName] = generation.dump(2) + "\n";
}

}  // namespace trireme::text
