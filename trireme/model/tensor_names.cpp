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
  // The blocks of BERT and RoBERTa.
  static const auto bert_like = [](TensorNames n) {
    n.block.q = "attention.self.query", n.block.k = "attention.self.key", n.block.v = "attention.self.value";
    n.block.out = "attention.output.dense";
    n.block.sum1 = "attention.output.LayerNorm";
    n.block.gate = nullptr;
    n.block.up = "intermediate.dense";
    n.block.down = "output.dense";
    n.block.sum2 = "output.LayerNorm";
    return n;
  };
  static const TensorNames bert = bert_like({.embedding = "bert.embeddings.word_embeddings",
                                             .positions = "bert.embeddings.position_embeddings",
                                             .token_types = "bert.embeddings.token_type_embeddings",
                                             .embedding_norm = "bert.embeddings.LayerNorm",
                                             .pooler = "bert.pooler.dense",
                                             .classifier = "classifier",
                                             .block = {.prefix = "bert.encoder.layer."}});
  static const TensorNames roberta = bert_like({.embedding = "roberta.embeddings.word_embeddings",
                                                .positions = "roberta.embeddings.position_embeddings",
                                                .token_types = "roberta.embeddings.token_type_embeddings",
                                                .embedding_norm = "roberta.embeddings.LayerNorm",
                                                .pooler = "classifier.dense",
                                                .classifier = "classifier.out_proj",
                                                .block = {.prefix = "roberta.encoder.layer."}});
  static const TensorNames distilbert = {.embedding = "distilbert.embeddings.word_embeddings",
                                         .positions = "distilbert.embeddings.position_embeddings",
                                         .embedding_norm = "distilbert.embeddings.LayerNorm",
                                         .pooler = "pre_classifier",
                                         .classifier = "classifier",
                                         .block = {.prefix = "distilbert.transformer.layer.",
                                                   .q = "attention.q_lin",
                                                   .k = "attention.k_lin",
                                                   .v = "attention.v_lin",
                                                   .out = "attention.out_lin",
                                                   .gate = nullptr,
                                                   .up = "ffn.lin1",
                                                   .down = "ffn.lin2",
                                                   .sum1 = "sa_layer_norm",
                                                   .sum2 = "output_layer_norm"}};
  // PyTorch's nn.TransformerEncoderLayer, with q, k and v apart.
  static const TensorNames encoder = {.embedding = "embeddings.tokens",
                                      .final_norm = "encoder.norm",
                                      .positions = "embeddings.positions",
                                      .classifier = "classifier",
                                      .block = {.prefix = "encoder.layers.",
                                                .norm1 = "norm1",
                                                .out = "self_attn.out_proj",
                                                .norm2 = "norm2",
                                                .gate = nullptr,
                                                .up = "linear1",
                                                .down = "linear2",
                                                .sum1 = "norm1",
                                                .sum2 = "norm2"}};
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
    case A::bert:
      return bert;
    case A::roberta:
      return roberta;
    case A::distilbert:
      return distilbert;
    case A::encoder:
      return encoder;
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
