// LitGPT's model_config.yaml, to and from the model it describes. What one side cannot say is refused by name: a key
// that changes the mathematics is never dropped.
// Source: LitGPT's config.py (class Config).
#pragma once

#include <string>

#include "trireme/model/config.h"

namespace trireme::checkpoint {

/// Longest model_config.yaml that is read; LitGPT's have 2 KiB.
constexpr size_t kMaxLitConfigBytes = 128 << 10;

/// The model of a model_config.yaml. Its vocabulary is the padded one, whose rows the file of weights holds. LitGPT
/// stores the head beside the embedding and does not say whether they are one: tie_word_embeddings is false; see
/// litgpt_head_is_tied().
///
/// Errors    UsageError naming `source` and the key: unknown ones, values that no supported architecture has
model::ModelConfig parse_litgpt_config(const std::string& yaml, const std::string& source);

/// The model_config.yaml of a model.
///
/// Errors    UsageError naming what LitGPT cannot say: GPT-2's learned positions, yarn, biases outside of q, k and v
std::string to_litgpt_yaml(const model::ModelConfig& config);

}  // namespace trireme::checkpoint
