// Translates GGUF's tokenizer to tokenizer.json. Vocabulary and merges are written as text, item by item: a JSON object
// of 250,000 tokens would take ten times their size.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/formats/gguf/tokenizer.h"
#include "trireme/text/byte_alphabet.h"

namespace trireme::formats {
namespace {

using nlohmann::ordered_json;
using Merge = std::pair<std::string, std::string>;

constexpr int64_t kMostTokens = 1 << 22;

[[noreturn]] void fail_tokenizer(const GgufHeader& header, const std::string& problem) {
  throw CheckpointError(fmt::format("the tokenizer of {} cannot be used: {}", header.path, problem), header.path);
}

struct GgufVocabulary {
  std::vector<std::string> tokens;
  std::vector<int64_t> types;
  std::unordered_map<std::string_view, int64_t> ids;
};

std::vector<std::string> read_tokens(const GgufHeader& header) {
  constexpr const char* kKey = "tokenizer.ggml.tokens";
  const auto found = header.metadata.find(kKey);
  if (found == header.metadata.end()) fail_tokenizer(header, fmt::format("there is no '{}'", kKey));
  const auto* array = std::get_if<GgufArray>(&found->second.value);
  if (array && array->count > kMostTokens)
    fail_tokenizer(header, fmt::format("it has {} tokens, at most {} are taken", array->count, kMostTokens));
  return *header.texts(kKey);
}

GgufVocabulary read_vocabulary(const GgufHeader& header, bool byte_level, bool gemma) {
  GgufVocabulary vocabulary{.tokens = read_tokens(header),
                            .types = header.integers("tokenizer.ggml.token_type").value_or(std::vector<int64_t>{})};
  if (vocabulary.types.empty()) vocabulary.types.assign(vocabulary.tokens.size(), GgufTokenType::normal);
  if (vocabulary.types.size() != vocabulary.tokens.size())
    fail_tokenizer(header,
                   fmt::format("{} token types for {} tokens", vocabulary.types.size(), vocabulary.tokens.size()));
  for (size_t i = 0; i < vocabulary.tokens.size(); ++i) {
    std::string& token = vocabulary.tokens[i];
    const bool added =
        vocabulary.types[i] == GgufTokenType::control || vocabulary.types[i] == GgufTokenType::user_defined;
    if (byte_level && !added && !text::from_byte_letters(token)) token = text::to_byte_letters(token);
    if (gemma && !token.empty() && token.find_first_not_of(' ') == std::string::npos) {
      std::string spaces;  // in Gemma's files these tokens have spaces instead of U+2581
      for (size_t k = 0; k < token.size(); ++k) spaces += "\u2581";
      token = spaces;
    }
  }
  for (size_t i = 0; i < vocabulary.tokens.size(); ++i)
    vocabulary.ids.insert_or_assign(vocabulary.tokens[i], static_cast<int64_t>(i));
  return vocabulary;
}

int64_t num_code_points(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<uint8_t>(c) & 0xc0) != 0x80; });
}

/// The merges that a vocabulary with scores implies: every way to cut a token into two tokens, best score first and,
/// among equals, the longest left part first. This is the order of transformers' generate_merges.
std::vector<Merge> derive_merges(const GgufVocabulary& vocabulary, const std::vector<float>& scores) {
  struct Cut {
    float score;
    int64_t left_length, right_length;
    size_t token, at;
  };
  std::vector<Cut> cuts;
  for (const auto& [token, id] : vocabulary.ids) {
    for (size_t at = 1; at < token.size(); ++at) {
      if ((static_cast<uint8_t>(token[at]) & 0xc0) == 0x80) continue;
      const auto left = vocabulary.ids.find(token.substr(0, at)), right = vocabulary.ids.find(token.substr(at));
      if (left == vocabulary.ids.end() || right == vocabulary.ids.end()) continue;
      const Cut cut{scores[id], num_code_points(left->first), num_code_points(right->first), static_cast<size_t>(id),
                    at};
      cuts.push_back(cut);
    }
  }
  const auto parts = [&](const Cut& cut) {
    const std::string_view token = vocabulary.tokens[cut.token];
    return std::pair(vocabulary.ids.at(token.substr(0, cut.at)), vocabulary.ids.at(token.substr(cut.at)));
  };
  std::sort(cuts.begin(), cuts.end(), [&](const Cut& a, const Cut& b) {
    if (a.score != b.score) return a.score > b.score;
    if (a.left_length != b.left_length) return a.left_length > b.left_length;
    if (a.right_length != b.right_length) return a.right_length > b.right_length;
    return a.token != b.token ? a.token < b.token : parts(a) < parts(b);
  });
  std::vector<Merge> merges;
  for (const Cut& cut : cuts)
    merges.emplace_back(vocabulary.tokens[cut.token].substr(0, cut.at), vocabulary.tokens[cut.token].substr(cut.at));
  return merges;
}

std::vector<Merge> read_merges(const GgufHeader& header, const GgufVocabulary& vocabulary, bool gemma) {
  std::vector<Merge> merges;
  if (const auto texts = header.texts("tokenizer.ggml.merges")) {
    for (const std::string& text : *texts) {
      const size_t blank = text.find(' ');
      if (blank == std::string::npos)
        fail_tokenizer(header, fmt::format("the merge '{}' has no blank between its parts", text));
      merges.emplace_back(text.substr(0, blank), text.substr(blank + 1));
      for (const std::string& part :
           {merges.back().first, merges.back().second, merges.back().first + merges.back().second})
        if (!vocabulary.ids.contains(part))
          fail_tokenizer(header, fmt::format("the merge '{}' needs the token '{}', which does not exist", text, part));
    }
    return merges;
  }
  std::vector<float> scores = header.numbers("tokenizer.ggml.scores").value_or(std::vector<float>{});
  if (gemma) {  // the vocabulary is in the order of its merges, the scores are not
    scores.resize(vocabulary.tokens.size());
    for (size_t i = 0; i < scores.size(); ++i) scores[i] = -static_cast<float>(i);
  }
  if (scores.size() != vocabulary.tokens.size())
    fail_tokenizer(
        header, fmt::format("it has no merges, and {} scores for {} tokens", scores.size(), vocabulary.tokens.size()));
  return derive_merges(vocabulary, scores);
}

std::optional<int64_t> token_id(const GgufHeader& header, const GgufVocabulary& vocabulary, const char* word) {
  const auto id = header.integer(fmt::format("tokenizer.ggml.{}_token_id", word));
  if (id && (*id < 0 || *id >= std::ssize(vocabulary.tokens)))
    fail_tokenizer(header, fmt::format("its {} token is number {} of {}", word, *id, vocabulary.tokens.size()));
  return id;
}

ordered_json added_tokens(const GgufHeader& header, const GgufVocabulary& vocabulary) {
  std::map<int64_t, bool> added;  // id -> special
  for (size_t i = 0; i < vocabulary.tokens.size(); ++i) {
    const int64_t type = vocabulary.types[i];
    if (type == GgufTokenType::control || type == GgufTokenType::unknown || type == GgufTokenType::user_defined)
      added[static_cast<int64_t>(i)] = type != GgufTokenType::user_defined;
  }
  for (const char* word : {"bos", "eos", "unknown", "padding"})
    if (const auto id = token_id(header, vocabulary, word)) added[*id] = true;
  ordered_json list = ordered_json::array();
  for (const auto& [id, special] : added)
    list.push_back({{"id", id},
                    {"content", vocabulary.tokens[id]},
                    {"single_word", false},
                    {"lstrip", false},
                    {"rstrip", false},
                    {"normalized", false},
                    {"special", special}});
  return list;
}

/// The rule that adds the first and last token to a text, or null.
ordered_json post_processor(const GgufVocabulary& vocabulary, std::optional<int64_t> bos, std::optional<int64_t> eos) {
  if (!bos && !eos) return nullptr;
  ordered_json single = ordered_json::array(), pair = ordered_json::array(), special = ordered_json::object();
  for (const auto& [sequence, type] : {std::pair{"A", 0}, {"B", 1}}) {
    const auto put = [&, type = type](const ordered_json& item) {
      if (type == 0) single.push_back(item);
      pair.push_back(item);
    };
    const auto put_special = [&, type = type](std::optional<int64_t> id) {
      if (!id) return;
      const std::string& token = vocabulary.tokens[*id];
      put({{"SpecialToken", {{"id", token}, {"type_id", type}}}});
      special[token] = {{"id", token}, {"ids", {*id}}, {"tokens", {token}}};
    };
    put_special(bos);
    put({{"Sequence", {{"id", sequence}, {"type_id", type}}}});
    put_special(eos);
  }
  return {{"type", "TemplateProcessing"}, {"single", single}, {"pair", pair}, {"special_tokens", special}};
}

const ordered_json kByteLevel{
    {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};

ordered_json byte_level_rules(const GgufPretokenizer& rule) {
  ordered_json steps = ordered_json::array();
  ordered_json last = kByteLevel;
  if (rule.digits) steps.push_back({{"type", "Digits"}, {"individual_digits", true}});
  if (!rule.regex.empty()) {
    steps.push_back(
        {{"type", "Split"}, {"pattern", {{"Regex", rule.regex}}}, {"behavior", "Isolated"}, {"invert", false}});
    last["use_regex"] = false;
  }
  steps.push_back(last);
  return {
      {"normalizer", rule.nfc ? ordered_json{{"type", "NFC"}} : ordered_json(nullptr)},
      {"pre_tokenizer", steps.size() == 1 ? last : ordered_json{{"type", "Sequence"}, {"pretokenizers", steps}}},
      {"decoder", {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}, {"use_regex", true}}}};
}

ordered_json sentencepiece_rules(bool gemma, bool prefix) {
  const ordered_json to_mark{{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "\u2581"}};
  ordered_json decoders{{{"type", "Replace"}, {"pattern", {{"String", "\u2581"}}}, {"content", " "}},
                        {{"type", "ByteFallback"}},
                        {{"type", "Fuse"}}};
  if (gemma)
    return {
        {"normalizer", to_mark},
        {"pre_tokenizer",
         {{"type", "Split"}, {"pattern", {{"String", " "}}}, {"behavior", "MergedWithPrevious"}, {"invert", false}}},
        {"decoder", {{"type", "Sequence"}, {"decoders", decoders}}}};
  if (prefix) decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  return {{"normalizer", nullptr},
          {"pre_tokenizer",
           {{"type", "Metaspace"},
            {"replacement", "\u2581"},
            {"prepend_scheme", prefix ? "first" : "never"},
            {"split", false}}},
          {"decoder", {{"type", "Sequence"}, {"decoders", decoders}}}};
}

std::string quoted(const std::string& text) { return nlohmann::json(text).dump(); }

/// The model's settings, then vocabulary and merges, as text.
std::string model_text(ordered_json settings, const GgufVocabulary& vocabulary, const std::vector<Merge>& merges) {
  std::string text = settings.dump();
  text.back() = ',';
  text += "\"vocab\":{";
  bool first = true;
  for (size_t i = 0; i < vocabulary.tokens.size(); ++i) {
    if (vocabulary.ids.at(vocabulary.tokens[i]) != static_cast<int64_t>(i))
      continue;  // of two equal tokens the later one counts
    text += fmt::format("{}{}:{}", first ? "" : ",", quoted(vocabulary.tokens[i]), i);
    first = false;
  }
  text += "},\"merges\":[";
  for (size_t i = 0; i < merges.size(); ++i)
    text += fmt::format("{}[{},{}]", i == 0 ? "" : ",", quoted(merges[i].first), quoted(merges[i].second));
  return text + "]}";
}

std::string config_text(const GgufHeader& header, const GgufVocabulary& vocabulary, bool add_bos, bool add_eos) {
  ordered_json config{{"tokenizer_class", "PreTrainedTokenizerFast"},
                      {"add_bos_token", add_bos},
                      {"add_eos_token", add_eos},
                      {"clean_up_tokenization_spaces", false}};
  constexpr std::pair<const char*, const char*> kTokens[] = {
      {"bos_token", "bos"}, {"eos_token", "eos"}, {"unk_token", "unknown"}, {"pad_token", "padding"}};
  for (const auto& [key, word] : kTokens) {
    const auto id = token_id(header, vocabulary, word);
    config[key] = id ? ordered_json(vocabulary.tokens[*id]) : ordered_json(nullptr);
  }
  const std::string architecture = header.text("general.architecture").value_or("");
  if (const auto length = header.integer(architecture + ".context_length")) config["model_max_length"] = *length;
  if (const auto chat = header.text("tokenizer.chat_template")) config["chat_template"] = *chat;
  return config.dump(2) + "\n";
}

const GgufPretokenizer& pretokenizer_of(const GgufHeader& header) {
  const std::string name = header.text("tokenizer.ggml.pre").value_or("default");
  if (const GgufPretokenizer* rule = find_gguf_pretokenizer(name)) return *rule;
  std::vector<std::string> known;
  for (const GgufPretokenizer& rule : gguf_pretokenizers()) known.emplace_back(rule.name);
  fail_tokenizer(header, fmt::format("it cuts text by the rule '{}'; Trireme knows {}", name, base::join(known, ", ")));
}

}  // namespace

std::map<std::string, std::string> tokenizer_from_gguf(const GgufHeader& header) {
  const std::string kind = header.text("tokenizer.ggml.model").value_or("none");
  if (kind == "none" || kind == "no_vocab") return {};
  if (kind != "gpt2" && kind != "llama")
    fail_tokenizer(
        header,
        fmt::format("it is of kind '{}'; Trireme knows gpt2 (byte-level merges) and llama (SentencePiece)", kind));
  const bool byte_level = kind == "gpt2";
  const bool gemma = !byte_level && header.text("general.architecture").value_or("").starts_with("gemma");
  const GgufVocabulary vocabulary = read_vocabulary(header, byte_level, gemma);
  const std::vector<Merge> merges = read_merges(header, vocabulary, gemma);

  const GgufPretokenizer* rule = byte_level ? &pretokenizer_of(header) : nullptr;
  const bool prefix = header.boolean("tokenizer.ggml.add_space_prefix").value_or(true);
  const ordered_json rules = byte_level ? byte_level_rules(*rule) : sentencepiece_rules(gemma, prefix);
  const std::optional<int64_t> bos = token_id(header, vocabulary, "bos"), eos = token_id(header, vocabulary, "eos");
  const bool add_bos =
      bos && header.boolean("tokenizer.ggml.add_bos_token").value_or(byte_level ? rule->add_bos : true);
  const bool add_eos = eos && header.boolean("tokenizer.ggml.add_eos_token").value_or(false);
  const std::optional<int64_t> unk = token_id(header, vocabulary, "unknown");

  const ordered_json settings{
      {"type", "BPE"},
      {"dropout", nullptr},
      {"unk_token", !byte_level && unk ? ordered_json(vocabulary.tokens[*unk]) : ordered_json(nullptr)},
      {"continuing_subword_prefix", nullptr},
      {"end_of_word_suffix", nullptr},
      {"fuse_unk", !byte_level},
      {"byte_fallback", !byte_level},
      {"ignore_merges", byte_level && rule->ignore_merges}};
  ordered_json frame{
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", added_tokens(header, vocabulary)},
      {"normalizer", rules["normalizer"]},
      {"pre_tokenizer", rules["pre_tokenizer"]},
      {"post_processor", post_processor(vocabulary, add_bos ? bos : std::nullopt, add_eos ? eos : std::nullopt)},
      {"decoder", rules["decoder"]}};
  std::string text = frame.dump();
  text.back() = ',';
  text += "\"model\":" + model_text(settings, vocabulary, merges) + "}\n";
  return {{"tokenizer.json", std::move(text)},
          {"tokenizer_config.json", config_text(header, vocabulary, add_bos, add_eos)}};
}

}  // namespace trireme::formats
