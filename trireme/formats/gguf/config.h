// Translates the shape of a model between GGUF's metadata and Hugging Face's config.json.
//
// Tables by architecture (names.h) say which keys correspond. Code translates what the two express differently (rotary
// scaling, windows, what a model type implies). A key that the other format cannot express is refused if it changes the
// mathematics.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/formats/gguf/names.h"
#include "trireme/formats/gguf/tensors.h"

namespace trireme::formats {

/// The config.json of the model in `source`.
/// Errors    CheckpointError naming a key that is missing or unknown to Trireme
nlohmann::ordered_json config_from_gguf(const GgufHeader& header, const TensorSource& source);

GgufHeads heads_of(const nlohmann::json& config);

/// What GGUF stores of a model apart from its tensors and its tokenizer.
struct GgufModel {
  std::string architecture;
  GgufHeads heads;
  bool tied = false;
  std::vector<float> rope_divisors;  ///< rope_freqs.weight; empty if there is none
  std::vector<std::string> notes;  ///< what other readers may understand differently
};

/// Adds the keys of a config.json to `metadata`.
/// Errors    UsageError naming the key that GGUF cannot express
GgufModel config_to_gguf(const nlohmann::json& config, GgufMetadata& metadata);

/// llama3's scaling of rotary frequencies. GGUF stores linear and yarn scaling as keys, but llama3's as the tensor
/// rope_freqs.weight: the divisor of each frequency. Multiplying the last three fields by one factor does not change
/// the divisors. So reading sets low_freq_factor to 1, as in every published model.
struct Llama3Scaling {
  double factor = 8;
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  double original_max_position_embeddings = 8192;
};

/// The head_dim / 2 divisors.
std::vector<float> llama3_divisors(const Llama3Scaling& scaling, int64_t head_dim, double theta);

/// The scaling that gives these divisors, within 1e-4 of each; nothing if none does.
std::optional<Llama3Scaling> find_llama3_scaling(std::span<const float> divisors, double theta);

}  // namespace trireme::formats
