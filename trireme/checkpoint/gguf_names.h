// GGUF's names and layouts of tensors beside Hugging Face's, both ways, as tables by architecture.
//
// What differs beyond the name: architecture llama stores the rows of query and key for interleaved rotary positions,
// Gemma's norms are stored plus one, GPT-2's matrices the other way round. llama3's scaling of rotary frequencies is a
// tensor of its own in GGUF, rope_freqs.weight, which no Hugging Face file has (gguf_rope.h).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/checkpoint/tensor_map.h"

namespace trireme::checkpoint {

/// Architectures as GGUF names them: llama, qwen2, qwen3, gemma2, gemma3, gpt2.
std::span<const std::string_view> gguf_architectures();

/// Heads decide which rows of query and key belong together.
struct GgufHeads {
  int64_t heads = 0;
  int64_t kv_heads = 0;
};

/// Hugging Face's tensors of the model in a GGUF file; `tensors` are the file's. rope_freqs.weight is left out.
///
/// Errors    CheckpointError naming a tensor that the architecture does not have
std::vector<MappedTensor> gguf_to_hugging_face(std::string_view architecture, std::span<const SourceTensor> tensors,
                                               GgufHeads heads, const std::string& path);

/// GGUF's tensors of a Hugging Face model. Buffers of old files (rotary tables, masks) are left out, and so is an
/// lm_head where `tied`.
///
/// Errors    CheckpointError naming a tensor that the architecture does not have
std::vector<MappedTensor> hugging_face_to_gguf(std::string_view architecture, std::span<const SourceTensor> tensors,
                                               GgufHeads heads, bool tied, const std::string& path);

}  // namespace trireme::checkpoint
