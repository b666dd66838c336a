// The tokens at which generation ends a text, as files of a model name them: eos_token_id of generation_config.json and
// config.json. trireme generate reads both files. transformers reads generation_config.json, and config.json only where
// there is no such file. So a token that a model learned to write at the end is added where transformers looks.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "trireme/text/chat_template.h"
#include "trireme/text/tokenizer.h"

namespace trireme::text {

/// eos_token_id of a config.json or generation_config.json: one id, or several. Empty: there is none.
std::vector<int64_t> eos_ids_in(const nlohmann::json& file);

/// The special token between two texts, if the tokenizer has one. (A line break ends no text.)
std::optional<int32_t> special_separator(const Tokenizer& tokenizer);

/// The special token that ends a reply in this template, if the tokenizer has one.
std::optional<int32_t> end_of_reply(const ChatFamily& family, const Tokenizer& tokenizer);

/// Makes generation stop at `id`, too: adds it to eos_token_id of generation_config.json in `files` (name -> bytes).
/// Changes nothing if transformers finds the id there already.
///
/// @param config_json  of the same model; it may be empty
void add_end_of_text(int32_t id, const Tokenizer& tokenizer, const std::string& config_json,
                     std::map<std::string, std::string>& files);

}  // namespace trireme::text
