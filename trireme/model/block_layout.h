// What a decoder block is made of, as data: its parameters, how they are divided over the tensor-parallel ranks, and
// which of them each product and norm reads.
#pragma once

#include "trireme/model/config.h"
#include "trireme/model/products.h"
#include "trireme/model/unit.h"

namespace trireme::model {

struct BlockLayout {
  Norm norm1;
  Product qkv;
  int query_norm = -1, key_norm = -1;  ///< weights of the norms of each head; -1: none
  Product out;
  Norm post1;  ///< of the attention's output; not present in most
  Norm norm2;
  Product up, down;  ///< up: gate | up where the MLP is gated
  Norm post2;        ///< of the MLP's output
};

/// Widths on one tensor-parallel rank.
struct BlockWidths {
  int64_t width, heads, kv_heads, head_dim, mlp;
  int64_t q_width() const { return heads * head_dim; }
  int64_t kv_width() const { return kv_heads * head_dim; }
  int64_t qkv_width() const { return q_width() + 2 * kv_width(); }
};

/// Errors    UsageError naming the key of the model, the rule and the sizes that would do
void check_divisible(const ModelConfig& config, const Parallel& parallel);

BlockWidths block_widths(const ModelConfig& config, const Parallel& parallel);

/// So many neighbouring ranks hold the same key/value head; 1 where the heads are divided.
int64_t kv_head_sharers(const ModelConfig& config, const Parallel& parallel);

/// Parameters of block `layer` on this rank, and where in their list each product and norm finds its own.
struct BlockParameters {
  BlockLayout layout;
  std::vector<ParameterSpec> specs;
};
BlockParameters block_parameters(const ModelConfig& config, int64_t layer, const Parallel& parallel);

}  // namespace trireme::model
