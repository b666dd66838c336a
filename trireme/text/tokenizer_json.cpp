#include "trireme/text/tokenizer_formats.h"

#include <span>

#include "trireme/base/checksum.h"
#include "trireme/base/json.h"
#include "trireme/base/mix64.h"
#include "trireme/text/tokenizer_json_parts.h"
#include "trireme/text/vocabulary.h"

namespace trireme::text {
namespace {

std::vector<AddedToken> read_added_tokens(const JsonObject& file) {
  std::vector<AddedToken> tokens;
  if (file.find("added_tokens") == nullptr) return tokens;
  for (const nlohmann::json& entry : file.array("added_tokens")) {
    const JsonObject token(entry, fmt::format("added_tokens[{}]", tokens.size()));
    const int64_t id = token.integer("id");
    if (id < 0 || id > kLargestTokenId) throw UsageError(fmt::format("{}.id is {}", token.place(), id));
    const bool special = token.flag("special", false);
    tokens.push_back({.id = static_cast<int32_t>(id),
                      .content = token.text("content"),
                      .single_word = token.flag("single_word", false),
                      .lstrip = token.flag("lstrip", false),
                      .rstrip = token.flag("rstrip", false),
                      .normalized = token.flag("normalized", !special),
                      .special = special});
  }
  return tokens;
}

void take_template(const JsonObject& section, TokenizerParts& parts) {
  static const nlohmann::json kNone = nlohmann::json::object();
  const nlohmann::json* given = section.find("special_tokens");
  const JsonObject known(given != nullptr ? *given : kNone, section.place_of("special_tokens"));
  bool text_seen = false;
  size_t index = 0;
  for (const nlohmann::json& entry : section.array("single")) {
    const JsonObject part(entry, fmt::format("{}[{}]", section.place_of("single"), index++));
    if (part.find("Sequence") != nullptr) {
      text_seen = true;
      continue;
    }
    const std::string name = part.object("SpecialToken").text("id");
    for (const nlohmann::json& id : known.object(name).array("ids")) {
      if (!id.is_number_unsigned() || id.get<uint64_t>() > uint64_t{kLargestTokenId})
        throw UsageError(fmt::format("{}.ids is not a list of ids", known.place_of(name)));
      (text_seen ? parts.after : parts.before).push_back(id.get<int32_t>());
    }
  }
}

int32_t paired_id(const JsonObject& section, const std::string& key) {
  const nlohmann::json& pair = section.array(key);
  if (pair.size() != 2 || !pair[1].is_number_unsigned() || pair[1].get<uint64_t>() > uint64_t{kLargestTokenId})
    throw UsageError(fmt::format("{} is not a token and its id", section.place_of(key)));
  return pair[1].get<int32_t>();
}

}  // namespace

void read_post_processor(const JsonObject& section, TokenizerParts& parts, int depth) {
  const std::string type = section.text("type");
  if (type == "ByteLevel") return;  // moves offsets, not ids
  if (type == "TemplateProcessing") return take_template(section, parts);
  if (type == "BertProcessing" || type == "RobertaProcessing") {
    parts.before.push_back(paired_id(section, "cls"));
    parts.after.push_back(paired_id(section, "sep"));
    return;
  }
  if (type != "Sequence" || depth > 10)
    throw UsageError(fmt::format("{} '{}' is not known", section.place_of("type"), type));
  size_t index = 0;
  for (const nlohmann::json& entry : section.array("processors"))
    read_post_processor({entry, fmt::format("{}[{}]", section.place_of("processors"), index++)}, parts, depth + 1);
}

TokenizerParts parse_tokenizer_json(std::string_view text, const std::string& path) try {
  const nlohmann::json document = base::parse_json(text);
  const JsonObject file(document, "");
  TokenizerParts parts;
  if (file.find("normalizer") != nullptr) read_normalizer(file.object("normalizer"), parts.normalizer);
  const std::string type = file.object("model").text("type", "BPE");
  const bool byte_level =
      file.find("pre_tokenizer") != nullptr && read_pre_tokenizer(file.object("pre_tokenizer"), parts.pre_tokenizer);
  // BPE turns bytes into letters itself; the other models expect letters.
  if (byte_level && type != "BPE") parts.pre_tokenizer.add(ByteLettersStep{});
  if (file.find("decoder") == nullptr)
    parts.decoder.add(DecodeJoin{});
  else
    read_decoder(file.object("decoder"), parts.decoder);
  if (file.find("post_processor") != nullptr) read_post_processor(file.object("post_processor"), parts);
  parts.model = read_model(file.object("model"), byte_level);
  parts.added =
      AddedTokens(read_added_tokens(file), [&](std::string_view content) { return parts.normalizer(content); });
  parts.name = type == "BPE" && byte_level ? "byte-level BPE" : type;
  parts.takes_bytes = byte_level;
  parts.fingerprint = base::hash_text(text);
  if (byte_level && type != "BPE") parts.fingerprint = base::mix_key(parts.fingerprint, 2);  // other ids than at first
  return parts;
} catch (const nlohmann::json::exception& error) {
  throw UsageError(fmt::format("{} is not JSON: {}", path, base::json_reason(error)));
} catch (const UsageError& error) {
  throw UsageError(fmt::format("the tokenizer {} cannot be used: {}", path, error.what()));
}

}  // namespace trireme::text
