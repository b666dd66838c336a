// The backward of a decoder block, whole or in two halves. One walk computes the gradients of inputs and names each
// weight product when its operands are there: the whole backward writes it at once, the input half leaves the
// operands in `deferred`, from where the weight half writes it.
#include <ATen/ATen.h>

#include "trireme/model/block_values.h"
#include "trireme/model/decoder_block.h"
#include "trireme/ops/products.h"

namespace trireme::model {
using namespace block;

/// Where the walk puts what it makes; the whole backward lets several share memory.
struct DecoderBlock::BackwardBuffers {
  at::Tensor d_normed;      ///< [T,D] gradient of a norm's output: partial sums of this rank
  at::Tensor reduced_rows;  ///< sequence parallel: this rank's rows of their sum
  at::Tensor dy, d_mid;     ///< [T,D] gathered, or a copy that outlives the walk; undefined: none is needed
  at::Tensor activated, normed1, normed2, d_qkv, d_attended;
  NormGradients norm1, post1, norm2, post2;
  ops::Gradient query_norm, key_norm;  ///< [d] of the head norms' weights
  ContextAttention::Scratch attention;
  void take(const std::vector<NormGradients>& norms);
};

namespace {

// Rows of `gradients`, of the norms in their order.
std::vector<NormGradients> norm_rows(const at::Tensor& gradients, const std::vector<Norm>& norms) {
  std::vector<NormGradients> rows;
  int64_t next = 0;
  for (const Norm& norm : norms) {
    rows.push_back({gradients[next++], {}});
    if (norm.centered()) rows.back().bias = gradients[next++];
  }
  return rows;
}

// The operand [T,D] of a row product's weight gradient: gathered, copied where it must outlive d_boundary, or itself.
at::Tensor operand(const TensorParallel& tp, const at::Tensor& buffer, const at::Tensor& d_boundary) {
  if (!buffer.defined()) return d_boundary;
  if (tp.sequence()) return tp.gather(buffer, d_boundary);
  return at::Tensor(buffer).copy_(d_boundary);
}

}  // namespace

void DecoderBlock::BackwardBuffers::take(const std::vector<NormGradients>& norms) {
  norm1 = norms.front();
  norm2 = norms[norms.size() / 2];
  if (norms.size() < 4) return;
  post1 = norms[1];
  post2 = norms[3];
}

void DecoderBlock::differentiate_activation(const at::Tensor& hidden, const at::Tensor& activated) const {
  if (!config_.gated_mlp)
    ops::gelu_backward(hidden, activated);
  else if (config_.activation == Activation::silu)
    ops::swiglu_backward(hidden, activated);
  else
    ops::geglu_backward(hidden, activated);
}

void DecoderBlock::backward_steps(UnitTensors& t, const BackwardBuffers& b, const OnProduct& on_product) const {
  const TensorParallel tp(parallel_, t.tp);
  const auto& p = t.parameters;
  auto& s = t.saved;
  const at::Tensor& dx = t.d_boundary;
  // The gradient of a branch [rows,D] that was normalised before it joined: takes the place of the branch. What the
  // norm's output was goes where nothing is yet.
  const auto through_post_norm = [&](const Norm& norm, const NormGradients& gradients, int branch, int rstd) {
    norm_backward(norm, s[branch], gradients, tp.own_rows(b.d_normed), dx, s[branch], p, post_statistics(t, rstd),
                  at::Tensor());
    return s[branch];
  };

  const at::Tensor d_down =
      has_post_norms() ? through_post_norm(layout_.post2, b.post2, places_.mlp_out, places_.rstd_post2) : dx;
  const at::Tensor dy = operand(tp, b.dy, d_down);
  product_backward_input(layout_.down, b.activated, dy, p);
  // hidden becomes its gradient, and what was the gradient of the activation the activation.
  differentiate_activation(s[kHidden], b.activated);
  on_product(layout_.down, dy, b.activated, false);
  product_backward_input(layout_.up, b.d_normed, s[kHidden], p);
  const at::Tensor d_norm2 = tp.reduce(b.d_normed, b.reduced_rows);
  norm_backward(layout_.norm2, dx, b.norm2, b.normed2, d_norm2, s[kMid], p, statistics2(t), dx);
  on_product(layout_.up, s[kHidden], b.normed2, true);

  const at::Tensor d_out =
      has_post_norms() ? through_post_norm(layout_.post1, b.post1, places_.attention_out, places_.rstd_post1) : dx;
  const at::Tensor d_mid = operand(tp, b.d_mid, d_out);
  product_backward_input(layout_.out, b.d_attended, d_mid, p);
  on_product(layout_.out, d_mid, s[kAttended], false);
  attention_->backward(b.d_qkv, b.d_attended, s[kAttended], s[kLse], s[kQkv], b.attention, t.shape, t.document_starts,
                       t.cp);
  if (rotary_) {
    const auto table = rotary_of(t);
    ops::rotary_backward(b.d_qkv, table.cosine, table.sine, widths_.heads, widths_.kv_heads, t.position_ids);
  }
  if (has_head_norms())
    ops::head_norm_backward(b.d_qkv, b.query_norm, b.key_norm, s[places_.raw_qk], s[places_.rstd_qk],
                            p[layout_.query_norm], p[layout_.key_norm], widths_.heads, widths_.kv_heads,
                            config_.norm_offset);
  product_backward_input(layout_.qkv, b.d_normed, b.d_qkv, p);
  const at::Tensor d_norm1 = tp.reduce(b.d_normed, b.reduced_rows);
  norm_backward(layout_.norm1, dx, b.norm1, b.normed1, d_norm1, t.input, p, statistics1(t), dx);
  on_product(layout_.qkv, b.d_qkv, b.normed1, true);
}

void DecoderBlock::backward(UnitTensors& t) const {
  const TensorParallel tp(parallel_, t.tp);
  const at::Tensor& d_normed = t.work[kDNormed];
  size_t next = kBackwardAttention + attention_->backward_work(t.shape, {}).size();
  BackwardBuffers b{.d_normed = d_normed,
                    .activated = t.work[kDActivated],
                    .d_qkv = t.work[kDQkv],
                    .d_attended = t.work[kDAttended],
                    .attention = attention_work(t, kBackwardAttention)};
  b.normed1 = b.normed2 = tp.own_rows(d_normed);  // its gradient has been read by then
  at::Tensor norm_gradients, head_norm_gradients;
  if (tp.sequence()) {
    b.dy = b.d_mid = d_normed;  // free while these are operands
    b.reduced_rows = t.work[next++];
    norm_gradients = t.work[next++];
    b.take(norm_rows(norm_gradients, norms()));
  } else {
    std::vector<NormGradients> direct;
    for (const Norm& norm : norms())
      direct.push_back({t.gradient(norm.weight), norm.centered() ? t.gradient(norm.bias) : ops::Gradient()});
    b.take(direct);
  }
  if (has_head_norms() && !tp.alone()) {
    head_norm_gradients = t.work[next++];
    b.query_norm = head_norm_gradients[0], b.key_norm = head_norm_gradients[1];
  } else if (has_head_norms()) {
    b.query_norm = t.gradient(layout_.query_norm), b.key_norm = t.gradient(layout_.key_norm);
  }
  const auto all_heads = ContextAttention::Scratch(t.work).subspan(next);
  backward_steps(t, b, [&](const Product& product, const at::Tensor& dy, const at::Tensor& x, bool normed) {
    if (normed) tp.gather_in_place(d_normed);
    write_weight(t, product, dy, normed ? d_normed : x, all_heads);
  });
  if (tp.sequence()) write_norms(t, norm_gradients);
  if (head_norm_gradients.defined()) write_head_norms(t, head_norm_gradients);
}

void DecoderBlock::backward_input(UnitTensors& t) const {
  const size_t next = kInputAttention + attention_->backward_work(t.shape, {}).size();
  const auto& d = t.deferred;
  BackwardBuffers b{.d_normed = t.work[kInputDNormed],
                    .reduced_rows = sequence_parallel() ? t.work[next] : at::Tensor(),
                    .dy = d[kDy],
                    .d_mid = d[kDMid],
                    .activated = d[kDeferredActivated],
                    .normed1 = d[kNormed1],
                    .normed2 = d[kNormed2],
                    .d_qkv = d[kDeferredDQkv],
                    .d_attended = t.work[kInputDAttended],
                    .attention = attention_work(t, kInputAttention)};
  b.take(norm_rows(d[kNormGradients], norms()));
  if (has_head_norms()) b.query_norm = d[kHeadNormGradients][0], b.key_norm = d[kHeadNormGradients][1];
  backward_steps(t, b, [](const Product&, const at::Tensor&, const at::Tensor&, bool) {});
}

void DecoderBlock::backward_weight(UnitTensors& t) const {
  const TensorParallel tp(parallel_, t.tp);
  const auto& d = t.deferred;
  const at::Tensor gathered = tp.sequence() ? t.work.front() : at::Tensor();
  const auto all_heads = ContextAttention::Scratch(t.work).subspan(tp.sequence() ? 1 : 0);
  write_weight(t, layout_.down, d[kDy], d[kDeferredActivated], all_heads);
  write_weight(t, layout_.up, t.saved[kHidden], tp.gather(gathered, d[kNormed2]), all_heads);
  write_weight(t, layout_.out, d[kDMid], t.saved[kAttended], all_heads);
  write_weight(t, layout_.qkv, d[kDeferredDQkv], tp.gather(gathered, d[kNormed1]), all_heads);
  write_norms(t, d[kNormGradients]);
  if (has_head_norms()) write_head_norms(t, d[kHeadNormGradients]);
}

void DecoderBlock::write_weight(UnitTensors& t, const Product& product, const at::Tensor& dy, const at::Tensor& x,
                                ContextAttention::Scratch all_heads) const {
  if (&product == &layout_.qkv && shares_heads()) return write_shared_heads(t, dy, x, all_heads);
  product_backward_weight(product, t.gradients, t.gradient(product.weight).accumulate, dy, x);
}

// Ranks that hold the same key/value head have each a part of its gradient, that of their own queries: every rank
// puts its part in the rows of its head, and the sum over all ranks is right for every head.
void DecoderBlock::write_shared_heads(UnitTensors& t, const at::Tensor& dy, const at::Tensor& x,
                                      ContextAttention::Scratch all_heads) const {
  const TensorParallel tp(parallel_, t.tp);
  const int64_t q = widths_.q_width(), kv = widths_.kv_width(),
                head = parallel_.tp_rank / kv_head_sharers(config_, parallel_);
  // put(rows, part): part 0, 1, 2 of q|k|v is made and lies in, or is added to, `rows`.
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
  write(all_heads[0], layout_.qkv.weight, [&](const ops::Gradient& rows, int part) {
    ops::multiply(rows.to, dy.narrow(1, begin[part], size[part]).t(), x, rows.accumulate);
  });
  if (layout_.qkv.bias < 0) return;
  const at::Tensor& biases = all_heads[2];
  ops::bias_backward(biases, dy);
  write(all_heads[1], layout_.qkv.bias, [&](const ops::Gradient& rows, int part) {
    ops::write_gradient(rows, biases.narrow(0, begin[part], size[part]));
  });
}

// Under sequence parallelism each rank has the part of its rows.
void DecoderBlock::write_norms(UnitTensors& t, const at::Tensor& gradients) const {
  const TensorParallel tp(parallel_, t.tp);
  if (tp.sequence()) tp.sum(gradients);
  int64_t row = 0;
  for (const Norm& norm : norms()) {
    ops::write_gradient(t.gradient(norm.weight), gradients[row++]);
    if (norm.centered()) ops::write_gradient(t.gradient(norm.bias), gradients[row++]);
  }
}

// Every rank has the part of its heads.
void DecoderBlock::write_head_norms(UnitTensors& t, const at::Tensor& gradients) const {
  const TensorParallel tp(parallel_, t.tp);
  tp.sum(gradients);
  ops::write_gradient(t.gradient(layout_.query_norm), gradients[0]);
  ops::write_gradient(t.gradient(layout_.key_norm), gradients[1]);
}

}  // namespace trireme::model
