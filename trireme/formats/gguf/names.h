// Tables by architecture that translate names and layouts of tensors between GGUF and Hugging Face.
//
// Layouts differ too: architecture llama stores the rows of query and key for interleaved rotary positions, Gemma's
// norms are stored plus one, and GPT-2's matrices are transposed. GGUF has a tensor of its own for llama3's scaling of
// rotary frequencies, rope_freqs.weight (gguf/config.h).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/formats/tensor_map.h"

namespace trireme::formats {

/// One setting of the model under both names.
struct GgufConfigRow {
  std::string_view gguf;          ///< without the prefix "{arch}."
  std::string_view hugging_face;  ///< in config.json
  bool whole = true;              ///< a whole number
};

struct GgufFamily {
  std::string_view architecture;             ///< GGUF's: "gemma3"
  std::vector<std::string_view> model_types; ///< config.json's; the first is written
  std::string_view class_name;               ///< "Gemma3ForCausalLM"
  std::string_view activation;
  std::vector<GgufConfigRow> rows;
  bool gemma = false;
  bool gpt2 = false;
};

std::span<const GgufFamily> gguf_families();

/// `path` is for messages. Errors    CheckpointError with the known architectures, if this is none of them
const GgufFamily& gguf_family(std::string_view architecture, const std::string& path);

/// Numbers of heads: they decide which rows of query and key belong together.
struct GgufHeads {
  int64_t heads = 0;
  int64_t kv_heads = 0;
};

/// Adds the prefix that names in GPT-2's first files lack and names in re-saved files have.
std::string with_prefix(std::string_view architecture, const std::string& name);

/// The map from the tensors of a GGUF file to Hugging Face's. rope_freqs.weight is left out.
///
/// Errors    CheckpointError naming a tensor that the architecture does not have
std::vector<MappedTensor> gguf_to_hugging_face(std::string_view architecture, std::span<const TensorSpec> tensors,
                                               GgufHeads heads, const std::string& path);

/// The map from Hugging Face's tensors to GGUF's. It leaves out buffers of old files (rotary tables, masks), and
/// lm_head if `tied`.
///
/// Errors    CheckpointError naming a tensor that the architecture does not have
std::vector<MappedTensor> hugging_face_to_gguf(std::string_view architecture, std::span<const TensorSpec> tensors,
                                               GgufHeads heads, bool tied, const std::string& path);

}  // namespace trireme::formats
