// Translates tokenizer.json to GGUF; gguf/tokenizer_read.cpp translates back.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <unordered_map>

#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/base/text.h"
#include "trireme/formats/gguf/tokenizer.h"
#include "trireme/text/tokenizer_formats.h"

namespace trireme::formats {
namespace {

using nlohmann::json;

constexpr const char* kWayOut = "move tokenizer.json out of the folder to write the model without its tokenizer";

[[noreturn]] void refuse_tokenizer(const std::string& what) {
  throw UsageError(fmt::format("error: GGUF cannot express this tokenizer: {}\n  {}", what, kWayOut));
}

json parse(const std::map<std::string, std::string>& files, const std::string& name) {
  const auto found = files.find(name);
  if (found == files.end()) return json::object();
  json parsed = base::parse_json_if_sound(found->second);
  if (!parsed.is_object()) throw UsageError(fmt::format("error: the model's {} is not a JSON object", name));
  return parsed;
}

/// A tokenizer that Trireme does not read would be refused in the GGUF file, too, when the model is there.
void check_is_read(const std::string& tokenizer_json) {
  try {
    text::parse_tokenizer_json(tokenizer_json, "tokenizer.json");
  } catch (const UsageError& error) {
    throw UsageError(fmt::format("error: {}\n  {}", error.what(), kWayOut));
  }
}

/// The member, or null if there is none, or `object` is no object.
json member(const json& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  return object.is_object() && found != object.end() ? *found : json();
}

/// The steps of a pre-tokenizer or normalizer: the members of a Sequence, or itself.
std::vector<json> steps_of(const json& part, const char* list) {
  if (part.is_null()) return {};
  if (member(part, "type") != "Sequence") return {part};
  return member(part, list).get<std::vector<json>>();
}

const GgufPretokenizer& rule_of(const json& tokenizer) {
  std::vector<json> steps = steps_of(member(tokenizer, "pre_tokenizer"), "pretokenizers");
  const std::vector<json> normalizers = steps_of(member(tokenizer, "normalizer"), "normalizers");
  const bool nfc = normalizers.size() == 1 && member(normalizers[0], "type") == "NFC";
  const bool byte_level = !steps.empty() && member(steps.back(), "type") == "ByteLevel";
  std::string regex;
  bool digits = false, plain = byte_level && (normalizers.empty() || nfc);
  if (byte_level) {
    plain = plain && member(steps.back(), "add_prefix_space") != true;
    const bool own_regex = member(steps.back(), "use_regex") != false;
    steps.pop_back();
    for (const json& step : steps) {
      const json pattern = member(member(step, "pattern"), "Regex");
      if (member(step, "type") == "Digits" && member(step, "individual_digits") == true && !digits && regex.empty()) {
        digits = true;
      } else if (member(step, "type") == "Split" && pattern.is_string() && regex.empty() &&
                 member(step, "behavior") == "Isolated" && member(step, "invert") != true) {
        regex = pattern.get<std::string>();
      } else {
        plain = false;
      }
    }
    plain = plain && own_regex == regex.empty();
  }
  for (const GgufPretokenizer& rule : gguf_pretokenizers())
    if (plain && rule.digits == digits && rule.regex == regex && rule.nfc == nfc) return rule;
  refuse_tokenizer(
      "it has no name for the way in which this one cuts text (pre_tokenizer and normalizer of tokenizer.json)");
}

struct TokenTable {
  std::vector<std::string> tokens;
  std::vector<int32_t> types;
  std::unordered_map<std::string, int64_t> ids;
};

bool is_byte(const std::string& token) { return token.size() == 6 && token.starts_with("<0x") && token.ends_with(">"); }

TokenTable token_table(const json& tokenizer, const json& model, int64_t vocab_size) {
  TokenTable result;
  const auto put = [&](const std::string& token, const json& id, int32_t type) {
    if (!base::is_whole_number(id) || id.get<int64_t>() < 0 || id.get<int64_t>() >= vocab_size)
      refuse_tokenizer(fmt::format("token '{}' has the number {}, and the model has {} rows of embeddings", token,
                                   id.dump(), vocab_size));
    const auto index = static_cast<size_t>(id.get<int64_t>());
    result.tokens[index] = token;
    result.types[index] = type;
    result.ids[token] = static_cast<int64_t>(index);
  };
  result.types.assign(vocab_size, GgufTokenType::unused);
  for (int64_t i = 0; i < vocab_size; ++i) result.tokens.push_back(fmt::format("[PAD{}]", i));
  const bool fallback = member(model, "byte_fallback") == true;
  const json vocab = member(model, "vocab");
  if (!vocab.is_object()) refuse_tokenizer("tokenizer.json has no vocabulary under model.vocab");
  for (const auto& [token, id] : vocab.items())
    put(token, id, fallback && is_byte(token) ? GgufTokenType::byte : GgufTokenType::normal);
  const json unk = member(model, "unk_token");
  for (const json& added : member(tokenizer, "added_tokens")) {
    const std::string content = added.at("content").get<std::string>();
    put(content, added.at("id"),
        unk == content                     ? GgufTokenType::unknown
        : member(added, "special") == true ? GgufTokenType::control
                                           : GgufTokenType::user_defined);
  }
  return result;
}

std::vector<std::string> read_merges(const json& model) {
  std::vector<std::string> merges;
  for (const json& merge : member(model, "merges")) {
    if (merge.is_string()) {
      merges.push_back(merge.get<std::string>());
      if (merges.back().find(' ') == std::string::npos)
        refuse_tokenizer(fmt::format("the merge '{}' has no blank between its two parts", merges.back()));
    } else {
      const auto left = merge.at(0).get<std::string>(), right = merge.at(1).get<std::string>();
      if (left.find(' ') != std::string::npos || right.find(' ') != std::string::npos)
        refuse_tokenizer(fmt::format("the merge of '{}' and '{}' has a blank inside", left, right));
      merges.push_back(left + " " + right);
    }
  }
  return merges;
}

/// Scores in the order of the merges, which SentencePiece's readers use.
std::vector<float> scores_of(const TokenTable& vocabulary, const std::vector<std::string>& merges) {
  std::vector<float> scores(vocabulary.tokens.size(), 0.0f);
  for (size_t rank = merges.size(); rank-- > 0;) {
    std::string token = merges[rank];
    token.erase(token.find(' '), 1);
    const auto found = vocabulary.ids.find(token);
    if (found != vocabulary.ids.end()) scores[found->second] = -static_cast<float>(rank + 1);
  }
  return scores;
}

/// A token given as text or as an added token's object.
std::string text_of(const json& token) {
  if (token.is_string()) return token.get<std::string>();
  const json content = member(token, "content");
  return content.is_string() ? content.get<std::string>() : "";
}

/// Whether tokenizer.json's rule adds this token at the front (else the back) of a text.
bool adds_token(const json& tokenizer, const std::string& token, bool front) {
  for (const json& step : steps_of(member(tokenizer, "post_processor"), "processors")) {
    const json single = member(step, "single");
    if (!single.is_array() || single.empty()) continue;
    const json special = member(front ? single.front() : single.back(), "SpecialToken");
    if (member(special, "id") == token) return true;
  }
  return false;
}

/// llama.cpp ends a text at "eos", and at "eot", which ends a turn of a conversation.
std::vector<std::string> write_ends(std::optional<int64_t> eos, const std::vector<int64_t>& ends, size_t vocab_size,
                                    GgufMetadata& metadata) {
  std::vector<std::string> words{"eot"}, left_out;
  if (!eos) words.insert(words.begin(), "eos");
  std::set<int64_t> written;
  if (eos) written.insert(*eos);
  for (const int64_t id : ends) {
    if (id < 0 || static_cast<size_t>(id) >= vocab_size || !written.insert(id).second) continue;
    if (words.empty()) {
      left_out.push_back(std::to_string(id));
      continue;
    }
    metadata.add(fmt::format("tokenizer.ggml.{}_token_id", words.front()), static_cast<uint32_t>(id));
    words.erase(words.begin());
  }
  if (left_out.empty()) return {};
  return {fmt::format("GGUF has words for two tokens that end a text; of eos_token_id it lacks {}",
                      base::join(left_out, ", "))};
}

std::vector<std::string> write_specials(const json& tokenizer, const json& config, const std::vector<int64_t>& ends,
                                        const TokenTable& vocabulary, GgufMetadata& metadata) {
  constexpr std::pair<const char*, const char*> kTokens[] = {
      {"bos_token", "bos"}, {"eos_token", "eos"}, {"unk_token", "unknown"}, {"pad_token", "padding"}};
  std::optional<int64_t> eos;
  for (const auto& [key, word] : kTokens) {
    const auto found = vocabulary.ids.find(text_of(member(config, key)));
    if (found == vocabulary.ids.end()) continue;
    metadata.add(fmt::format("tokenizer.ggml.{}_token_id", word), static_cast<uint32_t>(found->second));
    if (std::string_view(word) == "eos") eos = static_cast<int64_t>(found->second);
  }
  const auto adds = [&](const char* key, const char* token, bool front) {
    const json given = member(config, key);
    const std::string text = text_of(member(config, token));
    return given.is_boolean() ? given.get<bool>() : !text.empty() && adds_token(tokenizer, text, front);
  };
  metadata.add("tokenizer.ggml.add_bos_token", adds("add_bos_token", "bos_token", true));
  metadata.add("tokenizer.ggml.add_eos_token", adds("add_eos_token", "eos_token", false));
  return write_ends(eos, ends, vocabulary.tokens.size(), metadata);
}

void write_chat_template(const std::map<std::string, std::string>& files, const json& config, GgufMetadata& metadata) {
  const json inside = member(config, "chat_template");
  if (const auto found = files.find("chat_template.jinja"); found != files.end())
    metadata.add("tokenizer.chat_template", std::string_view(found->second));
  else if (inside.is_string())
    metadata.add("tokenizer.chat_template", std::string_view(inside.get_ref<const std::string&>()));
}

/// Readers put U+2581 in the place of blanks and, where `prefix` says so, before the text. GGUF has no word for more.
struct SentencePieceRules {
  bool marks_blanks = false, prefix = false;
};

SentencePieceRules sentencepiece_rules_of(const json& tokenizer) {
  constexpr const char* kMark = "\u2581";
  SentencePieceRules rules;
  const auto refuse = [](const char* part, const json& step) {
    refuse_tokenizer(fmt::format("it has no word for {} in the {} of tokenizer.json", base::json_text(step), part));
  };
  for (const json& step : steps_of(member(tokenizer, "normalizer"), "normalizers")) {
    if (member(step, "type") == "Prepend" && member(step, "prepend") == kMark)
      rules.prefix = true;
    else if (member(step, "type") == "Replace" && member(member(step, "pattern"), "String") == " " &&
             member(step, "content") == kMark)
      rules.marks_blanks = true;
    else
      refuse("normalizer", step);
  }
  for (const json& step : steps_of(member(tokenizer, "pre_tokenizer"), "pretokenizers")) {
    const bool cuts_blanks = member(step, "type") == "Split" && member(member(step, "pattern"), "String") == " ";
    if (cuts_blanks && rules.marks_blanks) continue;  // Gemma's: no blank is left
    if (member(step, "type") != "Metaspace" || member(step, "replacement") != kMark) refuse("pre_tokenizer", step);
    rules.marks_blanks = true;
    const json scheme = member(step, "prepend_scheme");
    const bool prefix = scheme.is_null() ? member(step, "add_prefix_space") != false : scheme != "never";
    rules.prefix = rules.prefix || prefix;
  }
  if (!rules.marks_blanks)
    refuse_tokenizer("it keeps blanks, and those who read merges with byte fallback put U+2581 in their place");
  return rules;
}

/// Added tokens that also take what stands beside them, which GGUF cannot say.
std::vector<std::string> notes_on_added(const json& tokenizer) {
  int64_t count = 0;
  std::string first;
  for (const json& added : member(tokenizer, "added_tokens"))
    for (const char* flag : {"lstrip", "rstrip", "single_word"}) {
      if (member(added, flag) != true) continue;
      if (++count == 1) first = fmt::format("{} of '{}'", flag, text_of(added));
      break;
    }
  if (count == 0) return {};
  return {
      fmt::format("GGUF has no word for lstrip, rstrip and single_word of {} ({}): text beside them can get other ids",
                  base::plural(count, "added token"), first)};
}

}  // namespace

std::vector<std::string> tokenizer_to_gguf(const std::map<std::string, std::string>& files,
                                           const std::vector<int64_t>& ends, int64_t vocab_size,
                                           GgufMetadata& metadata) try {
  if (!files.contains("tokenizer.json"))
    return {"there is no tokenizer.json: programs that run GGUF files need a tokenizer in it"};
  const json tokenizer = parse(files, "tokenizer.json"), config = parse(files, "tokenizer_config.json");
  const json model = member(tokenizer, "model");
  const json type = member(model, "type");
  if (!type.is_null() && type != "BPE")
    refuse_tokenizer(fmt::format("its model is {}, and only merges (BPE) are written", type.dump()));
  const TokenTable vocabulary = token_table(tokenizer, model, vocab_size);
  const std::vector<std::string> merges = read_merges(model);
  check_is_read(files.at("tokenizer.json"));
  const bool sentencepiece = member(model, "byte_fallback") == true;
  metadata.add("tokenizer.ggml.model", sentencepiece ? "llama" : "gpt2");
  const SentencePieceRules rules = sentencepiece ? sentencepiece_rules_of(tokenizer) : SentencePieceRules{};
  if (!sentencepiece) metadata.add("tokenizer.ggml.pre", rule_of(tokenizer).name);
  metadata.add("tokenizer.ggml.tokens", vocabulary.tokens);
  metadata.add("tokenizer.ggml.token_type", std::span<const int32_t>(vocabulary.types));
  if (sentencepiece) {
    metadata.add("tokenizer.ggml.pre", "default");
    metadata.add("tokenizer.ggml.scores", std::span<const float>(scores_of(vocabulary, merges)));
    metadata.add("tokenizer.ggml.add_space_prefix", rules.prefix);
  }
  metadata.add("tokenizer.ggml.merges", merges);
  std::vector<std::string> notes = write_specials(tokenizer, config, ends, vocabulary, metadata);
  write_chat_template(files, config, metadata);
  for (std::string& note : notes_on_added(tokenizer)) notes.push_back(std::move(note));
  return notes;
} catch (const json::exception& error) {
  refuse_tokenizer(fmt::format("tokenizer.json or tokenizer_config.json has a value of the wrong kind ({})",
                               base::json_reason(error)));
}

}  // namespace trireme::formats
