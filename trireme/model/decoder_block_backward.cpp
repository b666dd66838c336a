// The backward of a decoder block, whole or in two halves. backward_steps() computes the gradients of inputs. It calls
// `on_product` when both operands of a weight gradient exist. The whole backward then computes the gradient at once;
// the input half leaves the operands in `deferred` for the weight half.
#include <ATen/ATen.h>

#include "trireme/model/block_values.h"
#include "trireme/model/decoder_block.h"
#include "trireme/ops/products/products.h"

namespace trireme::model {
using namespace block;

/// Where backward_steps() puts its results; in the whole backward several of them share memory.
struct DecoderBlock::BackwardBuffers {
  at::Tensor d_normed;      ///< [T,D] gradient of a norm's output: partial sums of this rank
  at::Tensor reduced_rows;  ///< sequence parallel: this rank's rows of their sum
  at::Tensor dy, d_mid;  ///< [T,D] gathered, or copies that change or outlive backward_steps(); undefined: not needed
  at::Tensor activated, normed1, normed2, d_qkv, d_attended;
  at::Tensor mlp_gradient;  ///< parallel residual: [rows,D] of the input, through the MLP
  at::Tensor wide_sums;  ///< norms over all heads
  NormGradients norm1, post1, norm2, post2, sum1, sum2;
  ops::Gradient query_norm, key_norm;  ///< [d] of the head norms' weights
  ContextAttention::Scratch attention;
  void take(const BlockLayout& layout, const std::vector<NormGradients>& norms);
};

namespace {

// The rows of `gradients`, assigned to the norms in order.
std::vector<NormGradients> norm_rows(const at::Tensor& gradients, const std::vector<Norm>& norms) {
  std::vector<NormGradients> rows;
  int64_t next = 0;
  for (const Norm& norm : norms) {
    rows.push_back({gradients[next++], {}});
    if (norm.centered()) rows.back().bias = gradients[next++];
  }
  return rows;
}

// The operand [T,D] of a row product's weight gradient: gathered, copied if it must outlive d_boundary, or d_boundary.
at::Tensor operand(const TensorParallel& tp, const at::Tensor& buffer, const at::Tensor& d_boundary) {
  if (!buffer.defined()) return d_boundary;
  if (tp.sequence()) return tp.gather(buffer, d_boundary);
  return at::Tensor(buffer).copy_(d_boundary);
}

}  // namespace

void DecoderBlock::BackwardBuffers::take(const BlockLayout& layout, const std::vector<NormGradients>& norms) {
  const std::pair<const Norm*, NormGradients*> all[] = {{&layout.norm1, &norm1}, {&layout.post1, &post1},
                                                        {&layout.norm2, &norm2}, {&layout.post2, &post2},
                                                        {&layout.sum1, &sum1},   {&layout.sum2, &sum2}};
  size_t next = 0;
  for (const auto& [norm, gradients] : all)
    if (norm->present()) *gradients = norms[next++];
}

void DecoderBlock::differentiate_activation(const at::Tensor& hidden, const at::Tensor& activated) const {
  if (const auto plain = plain_activation(config_))
    ops::plain_backward(*plain, hidden, activated);
  else if (!config_.gated_mlp)
    ops::gelu_backward(hidden, activated);
  else if (config_.activation == Activation::silu)
    ops::swiglu_backward(hidden, activated);
  else
    ops::geglu_backward(hidden, activated);
}

// The q and k parts of d_qkv become the gradients of what the norms read.
void DecoderBlock::backward_head_norms(UnitTensors& t, const BackwardBuffers& b) const {
  const at::Tensor &raw = t.saved[kRawQk], &rstd = t.saved[kRstdQk], &w_q = t.parameters[layout_.query_norm],
                   &w_k = t.parameters[layout_.key_norm];
  if (!has_wide_norms())
    return ops::head_norm_backward(b.d_qkv, b.query_norm, b.key_norm, raw, rstd, w_q, w_k, widths_.heads,
                                   widths_.kv_heads, config_.norm_offset);
  ops::wide_norm_backward_sums(b.wide_sums, b.query_norm, b.key_norm, b.d_qkv, raw, rstd, w_q, w_k);
  TensorParallel(parallel_, t.ranks).sum(b.wide_sums);
  ops::wide_norm_backward(b.d_qkv, b.wide_sums, raw, rstd, w_q, w_k, whole_q_width(), whole_kv_width());
}

void DecoderBlock::backward_steps(UnitTensors& t, const BackwardBuffers& b, const OnProduct& on_product) const {
  const TensorParallel tp(parallel_, t.ranks);
  const auto& p = t.parameters;
  auto& s = t.saved;
  const at::Tensor& dx = t.d_boundary;
  // For a branch [rows,D] with a post-norm: its gradient replaces the branch. The norm's output, which norm_backward
  // writes again, goes to memory that is free.
  const auto through_post_norm = [&](const Norm& norm, const NormGradients& gradients, int branch, int rstd,
                                     const Dropout& dropout) {
    const at::Tensor spare = tp.own_rows(b.d_normed), &dy = drops_branches() ? spare : dx;
    if (drops_branches()) drop(dropout, dy, dx, t, parallel_, t.work[kDropoutKeys]);
    norm_backward(norm, s[branch], gradients, spare, dy, s[branch], p, post_statistics(t, rstd), at::Tensor());
    return s[branch];
  };
  // The operand of the gradient of a branch's product.
  const auto branch_gradient = [&](const at::Tensor& buffer, const at::Tensor& dy, const Dropout& dropout) {
    const at::Tensor whole = operand(tp, buffer, dy);
    if (has_post_norms())
      multiply(whole);
    else
      finish_branch(t, dropout, whole);
    return whole;
  };

  // The gradient of a norm's input, added to that of the residual stream; the norm's output again goes to `normed`.
  const auto through_norm = [&](const Norm& norm, const NormGradients& gradients, const at::Tensor& normed,
                                const at::Tensor& d_normed, const at::Tensor& x, const NormStatistics& statistics) {
    if (norm.present()) return norm_backward(norm, dx, gradients, normed, d_normed, x, p, statistics, dx);
    at::Tensor(dx).add_(d_normed);
    at::Tensor(normed).copy_(x);
  };

  const auto backward_input = [&](const Product& product, const at::Tensor& to, const at::Tensor& dy) {
    adapted_backward_input(product, t, parallel_, adapter_buffers(t, product), to, dy);
  };

  // The gradient `dy`, which lies in `normed`, goes through the norm of a sum: dx becomes that of both addends.
  const auto through_sum_norm = [&](const Norm& norm, const NormGradients& gradients, const at::Tensor& dy, int sum,
                                    const NormStatistics& statistics) {
    norm_backward(norm, dx, gradients, b.normed2, dy, s[sum], p, statistics, at::Tensor());
  };

  if (has_sum_norms()) through_sum_norm(layout_.sum2, b.sum2, at::Tensor(b.normed2).copy_(dx), kMlpOut, statistics2(t));
  const at::Tensor d_down =
      has_post_norms() ? through_post_norm(layout_.post2, b.post2, kMlpOut, kRstdPost2, mlp_dropout_) : dx;
  const at::Tensor dy = branch_gradient(b.dy, d_down, mlp_dropout_);
  backward_input(layout_.down, b.activated, dy);
  // hidden becomes its gradient; the gradient of the activation becomes the activation.
  differentiate_activation(s[kHidden], b.activated);
  on_product(layout_.down, dy, b.activated, false);
  backward_input(layout_.up, b.d_normed, s[kHidden]);
  const at::Tensor d_norm2 = tp.reduce(b.d_normed, b.reduced_rows);
  if (has_sum_norms())
    through_sum_norm(layout_.sum1, b.sum1, at::Tensor(d_norm2).add_(dx), kMid, statistics1(t));
  else if (config_.parallel_residual)  // the attention's branch still needs dx as it is
    norm_backward(layout_.norm2, b.mlp_gradient, b.norm2, b.normed2, d_norm2, t.input, p, statistics2(t), at::Tensor());
  else
    through_norm(layout_.norm2, b.norm2, b.normed2, d_norm2, s[kMid], statistics2(t));
  on_product(layout_.up, s[kHidden], b.normed2, true);

  const at::Tensor d_out =
      has_post_norms() ? through_post_norm(layout_.post1, b.post1, kAttentionOut, kRstdPost1, attention_dropout_) : dx;
  const at::Tensor d_mid = branch_gradient(b.d_mid, d_out, attention_dropout_);
  backward_input(layout_.out, b.d_attended, d_mid);
  on_product(layout_.out, d_mid, s[kAttended], false);
  attention_->backward(b.d_qkv, b.d_attended, s[kAttended], s[kLse], s[kQkv], b.attention, t.shape, t.document_starts,
                       t.random, t.ranks[comm::UnitAxis::cp]);
  if (rotary_) {
    const auto table = rotary_of(t);
    ops::rotary_backward(b.d_qkv, table.cosine, table.sine, widths_.heads, widths_.kv_heads, t.position_ids);
  }
  if (has_head_norms()) backward_head_norms(t, b);
  backward_input(layout_.qkv, b.d_normed, b.d_qkv);
  const at::Tensor d_norm1 = tp.reduce(b.d_normed, b.reduced_rows);
  through_norm(layout_.norm1, b.norm1, b.normed1, d_norm1, t.input, statistics1(t));
  if (config_.parallel_residual) ops::add_forward(dx, dx, b.mlp_gradient);
  on_product(layout_.qkv, b.d_qkv, b.normed1, true);
}

void DecoderBlock::backward(UnitTensors& t) const {
  const TensorParallel tp(parallel_, t.ranks);
  const at::Tensor& d_normed = t.work[kDNormed];
  BackwardBuffers b{.d_normed = d_normed,
                    .activated = t.work[kDActivated],
                    .d_qkv = t.work[kDQkv],
                    .d_attended = t.work[kDAttended],
                    .attention = attention_work(t)};
  b.normed1 = b.normed2 = tp.own_rows(d_normed);  // the gradient there has been read by then
  at::Tensor norm_gradients, head_norm_gradients;
  if (tp.sequence() || has_multiplier() || (drops_branches() && !has_post_norms()))
    b.dy = b.d_mid = d_normed;  // free while these are operands
  if (config_.parallel_residual) b.mlp_gradient = t.work[kMlpGradient];
  if (has_wide_norms()) b.wide_sums = t.work[kWideSums];
  if (tp.sequence()) {
    b.reduced_rows = t.work[kReducedRows];
    norm_gradients = t.work[kNormGradientParts];
    b.take(layout_, norm_rows(norm_gradients, norms()));
  } else {
    std::vector<NormGradients> direct;
    for (const Norm& norm : norms())
      direct.push_back({t.gradient(norm.weight), norm.centered() ? t.gradient(norm.bias) : ops::Gradient()});
    b.take(layout_, direct);
  }
  if (has_head_norms() && !has_wide_norms() && !tp.alone()) {
    head_norm_gradients = t.work[kHeadNormGradientParts];
    b.query_norm = head_norm_part(head_norm_gradients, 0), b.key_norm = head_norm_part(head_norm_gradients, 1);
  } else if (has_head_norms()) {
    b.query_norm = t.gradient(layout_.query_norm), b.key_norm = t.gradient(layout_.key_norm);
  }
  backward_steps(t, b, [&](const Product& product, const at::Tensor& dy, const at::Tensor& x, bool normed) {
    if (normed) tp.gather_in_place(d_normed);
    const at::Tensor& rows = normed ? d_normed : x;
    write_weight(t, product, dy, rows);
    adapters_before_weight(product, t, parallel_, adapter_buffers(t, product), dy, rows);
    write_adapters(t, product, dy, rows);
  });
  if (adapter_parts_.size() > 0) adapter_parts_.write(t, tp, t.work[kAdapterParts]);
  if (tp.sequence()) write_norms(t, norm_gradients);
  if (head_norm_gradients.defined()) write_head_norms(t, head_norm_gradients);
}

void DecoderBlock::backward_input(UnitTensors& t) const {
  const auto& d = t.deferred;
  BackwardBuffers b{.d_normed = t.work[kDNormed],
                    .reduced_rows = sequence_parallel() ? t.work[kReducedRows] : at::Tensor(),
                    .dy = d[kDy],
                    .d_mid = d[kDMid],
                    .activated = d[kDeferredActivated],
                    .normed1 = d[kNormed1],
                    .normed2 = d[kNormed2],
                    .d_qkv = d[kDeferredDQkv],
                    .d_attended = t.work[kDAttended],
                    .attention = attention_work(t)};
  if (config_.parallel_residual) b.mlp_gradient = t.work[kMlpGradient];
  if (has_wide_norms()) b.wide_sums = t.work[kWideSums];
  b.take(layout_, norm_rows(d[kNormGradients], norms()));
  if (has_head_norms())
    b.query_norm = head_norm_part(d[kHeadNormGradients], 0), b.key_norm = head_norm_part(d[kHeadNormGradients], 1);
  const TensorParallel tp(parallel_, t.ranks);
  backward_steps(t, b, [&](const Product& product, const at::Tensor& dy, const at::Tensor& x, bool normed) {
    if (product.adapters.empty()) return;
    const at::Tensor rows = normed ? tp.gather(b.d_normed, x) : x;  // the gradient in d_normed has been read by then
    adapters_before_weight(product, t, parallel_, adapter_buffers(t, product), dy, rows);
  });
}

void DecoderBlock::backward_weight(UnitTensors& t) const {
  const TensorParallel tp(parallel_, t.ranks);
  const auto& d = t.deferred;
  const at::Tensor gathered = tp.sequence() ? t.work[kGathered] : at::Tensor();
  const auto write = [&](const Product& product, const at::Tensor& dy, const at::Tensor& x) {
    write_weight(t, product, dy, x);
    write_adapters(t, product, dy, x);
  };
  write(layout_.down, d[kDy], d[kDeferredActivated]);
  write(layout_.up, t.saved[kHidden], tp.gather(gathered, d[kNormed2]));
  write(layout_.out, d[kDMid], t.saved[kAttended]);
  write(layout_.qkv, d[kDeferredDQkv], tp.gather(gathered, d[kNormed1]));
  if (adapter_parts_.size() > 0) adapter_parts_.write(t, tp, t.work[kAdapterParts]);
  write_norms(t, d[kNormGradients]);
  if (has_head_norms()) write_head_norms(t, d[kHeadNormGradients]);
}

void DecoderBlock::write_weight(UnitTensors& t, const Product& product, const at::Tensor& dy,
                                const at::Tensor& x) const {
  if (&product == &layout_.qkv && shares_heads()) return write_shared_heads(t, dy, x);
  product_backward_weight(product, t, dy, x);
}

void DecoderBlock::write_adapters(UnitTensors& t, const Product& product, const at::Tensor& dy,
                                  const at::Tensor& x) const {
  adapters_backward_weight(product, t, parallel_, adapter_buffers(t, product), dy, x, adapter_parts_,
                           adapter_parts_.size() > 0 ? t.work[kAdapterParts] : at::Tensor());
}

// Ranks that hold the same key/value head each have the part of its gradient from their own queries. Every rank puts
// its part in the rows of its head; the sum over all ranks is then right for every head.
void DecoderBlock::write_shared_heads(UnitTensors& t, const at::Tensor& dy, const at::Tensor& x) const {
  const TensorParallel tp(parallel_, t.ranks);
  const int64_t q = widths_.q_width(), kv = widths_.kv_width(),
                head = parallel_.tp_rank / kv_head_sharers(config_, parallel_);
  // put(rows, part) writes part 0, 1 or 2 of q|k|v to `rows`, or adds it.
  const auto write = [&](const at::Tensor& all, int first_gradient, const auto& put) {
    const at::Tensor k = all.narrow(0, head * kv, kv), v = all.narrow(0, all.size(0) / 2 + head * kv, kv);
    put(t.gradient(first_gradient), 0);
    at::Tensor(all).zero_();
    put(k, 1);
    put(v, 2);
    tp.sum(all);
    ops::write_gradient(t.gradient(first_gradient + 1), k);
    ops::write_gradient(t.gradient(first_gradient + 2), v);
  };
  const int64_t begin[] = {0, q, q + kv}, size[] = {q, kv, kv};
  write(t.work[kAllHeads], layout_.qkv.weight, [&](const ops::Gradient& rows, int part) {
    if (rows.defined()) ops::multiply(rows.to, dy.narrow(1, begin[part], size[part]).t(), x, rows.accumulate);
  });
  if (layout_.qkv.bias < 0) return;
  const at::Tensor& biases = t.work[kBiases];
  ops::bias_backward(biases, dy);
  write(t.work[kAllHeadBiases], layout_.qkv.bias, [&](const ops::Gradient& rows, int part) {
    ops::write_gradient(rows, biases.narrow(0, begin[part], size[part]));
  });
}

// Under sequence parallelism each rank has the part from its rows.
void DecoderBlock::write_norms(UnitTensors& t, const at::Tensor& gradients) const {
  const TensorParallel tp(parallel_, t.ranks);
  if (tp.sequence()) tp.sum(gradients);
  int64_t row = 0;
  for (const Norm& norm : norms()) {
    ops::write_gradient(t.gradient(norm.weight), gradients[row++]);
    if (norm.centered()) ops::write_gradient(t.gradient(norm.bias), gradients[row++]);
  }
}

at::Tensor DecoderBlock::head_norm_part(const at::Tensor& gradients, int part) const {
  const int64_t q = has_wide_norms() ? widths_.q_width() : widths_.head_dim;
  return part == 0 ? gradients.narrow(0, 0, q) : gradients.narrow(0, q, gradients.size(0) - q);
}

// Every rank has the part from its heads; of norms over all heads it has the weights of its heads alone.
void DecoderBlock::write_head_norms(UnitTensors& t, const at::Tensor& gradients) const {
  const TensorParallel tp(parallel_, t.ranks);
  if (!has_wide_norms()) tp.sum(gradients);
  ops::write_gradient(t.gradient(layout_.query_norm), head_norm_part(gradients, 0));
  ops::write_gradient(t.gradient(layout_.key_norm), head_norm_part(gradients, 1));
}

}  // namespace trireme::model
