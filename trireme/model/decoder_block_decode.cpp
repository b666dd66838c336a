// One step of generation: a decoder block on new tokens, against a key/value cache.
#include <ATen/ATen.h>

#include "trireme/base/error.h"
#include "trireme/model/decoder_block.h"
#include "trireme/ops/attention.h"

namespace trireme::model {

void DecoderBlock::decode(const at::Tensor& x, const std::vector<at::Tensor>& p, const at::Tensor& k_cache,
                          const at::Tensor& v_cache, int64_t position, comm::Communicator* ranks) const {
  check_invariant(parallel_.cp_size == 1 && !sequence_parallel(), "generation knows tensor and pipeline ranks only");
  const TensorParallel tp(parallel_, ranks);
  const int64_t rows = x.size(0), heads = widths_.q_width(), kv = widths_.kv_width();
  const double eps = config_.norm_eps;
  const at::TensorOptions options = x.options();
  const at::ScalarType state = x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor normed = at::empty_like(x), qkv = at::empty({rows, widths_.qkv_width()}, options),
                   attended = at::empty({rows, heads}, options), mid = at::empty_like(x),
                   hidden = at::empty({rows, (config_.gated_mlp ? 2 : 1) * widths_.mlp}, options),
                   activated = at::empty({rows, widths_.mlp}, options);
  const NormStatistics statistics{at::empty({rows}, options.dtype(state)), at::empty({rows}, options.dtype(state))};
  const auto branch = [&](const Product& product, const at::Tensor& y, const at::Tensor& input, const Norm& post) {
    product_forward(product, y, input, p);
    tp.sum(y);
    product_bias(product, y, p);
    if (post.present()) norm_forward(post, y, statistics, y, p, eps);
  };

  norm_forward(layout_.norm1, normed, statistics, x, p, eps);
  product_forward(layout_.qkv, qkv, normed, p);
  product_bias(layout_.qkv, qkv, p);
  if (has_head_norms())
    ops::head_norm_forward(qkv, at::Tensor(), at::empty({rows, widths_.heads + widths_.kv_heads}, options.dtype(state)),
                           p[layout_.query_norm], p[layout_.key_norm], widths_.heads, widths_.kv_heads, eps,
                           config_.norm_offset);
  if (rotary_) {
    const auto table = rotary_->of(config_.max_position_embeddings);
    ops::rotary_forward(qkv, table.cosine.narrow(0, position, rows), table.sine.narrow(0, position, rows),
                        widths_.heads, widths_.kv_heads);
  }
  k_cache.narrow(0, position, rows).copy_(qkv.narrow(1, heads, kv));
  v_cache.narrow(0, position, rows).copy_(qkv.narrow(1, heads + kv, kv));
  ops::attention_decode(attended, qkv.narrow(1, 0, heads), k_cache.unsqueeze(0), v_cache.unsqueeze(0),
                        at::full({1}, position + rows, at::kLong),
                        attention_shape(1, rows, widths_, attention_traits()));
  branch(layout_.out, normed, attended, layout_.post1);
  add_norm_forward(layout_.norm2, mid, normed, statistics, normed, x, p, eps);
  product_forward(layout_.up, hidden, normed, p);
  product_bias(layout_.up, hidden, p);
  activate(activated, hidden);
  branch(layout_.down, x, activated, layout_.post2);
  ops::add_forward(x, x, mid);
}

}  // namespace trireme::model
