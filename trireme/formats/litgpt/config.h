// Translates between LitGPT's model_config.yaml and the model that it describes. Keys that one side cannot express are
// refused: a key that changes the mathematics is never dropped. Source: LitGPT's config.py (class Config).
#pragma once

#include <string>

#include "trireme/model/config.h"

namespace trireme::formats {

/// The longest model_config.yaml that is read; LitGPT writes 2 KiB.
constexpr size_t kMaxLitConfigBytes = 128 << 10;

/// The model of a model_config.yaml. Its vocabulary size is the padded size, as in the file of weights. LitGPT stores
/// the head beside the embedding and does not say whether they are tied, so tie_word_embeddings is false; see
/// litgpt_head_is_tied().
///
/// Errors    UsageError naming `source` and the key: unknown ones, values that no supported architecture has
model::ModelConfig parse_litgpt_config(const std::string& yaml, const std::string& source);

/// The model_config.yaml of a model.
///
/// Errors    UsageError naming what LitGPT cannot express: GPT-2's learned positions, yarn, biases outside of q, k and
/// v
std::string to_litgpt_yaml(const model::ModelConfig& config);

}  // namespace trireme::formats
