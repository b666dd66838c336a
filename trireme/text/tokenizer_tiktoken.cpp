#include "trireme/text/tokenizer_formats.h"

#include <fmt/format.h>

#include <filesystem>
#include <numeric>
#include <span>

#include "trireme/base/checksum.h"
#include "trireme/base/json.h"
#include "trireme/base/parse_whole.h"
#include "trireme/text/bpe.h"
#include "trireme/text/byte_alphabet.h"
#include "trireme/text/charsmap.h"
#include "trireme/text/json_fields.h"
#include "trireme/text/vocabulary.h"

namespace trireme::text {
namespace {

constexpr std::string_view kCl100k =
    R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s)";
constexpr std::string_view kO200k =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

struct Family {
  std::string_view name, pattern;
  int64_t ranks;  ///< in its published list
  std::vector<std::string> specials;  ///< in the order of their ids; empty: a gap
  int64_t first_special = -1;  ///< id of the first; -1: behind the vocabulary
};

// Llama 3 has 256 of them, most in reserve; from 3.1 on some of those have other names.
std::vector<std::string> llama3_specials() {
  std::vector<std::string> tokens = {"<|begin_of_text|>", "<|end_of_text|>"};
  int reserve = 0;
  const auto reserve_to = [&](size_t count) {
    while (tokens.size() < count) tokens.push_back(fmt::format("<|reserved_special_token_{}|>", reserve++));
  };
  reserve_to(6);
  tokens.insert(tokens.end(), {"<|start_header_id|>", "<|end_header_id|>"});
  reserve_to(9);
  tokens.emplace_back("<|eot_id|>");
  reserve_to(256);
  return tokens;
}

const std::vector<Family>& families() {
  static const std::vector<Family> known = {
      {"cl100k", kCl100k, 100256, {"", "<|endoftext|>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>"}},
      {"o200k", kO200k, 199998, {"", "<|endoftext|>"}},
      {"qwen", kQwen2Pattern, 151643, {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}},
      {"llama3", kLlama3Pattern, 128000, llama3_specials()},
      {"gpt2", kGpt2Pattern, 50256, {"<|endoftext|>"}},
      {"r50k", kGpt2Pattern, 50256, {"<|endoftext|>"}},
      {"p50k", kGpt2Pattern, 50281, {"<|endoftext|>"}, 50256}};  // in a gap of its list
  return known;
}

const Family& family_of(const std::string& path, int64_t ranks) {
  const std::string name = std::filesystem::path(path).filename().string();
  std::string names;
  for (const Family& family : families()) {
    if (name.starts_with(family.name)) return family;
    names += (names.empty() ? "" : ", ") + std::string(family.name);
  }
  for (const Family& family : families())
    if (family.ranks == ranks) return family;
  throw UsageError(
      fmt::format("neither its name nor its {} ranks say which pre-tokenizer it has; copy it to a name "
                  "that begins with {}, whichever cuts text as it should, or use the tokenizer.json of "
                  "the same model",
                  ranks, names));
}

// The parts that are the same for all: byte-level, one expression, whole pieces first.
TokenizerParts make_parts(Vocabulary vocabulary, std::string_view pattern, std::vector<AddedToken> added,
                          std::string_view file) {
  TokenizerParts parts;
  std::vector<uint32_t> ranks(static_cast<size_t>(vocabulary.size()));
  std::iota(ranks.begin(), ranks.end(), 0u);
  parts.model = Bpe::by_rank(std::move(vocabulary), ranks, {.byte_level = true, .ignore_merges = true});
  parts.pre_tokenizer.add(SplitStep{.pattern = Regex(pattern)});
  parts.decoder.add(DecodeByteLevel{});
  parts.added = AddedTokens(std::move(added), [](std::string_view text) { return std::string(text); });
  parts.takes_bytes = true;
  parts.fingerprint = base::hash_text(file);
  return parts;
}

void read_line(std::string_view line, Vocabulary& vocabulary) {
  const size_t space = line.find(' ');
  const auto rank = space == std::string_view::npos ? std::nullopt : base::parse_whole<int64_t>(line.substr(space + 1));
  if (!rank || *rank < 0) throw UsageError("it is not a token in base64 and its rank");
  const std::string bytes = from_base64(line.substr(0, space));
  if (bytes.empty()) throw UsageError("the token is empty");
  vocabulary.add(to_byte_letters(bytes), *rank);
}

}  // namespace

// "IQ== 0": Meta's folders of Llama 3 hold such a list under SentencePiece's name.
bool is_tiktoken_list(std::string_view text) {
  const std::string_view line = text.substr(0, text.find('\n'));
  const size_t space = line.find(' '), digits = line.find_first_not_of(std::string(kBase64Digits) + "=");
  return space != std::string_view::npos && space > 0 && digits == space && space + 1 < line.size() &&
         line.find_first_not_of("0123456789\r", space + 1) == std::string_view::npos;
}

TokenizerParts parse_tiktoken(std::string_view text, const std::string& path) try {
  Vocabulary vocabulary;
  std::string_view rest = text;
  for (size_t number = 1; !rest.empty(); ++number) {
    std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    try {
      read_line(line, vocabulary);
    } catch (const UsageError& error) {
      throw UsageError(fmt::format("line {}: {}", number, error.what()));
    }
  }
  if (vocabulary.size() == 0) throw UsageError("it has no tokens");
  const Family& family = family_of(path, vocabulary.size());
  const int64_t first = family.first_special < 0 ? vocabulary.size() : family.first_special;
  std::vector<AddedToken> added;
  for (size_t i = 0; i < family.specials.size(); ++i)
    if (!family.specials[i].empty())
      added.push_back({.id = static_cast<int32_t>(first + static_cast<int64_t>(i)),
                       .content = family.specials[i],
                       .special = true});
  TokenizerParts parts = make_parts(std::move(vocabulary), family.pattern, std::move(added), text);
  if (family.name == "qwen")
    parts.normalizer.add([](const std::string& piece) { return to_normal_form(piece, NormalForm::nfc); });
  // Llama 3's text always begins with its first special token, as in the tokenizer.json of the same model.
  if (family.name == "llama3") parts.before = {parts.added.find(std::string_view(family.specials[0]))->id};
  parts.name = "tiktoken BPE";
  return parts;
} catch (const UsageError& error) {
  throw UsageError(fmt::format("the tokenizer {} cannot be used: {}", path, error.what()));
}

TokenizerParts parse_tekken(std::string_view text, const std::string& path) try {
  const nlohmann::json document = base::parse_json(text);
  const JsonObject file(document, ""), config = file.object("config");
  const int64_t num_special = config.integer("default_num_special_tokens");
  const int64_t size = config.integer("default_vocab_size");
  if (num_special < 0 || size < num_special || size > kLargestTokenId)
    throw UsageError(fmt::format("config gives {} ids, {} of them special", size, num_special));
  Vocabulary vocabulary;
  size_t index = 0;
  for (const nlohmann::json& entry : file.array("vocab")) {
    const JsonObject token(entry, fmt::format("vocab[{}]", index++));
    const int64_t rank = token.integer("rank");
    if (rank < 0) throw UsageError(fmt::format("{} is {}", token.place_of("rank"), rank));
    if (rank >= size - num_special) continue;
    vocabulary.add(to_byte_letters(from_base64(token.text("token_bytes"))), rank + num_special);
  }
  std::vector<AddedToken> added;
  std::optional<int32_t> bos, eos;
  const nlohmann::json none = nlohmann::json::array();
  for (const nlohmann::json& entry : file.find("special_tokens") ? file.array("special_tokens") : none) {
    const JsonObject token(entry, fmt::format("special_tokens[{}]", added.size()));
    const int64_t id = token.integer("rank");
    if (id < 0 || id >= num_special) throw UsageError(fmt::format("{} is {}", token.place_of("rank"), id));
    added.push_back({.id = static_cast<int32_t>(id), .content = token.text("token_str"), .special = true});
    if (added.back().content == "<s>") bos = added.back().id;
    if (added.back().content == "</s>") eos = added.back().id;
  }
  TokenizerParts parts = make_parts(std::move(vocabulary), config.text("pattern"), std::move(added), text);
  parts.bos = bos;
  parts.eos = eos;
  if (bos) parts.before = {*bos};
  parts.name = "Tekken BPE";
  return parts;
} catch (const nlohmann::json::exception& error) {
  throw UsageError(fmt::format("{} is not JSON: {}", path, base::json_reason(error)));
} catch (const UsageError& error) {
  throw UsageError(fmt::format("the tokenizer {} cannot be used: {}", path, error.what()));
}

}  // namespace trireme::text
