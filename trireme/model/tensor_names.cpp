#include "trireme/model/tensor_names.h"

#include "trireme/base/error.h"

namespace trireme::model {

const TensorNames& tensor_names(Architecture architecture) {
  using A = Architecture;
  static const TensorNames llama = {.block = {.prefix = "model.layers."}};
  // Norms of the outputs of attention and MLP; Llama's name of the second norm is that of the first of these.
  static const TensorNames gemma = {.block = {.prefix = "model.layers.", .norm2 = "pre_feedforward_layernorm"}};
  static const TensorNames gpt2 = {.embedding = "transformer.wte",
                                   .final_norm = "transformer.ln_f",
                                   .block = {.prefix = "transformer.h.",
                                             .norm1 = "ln_1",
                                             .qkv = "attn.c_attn",
                                             .out = "attn.c_proj",
                                             .norm2 = "ln_2",
                                             .gate = nullptr,
                                             .up = "mlp.c_fc",
                                             .down = "mlp.c_proj",
                                             .in_out = true}};
  static const TensorNames starcoder2 = {
      .block = {.prefix = "model.layers.", .gate = nullptr, .up = "mlp.c_fc", .down = "mlp.c_proj"}};
  static const TensorNames phi3 = {
      .block = {.prefix = "model.layers.", .qkv = "self_attn.qkv_proj", .gate_up = "mlp.gate_up_proj"}};
  static const TensorNames gpt_neox = {.embedding = "gpt_neox.embed_in",
                                       .final_norm = "gpt_neox.final_layer_norm",
                                       .head = "embed_out",
                                       .block = {.prefix = "gpt_neox.layers.",
                                                 .qkv = "attention.query_key_value",
                                                 .out = "attention.dense",
                                                 .gate = nullptr,
                                                 .up = "mlp.dense_h_to_4h",
                                                 .down = "mlp.dense_4h_to_h",
                                                 .by_head = true}};
  switch (architecture) {
    case A::gemma2:
    case A::gemma3:
      return gemma;
    case A::gpt2:
      return gpt2;
    case A::starcoder2:
      return starcoder2;
    case A::phi3:
      return phi3;
    case A::gpt_neox:
      return gpt_neox;
    case A::llama:
    case A::mistral:
    case A::qwen2:
    case A::qwen3:
    case A::gemma:
    case A::smollm3:
    case A::granite:
    case A::olmo2:
    case A::free_transformer:
      return llama;
  }
  throw InternalError("every architecture has names");
}

}  // namespace trireme::model
