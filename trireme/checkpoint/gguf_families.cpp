#include "trireme/checkpoint/gguf_families.h"

#include <fmt/format.h>

#include "trireme/base/error.h"

namespace trireme::checkpoint {

std::span<const GgufFamily> gguf_families() {
  static const std::vector<GgufConfigRow> decoder{{"context_length", "max_position_embeddings"},
                                                  {"embedding_length", "hidden_size"},
                                                  {"block_count", "num_hidden_layers"},
                                                  {"feed_forward_length", "intermediate_size"},
                                                  {"attention.head_count", "num_attention_heads"},
                                                  {"attention.layer_norm_rms_epsilon", "rms_norm_eps", false}};
  static const std::vector<GgufConfigRow> gpt2{
      {"context_length", "n_positions"},  {"embedding_length", "n_embd"},
      {"block_count", "n_layer"},         {"feed_forward_length", "n_inner"},
      {"attention.head_count", "n_head"}, {"attention.layer_norm_epsilon", "layer_norm_epsilon", false}};
  static const std::vector<GgufFamily> all{
      {"llama", {"llama", "mistral"}, "LlamaForCausalLM", "silu", decoder},
      {"qwen2", {"qwen2"}, "Qwen2ForCausalLM", "silu", decoder},
      {"qwen3", {"qwen3"}, "Qwen3ForCausalLM", "silu", decoder},
      {"gemma2", {"gemma2"}, "Gemma2ForCausalLM", "gelu_pytorch_tanh", decoder, true},
      {"gemma3", {"gemma3_text"}, "Gemma3ForCausalLM", "gelu_pytorch_tanh", decoder, true},
      {"gpt2", {"gpt2"}, "GPT2LMHeadModel", "gelu_new", gpt2, false, true}};
  return all;
}

const GgufFamily& gguf_family(std::string_view architecture, const std::string& path) {
  for (const GgufFamily& family : gguf_families()) {
    if (family.architecture == architecture) return family;
  }
  throw CheckpointError(
      fmt::format("{} holds a model of architecture {}; of GGUF's architectures Trireme knows llama (Llama, TinyLlama, "
                  "SmolLM2, Mistral), qwen2, qwen3, gemma2, gemma3 and gpt2",
                  path, architecture),
      path);
}

}  // namespace trireme::checkpoint
