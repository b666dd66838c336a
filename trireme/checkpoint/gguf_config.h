// The shape of a model: GGUF's metadata beside Hugging Face's config.json, both ways.
//
// Tables by architecture say which key is which; what the two write differently (rotary scaling, windows, what a model
// type implies) is code. A key that neither side can express and that changes the mathematics is refused by name.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/checkpoint/gguf_names.h"
#include "trireme/checkpoint/gguf_tensors.h"

namespace trireme::checkpoint {

/// config.json of the model in `source`.
/// Errors    CheckpointError naming a key that is missing, or that Trireme does not know
nlohmann::ordered_json config_from_gguf(const GgufHeader& header, const TensorSource& source);

GgufHeads heads_of(const nlohmann::json& config);

/// What GGUF says of a model beside its tensors and its tokenizer.
struct GgufModel {
  std::string architecture;
  GgufHeads heads;
  bool tied = false;
  std::vector<float> rope_divisors;  ///< rope_freqs.weight; empty where there is none
  std::vector<std::string> notes;    ///< what readers may take differently
};

/// The GGUF of a config.json; adds its keys to `metadata`.
/// Errors    UsageError naming the key that GGUF cannot express
GgufModel config_to_gguf(const nlohmann::json& config, GgufMetadata& metadata);

}  // namespace trireme::checkpoint
