// The contents of a decoder block as data: its parameters, how tensor-parallel ranks divide them, and which of them
// each product and norm reads.
#pragma once

#include "trireme/model/adapters.h"
#include "trireme/model/config.h"
#include "trireme/model/layers.h"
#include "trireme/model/unit.h"

namespace trireme::model {

struct BlockLayout {
  Norm norm1;  ///< before the attention; absent in OLMo 2
  Product qkv;
  int query_norm = -1, key_norm = -1;  ///< parameter indices of the weights of query and key norms; -1: none
  Product out;  ///< after the attention
  Norm post1;  ///< of the attention's output; absent in most models
  Norm norm2;  ///< before the MLP; absent in OLMo 2
  Product up, down;  ///< a gated MLP's `up` is gate | up in one matrix
  Norm post2;        ///< of the MLP's output
  Norm sum1, sum2;   ///< of the sums of the residual stream and attention or MLP; in post-norm blocks (BERT) alone
  /// Whether a parameter belongs to the attention half of the block; otherwise to the MLP half.
  bool is_attention(int parameter) const;
};

/// Widths on one tensor-parallel rank.
struct BlockWidths {
  int64_t width, heads, kv_heads, head_dim, mlp;
  int64_t q_width() const { return heads * head_dim; }
  int64_t kv_width() const { return kv_heads * head_dim; }
  int64_t qkv_width() const { return q_width() + 2 * kv_width(); }
};

/// Errors    UsageError naming the model's key, the rule and sizes that fit
void check_divisible(const ModelConfig& config, const Parallel& parallel);

BlockWidths block_widths(const ModelConfig& config, const Parallel& parallel);

/// How many neighbouring ranks hold the same key/value head; 1 if every rank has heads of its own.
int64_t kv_head_sharers(const ModelConfig& config, const Parallel& parallel);

/// Parameters of block `layer` on this rank. `layout` holds the indices in `specs` that each product and norm reads.
struct BlockParameters {
  BlockLayout layout;
  std::vector<ParameterSpec> specs;
};
///
/// The parameters of adapters follow those of the model.
/// Errors    UsageError: adapters on key/value heads that several tensor-parallel ranks share
BlockParameters block_parameters(const ModelConfig& config, int64_t layer, const Parallel& parallel,
                                 const Adapters& adapters = {});

}  // namespace trireme::model
