// vocab.json and merges.txt. They lack what tokenizer.json says about the cutting of text; in transformers, the
// tokenizer's class says it. This reader writes the tokenizer.json that the class would save, and reads that.
#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>

#include "trireme/base/json.h"
#include "trireme/text/byte_alphabet.h"
#include "trireme/text/json_fields.h"
#include "trireme/text/pre_tokenizer.h"
#include "trireme/text/tokenizer_formats.h"
#include "trireme/text/vocabulary.h"

namespace trireme::text {
namespace {

using nlohmann::json;

// A class in transformers that reads these two files, and the models whose folders need not name it.
struct VocabClass {
  std::string_view name;
  std::vector<std::string_view> model_types;
};
const std::vector<VocabClass>& vocab_classes() {
  static const std::vector<VocabClass> all = {{"GPT2Tokenizer", {"gpt2", "starcoder2"}},
                                              {"Qwen2Tokenizer", {"qwen2", "qwen3", "qwen2_vl", "qwen2_5_vl"}}};
  return all;
}

json object_of(const std::string& text) {
  if (text.empty()) return json::object();
  json file = base::parse_json_if_sound(text);
  return file.is_object() ? file : json::object();
}

std::string text_at(const json& object, const char* key) {
  const auto at = object.find(key);
  return at != object.end() && at->is_string() ? at->get<std::string>() : "";
}

bool flag_at(const json& object, const char* key) {
  const auto at = object.find(key);
  return at != object.end() && at->is_boolean() && at->get<bool>();
}

const VocabClass& class_of(const VocabFiles& files, const json& about, const std::string& folder) {
  const json config = object_of(files.config);
  std::string name = text_at(about, "tokenizer_class");
  if (name.empty()) name = text_at(config, "tokenizer_class");
  if (name.ends_with("Fast")) name.resize(name.size() - 4);
  const std::string type = text_at(config, "model_type");
  for (const VocabClass& known : vocab_classes())
    if (name.empty() ? std::ranges::find(known.model_types, type) != known.model_types.end() : name == known.name)
      return known;
  throw UsageError(fmt::format(
      "{} holds its tokenizer as vocab.json and merges.txt, which do not say how text is cut; {} (GPT2Tokenizer's and "
      "Qwen2Tokenizer's are read): write its tokenizer.json with transformers, "
      "AutoTokenizer.from_pretrained('{}').save_pretrained('{}')",
      folder, name.empty() ? "and no tokenizer_class beside them does" : fmt::format("that of {} is not read", name),
      folder, folder));
}

// "a b" a line, highest merge first. Like transformers, this passes over comments and lines that are not two tokens.
json read_merge_lines(std::string_view text) {
  json merges = json::array();
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (line.ends_with('\r')) line.remove_suffix(1);
    const size_t space = line.find(' ');
    if (line.starts_with('#') && (line.starts_with("#version") || space == std::string_view::npos)) continue;
    if (space == 0 || space == std::string_view::npos || space + 1 == line.size() ||
        line.find(' ', space + 1) != std::string_view::npos)
      continue;
    merges.push_back({std::string(line.substr(0, space)), std::string(line.substr(space + 1))});
  }
  return merges;
}

// The tokens that stand outside of the vocabulary's merges, as the `added_tokens` of a tokenizer.json.
class AddedList {
 public:
  explicit AddedList(const json& vocabulary) : vocabulary_(vocabulary) {
    for (const auto& [token, id] : vocabulary.items())
      if (base::is_whole_number(id)) next_ = std::max(next_, id.get<int64_t>() + 1);
  }

  /// `entry` has the token's text (`content`) and its flags; a token without an id gets its own or the next one.
  void add(json entry, std::optional<int64_t> id, bool special) {
    const std::string content = text_at(entry, "content");
    if (content.empty() || !seen_.insert(content).second) return;
    if (const auto known = vocabulary_.find(content); known != vocabulary_.end() && base::is_whole_number(*known))
      id = known->get<int64_t>();
    entry["id"] = id.value_or(next_);
    if (special) entry["special"] = true;
    next_ = std::max(next_, entry["id"].get<int64_t>() + 1);
    list_.push_back(std::move(entry));
  }
  const json& list() const { return list_; }

 private:
  const json& vocabulary_;
  int64_t next_ = 0;
  std::set<std::string> seen_;
  json list_ = json::array();
};

// "bos_token": "<s>" or {"content": "<s>", ...}
json as_token(const json& value) { return value.is_string() ? json{{"content", value}} : value; }

std::optional<int64_t> id_in(const std::string& text) {
  if (text.empty() || text.size() > 9 || text.find_first_not_of("0123456789") != std::string::npos) return std::nullopt;
  return std::stoll(text);
}

json special_tokens(const json& about, const json& map, const VocabClass& of) {
  json named = json::object();
  for (const char* key : {"bos_token", "eos_token", "unk_token", "pad_token"}) {
    // The defaults of the classes: Qwen2Tokenizer has no bos_token, GPT2Tokenizer has no pad_token.
    const bool has_default = std::string_view(key) != (of.name == "GPT2Tokenizer" ? "pad_token" : "bos_token");
    if (has_default) named[key] = "<|endoftext|>";
    for (const json* file : {&map, &about})
      if (file->contains(key)) named[key] = (*file)[key];
  }
  return named;
}

}  // namespace

TokenizerParts parse_vocab_and_merges(const VocabFiles& files, const std::string& folder) try {
  const json about = object_of(files.tokenizer_config), map = object_of(files.special_tokens_map);
  const VocabClass& of = class_of(files, about, folder);
  json vocabulary = base::parse_json(files.vocab);
  if (!vocabulary.is_object()) throw UsageError(fmt::format("{}/vocab.json is not an object", folder));

  AddedList added(vocabulary);
  if (const auto given = about.find("added_tokens_decoder"); given != about.end() && given->is_object()) {
    std::vector<std::pair<int64_t, json>> by_id;
    for (const auto& [id, token] : given->items())
      if (const auto number = id_in(id); number && token.is_object()) by_id.emplace_back(*number, token);
    std::ranges::sort(by_id, {}, &std::pair<int64_t, json>::first);
    for (const auto& [id, token] : by_id) added.add(token, id, false);
  }
  const json named = special_tokens(about, map, of);
  std::set<std::string> specials;
  for (const auto& [key, token] : named.items()) specials.insert(text_at(as_token(token), "content"));
  std::vector<std::pair<int64_t, std::string>> older;
  const json older_file = object_of(files.added_tokens);
  for (const auto& [token, id] : older_file.items())
    if (id.is_number_unsigned() && id.get<uint64_t>() <= uint64_t{kLargestTokenId})
      older.emplace_back(id.get<int64_t>(), token);
  std::ranges::sort(older);
  for (const auto& [id, token] : older) added.add({{"content", token}}, id, specials.contains(token));
  for (const char* key : {"bos_token", "eos_token", "unk_token", "pad_token"})
    if (named.contains(key)) added.add(as_token(named[key]), std::nullopt, true);
  for (const json* file : {&map, &about})
    if (const auto more = file->find("additional_special_tokens"); more != file->end() && more->is_array())
      for (const json& token : *more) added.add(as_token(token), std::nullopt, true);

  const bool is_gpt2 = of.name == "GPT2Tokenizer", leading_space = flag_at(about, "add_prefix_space");
  json bytes = {{"type", "ByteLevel"}, {"add_prefix_space", leading_space}, {"use_regex", is_gpt2}};
  json document = {
      {"added_tokens", added.list()},
      {"normalizer", is_gpt2 ? json(nullptr) : json{{"type", "NFC"}}},
      {"decoder", {{"type", "ByteLevel"}}},
      {"model", {{"type", "BPE"}, {"vocab", std::move(vocabulary)}, {"merges", read_merge_lines(files.merges)}}}};
  if (is_gpt2) {
    document["pre_tokenizer"] = std::move(bytes);
  } else {
    json split = {
        {"type", "Split"}, {"pattern", {{"Regex", kQwen2Pattern}}}, {"behavior", "Isolated"}, {"invert", false}};
    document["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", {std::move(split), std::move(bytes)}}};
  }
  TokenizerParts parts = parse_tokenizer_json(document.dump(), folder + "/vocab.json");
  const auto id_of = [&](const char* key) -> std::optional<int32_t> {
    if (!named.contains(key)) return std::nullopt;
    const AddedToken* token = parts.added.find(std::string_view(text_at(as_token(named[key]), "content")));
    return token == nullptr ? std::nullopt : std::optional(token->id);
  };
  parts.bos = id_of("bos_token");
  parts.eos = id_of("eos_token");
  if (flag_at(about, "add_bos_token") && parts.bos) parts.before = {*parts.bos};
  if (flag_at(about, "add_eos_token") && parts.eos) parts.after = {*parts.eos};
  return parts;
} catch (const json::exception& error) {
  throw UsageError(fmt::format("the tokenizer {}/vocab.json cannot be used: {}", folder, base::json_reason(error)));
}

}  // namespace trireme::text
