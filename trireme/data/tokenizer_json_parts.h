// The readers of tokenizer.json's sections, one file each.
#pragma once

#include "trireme/data/json_fields.h"
#include "trireme/data/tokenizer_pipeline.h"

namespace trireme::data {

/// Adds the steps of a `normalizer` section.
void read_normalizer(const JsonObject& section, Normalizer& normalizer, int depth = 0);

/// Adds the steps of a `pre_tokenizer` section; returns whether pieces are bytes for a byte-level model.
bool read_pre_tokenizer(const JsonObject& section, PreTokenizer& pre_tokenizer);

/// Adds the steps of a `decoder` section.
void read_decoder(const JsonObject& section, TokenDecoder& decoder);

/// Fills in what the `post_processor` section puts around a text.
void read_post_processor(const JsonObject& section, TokenizerParts& parts, int depth = 0);

std::unique_ptr<TokenModel> read_model(const JsonObject& section, bool byte_level);

/// {"Regex": ...} or {"String": ...}, or a plain string.
std::variant<Regex, std::string> read_pattern(const JsonObject& section, const std::string& key);

}  // namespace trireme::data
