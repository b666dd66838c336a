// How each architecture's files name their tensors, and which of them hold several matrices. A table, so that blocks,
// head and adapters need no branch for an architecture.
#pragma once

#include <string>

#include "trireme/model/config.h"

namespace trireme::model {

/// Modules of a block, behind its prefix; null: the architecture has no such module, or it is part of another.
struct BlockNames {
  const char* prefix;  ///< "model.layers."
  const char* norm1 = "input_layernorm";
  const char* qkv = nullptr;  ///< q, k and v in one matrix
  const char *q = "self_attn.q_proj", *k = "self_attn.k_proj", *v = "self_attn.v_proj";
  const char *query_norm = "self_attn.q_norm", *key_norm = "self_attn.k_norm";
  const char* out = "self_attn.o_proj";
  const char* post1 = "post_attention_layernorm";  ///< of the attention's output, if the model has such norms
  const char* norm2 = "post_attention_layernorm";
  const char* gate_up = nullptr;  ///< gate and up in one matrix
  const char *gate = "mlp.gate_proj", *up = "mlp.up_proj";  ///< a plain MLP has no gate
  const char* down = "mlp.down_proj";
  const char* post2 = "post_feedforward_layernorm";
  const char *sum1 = nullptr, *sum2 = nullptr;
  bool in_out = false;  ///< matrices are stored [in, out] (GPT-2's Conv1D), otherwise [out, in]
  bool by_head = false;  ///< the rows of `qkv` are q, k and v of the first head, then those of the next (GPT-NeoX)
};

struct TensorNames {
  const char* embedding = "model.embed_tokens";
  const char* final_norm = "model.norm";
  const char* head = "lm_head";
  const char* positions = "transformer.wpe";  ///< learned ones
  const char *token_types = nullptr, *embedding_norm = nullptr;
  const char *pooler = nullptr, *classifier = "score";  ///< of a classification head
  BlockNames block;
};

const TensorNames& tensor_names(Architecture architecture);

}  // namespace trireme::model
