// The readers of tokenizer.json's sections. tokenizer_json*.cpp have them; parse_tokenizer_json (tokenizer_formats.h)
// calls them.
#pragma once

#include "trireme/text/json_fields.h"
#include "trireme/text/tokenizer_pipeline.h"

namespace trireme::text {

/// Adds the steps of a `normalizer` section.
void read_normalizer(const JsonObject& section, Normalizer& normalizer, int depth = 0);

/// Adds the steps of a `pre_tokenizer` section. Returns whether pieces are plain bytes, for a byte-level model.
bool read_pre_tokenizer(const JsonObject& section, PreTokenizer& pre_tokenizer);

/// Adds the steps of a `decoder` section.
void read_decoder(const JsonObject& section, TokenDecoder& decoder);

/// Reads what a `post_processor` section puts around a text.
void read_post_processor(const JsonObject& section, TokenizerParts& parts, int depth = 0);

std::unique_ptr<TokenModel> read_model(const JsonObject& section, bool byte_level);

/// Reads a pattern: {"Regex": ...} or {"String": ...}, or a plain string.
std::variant<Regex, std::string> read_pattern(const JsonObject& section, const std::string& key);

}  // namespace trireme::text
