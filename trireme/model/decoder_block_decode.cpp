// One step of generation: a decoder block on one token a row, against a key/value cache.
#include <ATen/ATen.h>

#include "trireme/base/error.h"
#include "trireme/model/decoder_block.h"
#include "trireme/ops/attention.h"

namespace trireme::model {

void DecoderBlock::decode(const at::Tensor& x, const std::vector<at::Tensor>& p, const at::Tensor& k_cache,
                          const at::Tensor& v_cache, int64_t position) const {
  check_invariant(parallel_.tp_size == 1 && parallel_.cp_size == 1, "generation runs on one rank");
  const int64_t rows = x.size(0), heads = widths_.q_width(), kv = widths_.kv_width();
  const at::TensorOptions options = x.options();
  const at::ScalarType state = x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor normed = at::empty_like(x), qkv = at::empty({rows, widths_.qkv_width()}, options),
                   attended = at::empty({rows, heads}, options), mid = at::empty_like(x),
                   hidden = at::empty({rows, (config_.gated_mlp ? 2 : 1) * widths_.mlp}, options),
                   activated = at::empty({rows, widths_.mlp}, options);
  const NormStatistics statistics{at::empty({rows}, options.dtype(state)), at::empty({rows}, options.dtype(state))};
  norm_forward(layout_.norm1, normed, statistics, x, p, config_.norm_eps);
  product_forward(layout_.qkv, qkv, normed, p);
  product_bias(layout_.qkv, qkv, p);
  if (has_head_norms())
    ops::head_norm_forward(qkv, at::Tensor(), at::empty({rows, widths_.heads + widths_.kv_heads}, options.dtype(state)),
                           p[layout_.query_norm], p[layout_.key_norm], widths_.heads, widths_.kv_heads,
                           config_.norm_eps, config_.norm_offset);
  if (rotary_) {
    // One position: its row of the table serves every batch row.
    const auto table = rotary_->of(config_.max_position_embeddings);
    ops::rotary_forward(qkv, table.cosine.narrow(0, position, 1), table.sine.narrow(0, position, 1), widths_.heads,
                        widths_.kv_heads);
  }
  k_cache.select(1, position).copy_(qkv.narrow(1, heads, kv));
  v_cache.select(1, position).copy_(qkv.narrow(1, heads + kv, kv));
  ops::attention_decode(attended, qkv.narrow(1, 0, heads).contiguous(), k_cache, v_cache,
                        at::full({rows}, position + 1, at::kLong),
                        attention_shape(rows, position + 1, widths_, attention_traits()));
  product_forward(layout_.out, normed, attended, p);
  product_bias(layout_.out, normed, p);
  if (has_post_norms()) norm_forward(layout_.post1, normed, statistics, normed, p, config_.norm_eps);
  add_norm_forward(layout_.norm2, mid, normed, statistics, normed, x, p, config_.norm_eps);
  product_forward(layout_.up, hidden, normed, p);
  product_bias(layout_.up, hidden, p);
  activate(activated, hidden);
  product_forward(layout_.down, x, activated, p);
  product_bias(layout_.down, x, p);
  if (has_post_norms()) norm_forward(layout_.post2, x, statistics, x, p, config_.norm_eps);
  ops::add_forward(x, x, mid);
}

}  // namespace trireme::model
