// The forward of a FreeBlock: encode, draw, inject, and the block itself. free_block.h has the formulas.
#include <ATen/ATen.h>

#include <algorithm>
#include <limits>
#include <string_view>

#include "trireme/model/free_block.h"
#include "trireme/model/free_block_documents.h"
#include "trireme/model/free_block_values.h"
#include "trireme/model/paged_attention.h"
#include "trireme/ops/products/products.h"

namespace trireme::model {

// norm(x) of all rows in `normed`
void FreeBlock::normalize(const UnitTensors& t, const Norm& norm, const at::Tensor& rstd, const at::Tensor& x) const {
  const TensorParallel tp(parallel_, t.ranks);
  const at::Tensor& normed = t.work[FreeWork::normed];
  norm_forward(norm, tp.own_rows(normed), {{}, rstd}, x, t.parameters, config_.norm_eps);
  tp.gather_in_place(normed);
}

void FreeBlock::rotate(const UnitTensors& t, const at::Tensor& qkv, bool backward) const {
  // All positions lie on this rank: there is no context parallelism.
  const int64_t cached = config_.longest_generation();
  const auto table =
      t.new_tokens != nullptr ? rotary_->whole(cached, cached) : rotary_->of(t.shape.sequence, t.longest_text());
  const auto run = backward ? ops::rotary_backward : ops::rotary_forward;
  run(qkv, table.cosine, table.sine, widths_.heads, widths_.kv_heads, t.position_ids);
}

at::Tensor FreeBlock::key_value_weight(const UnitTensors& t, const Half& half) const {
  return joined(t.parameters, half.layout.qkv.weight + 1, 2);
}

// Every token's query sees every token of its document.
void FreeBlock::attend_to_all(const UnitTensors& t, const Half& half) const {
  const at::Tensor &qkv = t.saved[half.saved + HalfSaved::qkv], &attended = t.saved[half.saved + HalfSaved::attended],
                   &lse = t.saved[half.saved + HalfSaved::lse];
  at::Tensor(attended).zero_();
  at::Tensor(lse).fill_(-std::numeric_limits<double>::infinity());
  const ops::AttentionDropout dropout = weight_dropout(t, half);
  for (const DocumentSpan& d : document_spans(t.shape, t.document_starts))
    ops::attention_block_forward(d.rows(attended), d.of_lse(lse), d.rows(queries(qkv)), d.rows(keys_values(qkv)),
                                 span_shape(d, dropout), t.work[FreeWork::attention]);
}

void FreeBlock::drop_branch(const UnitTensors& t, const Half& half, const char* what, const at::Tensor& branch) const {
  if (!config_.dropout.branches()) return;
  const bool is_mlp = std::string_view(what) == FreeBranch::mlp;
  const Dropout dropout = dropout_of(half, what, is_mlp ? config_.dropout.mlp : config_.dropout.residual);
  drop(dropout, branch, branch, t, parallel_, t.work[FreeWork::keys]);
}

// attended, residual -> mid and hidden; the activation in `activated`
void FreeBlock::expand(const UnitTensors& t, const Half& half, const at::Tensor& residual) const {
  const TensorParallel tp(parallel_, t.ranks);
  const at::Tensor &normed = t.work[FreeWork::normed], own = tp.own_rows(normed),
                   &branch = tp.sequence() ? t.work[FreeWork::reduced_rows] : normed,
                   &mid = t.saved[half.saved + HalfSaved::mid], &hidden = t.saved[half.saved + HalfSaved::hidden];
  product_forward(half.layout.out, t, normed, t.saved[half.saved + HalfSaved::attended]);
  tp.reduce(normed, branch);
  drop_branch(t, half, FreeBranch::attention, branch);
  add_norm_forward(half.layout.norm2, mid, own, {{}, t.saved[half.saved + HalfSaved::rstd_mid]}, branch, residual,
                   t.parameters, config_.norm_eps);
  tp.gather_in_place(normed);
  product_forward(half.layout.up, t, hidden, normed);
  ops::swiglu_forward(t.work[FreeWork::activated], hidden);
}

// activated, mid -> output
void FreeBlock::contract(const UnitTensors& t, const Half& half, const at::Tensor& output) const {
  const TensorParallel tp(parallel_, t.ranks);
  const at::Tensor& partial = tp.sequence() ? t.work[FreeWork::normed] : output;
  product_forward(half.layout.down, t, partial, t.work[FreeWork::activated]);
  tp.reduce(partial, output);
  drop_branch(t, half, FreeBranch::mlp, output);
  ops::add_forward(output, output, t.saved[half.saved + HalfSaved::mid]);
}

// X -> Y
void FreeBlock::encode(const UnitTensors& t) const {
  const Half e = encoder();
  const at::Tensor &qkv = t.saved[encoder().saved + HalfSaved::qkv], &zeta_normed = t.work[FreeWork::zeta_normed],
                   &query = t.work[FreeWork::zeta_query];
  const at::Tensor zeta = t.parameters[p_.zeta].unsqueeze(0);
  norm_forward(e.layout.norm1, zeta_normed, {{}, t.saved[FreeSaved::rstd_zeta]}, zeta, t.parameters, config_.norm_eps);
  ops::multiply(query, zeta_normed, t.parameters[e.layout.qkv.weight].t());
  queries(qkv).copy_(query.expand({qkv.size(0), query.size(1)}));
  normalize(t, e.layout.norm1, t.saved[FreeSaved::rstd_input], t.input);
  ops::multiply(keys_values(qkv), t.work[FreeWork::normed], key_value_weight(t, e).t());
  rotate(t, qkv, false);
  attend_to_all(t, e);
  const at::Tensor& mid = t.saved[encoder().saved + HalfSaved::mid];
  at::Tensor(mid).copy_(zeta.expand(mid.sizes()));
  expand(t, e, mid);
  contract(t, e, t.saved[FreeSaved::encoded]);
}

// Y -> logits, codes
void FreeBlock::draw(const UnitTensors& t) const {
  const TensorParallel tp(parallel_, t.ranks);
  const at::Tensor own = tp.own_rows(t.work[FreeWork::normed]), &logits = t.saved[FreeSaved::logits],
                   &keys = t.work[FreeWork::keys];
  norm_forward(p_.final_norm, own, {{}, t.saved[FreeSaved::rstd_encoded]}, t.saved[FreeSaved::encoded], t.parameters,
               config_.norm_eps);
  ops::multiply(tp.own_rows(logits), own, t.parameters[p_.readout].t());
  tp.gather_in_place(logits);
  if (t.new_tokens == nullptr) dropout_keys(keys, t.random, module_, t.shape, parallel_);
  for (size_t i = 0; t.new_tokens != nullptr && i < t.new_tokens->sequences.size(); ++i) {
    const ops::PagedSequence& s = t.new_tokens->sequences[i];
    dropout_keys(keys.narrow(0, s.first_row, s.tokens), {.step_key = t.new_tokens->seeds[i]}, module_, {1, s.tokens},
                 parallel_);
  }
  ops::latent_sample(t.saved[FreeSaved::codes], logits, keys);
}

// In generation, whether a sequence begins here: the encoder reads its tokens.
bool FreeBlock::encodes(const UnitTensors& t) const {
  return t.new_tokens == nullptr ||
         std::ranges::any_of(t.new_tokens->sequences, [](const auto& s) { return s.length == s.tokens; });
}

// Generation: codes that are given, not drawn.
void FreeBlock::take_codes(const UnitTensors& t) const {
  auto* code = t.saved[FreeSaved::codes].data_ptr<int64_t>();
  const auto* given = t.new_tokens->codes.data_ptr<int64_t>();
  for (int64_t i = 0; i < t.new_tokens->codes.numel(); ++i)
    if (given[i] != kDrawnCode) code[i] = given[i];
}

// Rows of the codes in this rank's part of the table; -1 for those of other ranks.
at::Tensor FreeBlock::local_codes(const UnitTensors& t) const {
  const at::Tensor& codes = t.saved[FreeSaved::codes];
  if (parallel_.tp_size == 1) return codes;
  const at::Tensor& local = t.work[FreeWork::local_codes];
  const int64_t* code = codes.data_ptr<int64_t>();
  auto* row = at::Tensor(local).mutable_data_ptr<int64_t>();
  for (int64_t i = 0; i < codes.numel(); ++i) {
    const int64_t at = code[i] - first_code();
    row[i] = at >= 0 && at < own_codes() ? at : -1;
  }
  return local;
}

// X, codes -> X + R
void FreeBlock::inject(const UnitTensors& t) const {
  const TensorParallel tp(parallel_, t.ranks);
  const at::Tensor &normed = t.work[FreeWork::normed], &sampler = t.parameters[p_.sampler];
  at::Tensor r = tp.own_rows(normed);
  if (has_table()) {
    ops::embedding_forward(normed, local_codes(t), sampler, at::Tensor(), t.shape.sequence);
    r = tp.reduce(normed, tp.sequence() ? t.work[FreeWork::reduced_rows] : at::Tensor());
  } else {
    ops::latent_signs(t.work[FreeWork::signs], t.saved[FreeSaved::codes]);
    ops::multiply(r, tp.own_rows(t.work[FreeWork::signs]), sampler.t());
  }
  ops::add_forward(t.saved[FreeSaved::injected], t.input, r);
}

// X, X + R -> q|k|v
void FreeBlock::project(const UnitTensors& t) const {
  const Half b = block();
  const at::Tensor& qkv = t.saved[block().saved + HalfSaved::qkv];
  normalize(t, b.layout.norm1, t.saved[FreeSaved::rstd_queries], t.input);
  ops::multiply(queries(qkv), t.work[FreeWork::normed], t.parameters[b.layout.qkv.weight].t());
  normalize(t, b.layout.norm1, t.saved[FreeSaved::rstd_injected], t.saved[FreeSaved::injected]);
  ops::multiply(keys_values(qkv), t.work[FreeWork::normed], key_value_weight(t, b).t());
  rotate(t, qkv, false);
}

void FreeBlock::recompute(UnitTensors& t, const std::vector<int>& /*which*/) const {
  if (encodes(t)) {
    encode(t);
    draw(t);
  }
  if (t.new_tokens != nullptr) take_codes(t);
  inject(t);
  project(t);
  if (t.new_tokens != nullptr)
    attend_to_pages(t, t.saved[block().saved + HalfSaved::attended], t.saved[block().saved + HalfSaved::qkv], widths_,
                    {});
  else
    ops::attention_forward(t.saved[block().saved + HalfSaved::attended], t.saved[block().saved + HalfSaved::lse],
                           t.saved[block().saved + HalfSaved::qkv], causal_shape(t), t.work[FreeWork::attention],
                           t.document_starts);
  expand(t, block(), t.input);
}

void FreeBlock::forward(UnitTensors& t) const {
  recompute(t, {});
  if (t.loss_sum.defined())
    ops::latent_divergence(t.loss_sum, t.saved[FreeSaved::logits], t.targets, config_.free.free_nats());
  contract(t, block(), t.output);
}

}  // namespace trireme::model
