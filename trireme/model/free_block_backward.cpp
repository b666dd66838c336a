// The backward of a FreeBlock, in the reverse order of its forward. Gradients of vectors are collected in
// `FreeWork::parts`, in the statistics dtype, because a norm is used twice; under sequence parallelism each rank has
// those of its rows.
#include <ATen/ATen.h>

#include "trireme/model/free_block.h"
#include "trireme/model/free_block_documents.h"
#include "trireme/model/free_block_values.h"
#include "trireme/ops/checks.h"
#include "trireme/ops/products/products.h"

namespace trireme::model {

namespace {

void write_product(const ops::Gradient& to, const at::Tensor& dy, const at::Tensor& x) {
  if (to.defined()) ops::multiply(to.to, dy.t(), x, to.accumulate);
}

}  // namespace

void FreeBlock::write_queries(const UnitTensors& t, const Half& half, const at::Tensor& dy, const at::Tensor& x) const {
  write_product(t.gradient(static_cast<size_t>(half.layout.qkv.weight)), dy, x);
}

void FreeBlock::write_keys_values(const UnitTensors& t, const Half& half, const at::Tensor& dy,
                                  const at::Tensor& x) const {
  const int64_t kv = widths_.kv_width();
  const auto first = static_cast<size_t>(half.layout.qkv.weight);
  write_product(t.gradient(first + 1), dy.narrow(1, 0, kv), x);
  write_product(t.gradient(first + 2), dy.narrow(1, kv, kv), x);
}

at::Tensor FreeBlock::branch_gradient(const UnitTensors& t, const Half& half, const char* what,
                                      const at::Tensor& buffer, const at::Tensor& dx) const {
  const TensorParallel tp(parallel_, t.ranks);
  if (!config_.dropout.branches()) return tp.gather(buffer, dx);
  const at::Tensor whole = tp.sequence() ? tp.gather(buffer, dx) : at::Tensor(buffer).copy_(dx);
  drop_branch(t, half, what, whole);
  return whole;
}

// dx [rows,D], the gradient of the block's output, becomes that of its residual stream; `d_attended` is written.
void FreeBlock::backward_half(const UnitTensors& t, const Half& half, const at::Tensor& dx, int norm_row) const {
  const TensorParallel tp(parallel_, t.ranks);
  const at::Tensor &d_normed = t.work[FreeWork::normed], own = tp.own_rows(d_normed),
                   &activated = t.work[FreeWork::activated], &hidden = t.saved[half.saved + HalfSaved::hidden];
  const at::Tensor reduced = tp.sequence() ? t.work[FreeWork::reduced_rows] : at::Tensor();
  const BlockLayout& l = half.layout;
  const at::Tensor dy = branch_gradient(t, half, FreeBranch::mlp, d_normed, dx);
  product_backward_input(l.down, t, activated, dy);
  ops::swiglu_backward(hidden,
                       activated);  // hidden becomes its gradient, the gradient of the activation the activation
  product_backward_weight(l.down, t, dy, activated);
  product_backward_input(l.up, t, d_normed, hidden);
  const at::Tensor d_norm = tp.reduce(d_normed, reduced);
  norm_backward(l.norm2, dx, {t.work[FreeWork::parts][norm_row], {}}, own, d_norm, t.saved[half.saved + HalfSaved::mid],
                t.parameters, {{}, t.saved[half.saved + HalfSaved::rstd_mid]}, dx);
  tp.gather_in_place(d_normed);
  product_backward_weight(l.up, t, hidden, d_normed);
  const at::Tensor d_mid = branch_gradient(t, half, FreeBranch::attention, d_normed, dx);
  product_backward_input(l.out, t, t.work[FreeWork::d_attended], d_mid);
  product_backward_weight(l.out, t, d_mid, t.saved[half.saved + HalfSaved::attended]);
}

// d_boundary becomes the gradient of X through the block; `d_injected` that of X + R.
void FreeBlock::backward_block(const UnitTensors& t) const {
  const TensorParallel tp(parallel_, t.ranks);
  const Half b = block();
  const at::Tensor &dx = t.d_boundary, &d_qkv = t.work[FreeWork::d_qkv], &d_normed = t.work[FreeWork::normed],
                   own = tp.own_rows(d_normed), &parts = t.work[FreeWork::parts];
  const at::Tensor reduced = tp.sequence() ? t.work[FreeWork::reduced_rows] : at::Tensor();
  backward_half(t, b, dx, FreePart::of_mid);
  ops::attention_backward(d_qkv, t.work[FreeWork::d_attended], t.saved[block().saved + HalfSaved::attended],
                          t.saved[block().saved + HalfSaved::lse], t.saved[block().saved + HalfSaved::qkv],
                          causal_shape(t), t.work[FreeWork::attention], t.document_starts);
  rotate(t, d_qkv, true);
  const at::Tensor dq = queries(d_qkv), dkv = keys_values(d_qkv);
  ops::multiply(d_normed, dq, t.parameters[b.layout.qkv.weight]);
  const at::Tensor of_queries = tp.reduce(d_normed, reduced);
  norm_backward(b.layout.norm1, dx, {parts[FreePart::of_queries], {}}, own, of_queries, t.input, t.parameters,
                {{}, t.saved[FreeSaved::rstd_queries]}, dx);
  tp.gather_in_place(d_normed);
  write_queries(t, b, dq, d_normed);
  ops::multiply(d_normed, dkv, key_value_weight(t, b));
  const at::Tensor of_keys = tp.reduce(d_normed, reduced);
  norm_backward(b.layout.norm1, t.work[FreeWork::d_injected], {parts[FreePart::of_injected], {}}, own, of_keys,
                t.saved[FreeSaved::injected], t.parameters, {{}, t.saved[FreeSaved::rstd_injected]}, at::Tensor());
  tp.gather_in_place(d_normed);
  write_keys_values(t, b, dkv, d_normed);
  ops::add_forward(dx, dx, t.work[FreeWork::d_injected]);
}

// d_injected, the gradient of R -> d_logits: through the code that was drawn to all codes (a table) or bits
void FreeBlock::backward_latent(const UnitTensors& t) const {
  const TensorParallel tp(parallel_, t.ranks);
  const at::Tensor &d_logits = t.work[FreeWork::d_logits], &logits = t.saved[FreeSaved::logits],
                   &sampler = t.parameters[p_.sampler];
  const auto of_sampler = static_cast<size_t>(p_.sampler);
  at::Tensor(d_logits).zero_();
  if (has_table()) {
    const at::Tensor dr = tp.gather(t.work[FreeWork::normed], t.work[FreeWork::d_injected]),
                     &all_scores = t.work[FreeWork::scores];
    const int64_t tokens = dr.size(0), chunk = all_scores.size(0);
    for (int64_t first = 0; first < tokens; first += chunk) {
      const int64_t rows = std::min(chunk, tokens - first);
      const at::Tensor scores = all_scores.narrow(0, 0, rows);
      ops::multiply(scores, dr.narrow(0, first, rows), sampler.t());
      ops::latent_table_backward(d_logits.narrow(0, first, rows), logits.narrow(0, first, rows), scores, first_code());
    }
    tp.sum(d_logits);
    ops::embedding_backward(t.gradient(of_sampler), {}, dr, local_codes(t), t.work[FreeWork::order], t.shape.sequence);
  } else {
    const at::Tensor &dr = t.work[FreeWork::d_injected], &d_signs = t.work[FreeWork::scores];
    ops::latent_signs(t.work[FreeWork::signs], t.saved[FreeSaved::codes]);
    ops::multiply(d_signs, dr, sampler);
    ops::latent_signs_backward(tp.own_rows(d_logits), tp.own_rows(logits), d_signs);
    write_product(tp.sequence() ? ops::Gradient(t.work[FreeWork::sampler_gradient]) : t.gradient(of_sampler), dr,
                  tp.own_rows(t.work[FreeWork::signs]));
  }
  ops::latent_divergence_backward(d_logits, logits, t.targets, config_.free.free_nats(),
                                  t.loss_scale * config_.free.kl_weight);
}

// d_logits -> d_encoded, the gradient of Y
void FreeBlock::backward_readout(const UnitTensors& t) const {
  const TensorParallel tp(parallel_, t.ranks);
  const at::Tensor own = tp.own_rows(t.work[FreeWork::normed]), wide = tp.own_rows(t.work[FreeWork::d_logits]);
  at::Tensor d_logits = wide;
  if (ops::is_narrow(own.scalar_type())) d_logits = at::Tensor(t.work[FreeWork::d_logits_narrow]).copy_(wide);
  ops::multiply(own, d_logits, t.parameters[p_.readout]);
  norm_backward(p_.final_norm, t.work[FreeWork::d_encoded], {t.work[FreeWork::parts][FreePart::of_encoded], {}}, own,
                own, t.saved[FreeSaved::encoded], t.parameters, {{}, t.saved[FreeSaved::rstd_encoded]}, at::Tensor());
  write_product(
      tp.sequence() ? ops::Gradient(t.work[FreeWork::readout_gradient]) : t.gradient(static_cast<size_t>(p_.readout)),
      d_logits, own);
}

void FreeBlock::differentiate_attention_to_all(const UnitTensors& t, const Half& half, const at::Tensor& d_qkv) const {
  const bool is_narrow = ops::is_narrow(d_qkv.scalar_type());
  const at::Tensor wide = is_narrow ? t.work[FreeWork::d_qkv_wide] : d_qkv,
                   &attended = t.saved[half.saved + HalfSaved::attended], &lse = t.saved[half.saved + HalfSaved::lse],
                   &qkv = t.saved[half.saved + HalfSaved::qkv];
  at::Tensor(wide).zero_();
  const ops::AttentionDropout dropout = weight_dropout(t, half);
  for (const DocumentSpan& d : document_spans(t.shape, t.document_starts))
    ops::attention_block_backward(d.rows(queries(wide)), d.rows(keys_values(wide)),
                                  d.rows(t.work[FreeWork::d_attended]), d.rows(attended), d.of_lse(lse),
                                  d.rows(queries(qkv)), d.rows(keys_values(qkv)), span_shape(d, dropout),
                                  t.work[FreeWork::attention]);
  if (is_narrow) at::Tensor(d_qkv).copy_(wide);
}

// d_encoded -> d_boundary += the gradient of X through the encoder
void FreeBlock::backward_encoder(const UnitTensors& t) const {
  const TensorParallel tp(parallel_, t.ranks);
  const Half e = encoder();
  const at::Tensor &dx = t.d_boundary, &d_qkv = t.work[FreeWork::d_qkv], &d_normed = t.work[FreeWork::normed],
                   own = tp.own_rows(d_normed), &parts = t.work[FreeWork::parts];
  backward_half(t, e, t.work[FreeWork::d_encoded], FreePart::of_encoder_mid);
  ops::bias_backward(ops::Gradient(parts[FreePart::of_zeta]), t.work[FreeWork::d_encoded]);
  differentiate_attention_to_all(t, e, d_qkv);
  rotate(t, d_qkv, true);
  backward_zeta(t, d_qkv);
  const at::Tensor dkv = keys_values(d_qkv);
  ops::multiply(d_normed, dkv, key_value_weight(t, e));
  const at::Tensor of_keys = tp.reduce(d_normed, tp.sequence() ? t.work[FreeWork::reduced_rows] : at::Tensor());
  norm_backward(e.layout.norm1, dx, {parts[FreePart::of_input], {}}, own, of_keys, t.input, t.parameters,
                {{}, t.saved[FreeSaved::rstd_input]}, dx);
  tp.gather_in_place(d_normed);
  write_keys_values(t, e, dkv, d_normed);
}

// All tokens have the same query: its gradient is the sum of theirs, on every rank that of its heads.
void FreeBlock::backward_zeta(const UnitTensors& t, const at::Tensor& d_qkv) const {
  const TensorParallel tp(parallel_, t.ranks);
  const Half e = encoder();
  const at::Tensor &wide = t.work[FreeWork::d_zeta_query_wide], &dq = t.work[FreeWork::d_zeta_query],
                   &d_normed = t.work[FreeWork::d_zeta_normed], &normed = t.work[FreeWork::zeta_normed],
                   &parts = t.work[FreeWork::parts], &rows = t.work[FreeWork::d_attended];
  at::Tensor(rows).copy_(queries(d_qkv));
  ops::bias_backward(ops::Gradient(wide), rows);
  at::Tensor(dq).copy_(wide.unsqueeze(0));
  ops::multiply(d_normed, dq, t.parameters[e.layout.qkv.weight]);
  tp.sum(d_normed);
  norm_backward(e.layout.norm1, t.work[FreeWork::d_zeta], {parts[FreePart::of_zeta_norm], {}}, normed, d_normed,
                t.parameters[p_.zeta].unsqueeze(0), t.parameters, {{}, t.saved[FreeSaved::rstd_zeta]}, at::Tensor());
  write_queries(t, e, dq, normed);
  at::Tensor(parts[FreePart::of_zeta_query]).copy_(t.work[FreeWork::d_zeta][0]);
}

void FreeBlock::write_parts(const UnitTensors& t) const {
  const TensorParallel tp(parallel_, t.ranks);
  const at::Tensor& parts = t.work[FreeWork::parts];
  const auto write = [&](int parameter, const at::Tensor& gradient) {
    const ops::Gradient to = t.gradient(static_cast<size_t>(parameter));
    if (to.defined()) ops::write_gradient(to, gradient);
  };
  if (tp.sequence()) {
    tp.sum(parts.narrow(0, 0, FreePart::num_summed));
    tp.sum(t.work[FreeWork::readout_gradient]);
    write(p_.readout, t.work[FreeWork::readout_gradient]);
    if (!has_table()) {
      tp.sum(t.work[FreeWork::sampler_gradient]);
      write(p_.sampler, t.work[FreeWork::sampler_gradient]);
    }
  }
  ops::accumulate(parts[FreePart::of_queries], parts[FreePart::of_injected]);
  ops::accumulate(parts[FreePart::of_input], parts[FreePart::of_zeta_norm]);
  ops::accumulate(parts[FreePart::of_zeta], parts[FreePart::of_zeta_query]);
  write(p_.block.norm1.weight, parts[FreePart::of_queries]);
  write(p_.block.norm2.weight, parts[FreePart::of_mid]);
  write(p_.encoder.norm1.weight, parts[FreePart::of_input]);
  write(p_.encoder.norm2.weight, parts[FreePart::of_encoder_mid]);
  write(p_.final_norm.weight, parts[FreePart::of_encoded]);
  write(p_.zeta, parts[FreePart::of_zeta]);
}

void FreeBlock::backward(UnitTensors& t) const {
  backward_block(t);
  backward_latent(t);
  backward_readout(t);
  backward_encoder(t);
  write_parts(t);
}

}  // namespace trireme::model
