#include "trireme/model/decoder_block.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "trireme/model/block_values.h"
#include "trireme/ops/ops.h"

namespace trireme::model {
using namespace block;

DecoderBlock::DecoderBlock(const ModelConfig& c, int64_t layer, const Parallel& parallel,
                           std::shared_ptr<const RotaryTables> rotary)
    : config_(c), layer_(layer), parallel_(parallel), widths_(block_widths(c, parallel)), rotary_(std::move(rotary)) {
  BlockParameters p = block_parameters(c, layer, parallel);
  layout_ = p.layout;
  parameters_ = std::move(p.specs);
  attention_ = make_context_attention(widths_, attention_traits(), parallel);
  int next = kOptional;
  if (layout_.norm1.centered()) places_.mean1 = next++, places_.mean2 = next++;
  if (has_head_norms()) places_.raw_qk = next++, places_.rstd_qk = next++;
  if (!has_post_norms()) return;
  places_.attention_out = next++;
  places_.rstd_post1 = next++;
  places_.mlp_out = next++;
  places_.rstd_post2 = next++;
}

std::vector<Norm> DecoderBlock::norms() const {
  std::vector<Norm> present;
  for (const Norm& norm : {layout_.norm1, layout_.post1, layout_.norm2, layout_.post2})
    if (norm.present()) present.push_back(norm);
  return present;
}

int64_t DecoderBlock::num_norm_vectors() const {
  return static_cast<int64_t>(norms().size()) * (layout_.norm1.centered() ? 2 : 1);
}

std::vector<std::string> DecoderBlock::recomputable() const {
  std::vector<std::string> names = {"qkv", "attended", "mid", "hidden"};
  if (has_post_norms()) names.emplace_back("mlp_out");
  return names;
}

UnitValues DecoderBlock::values(const BatchShape& shape, const Precision& p) const {
  const LocalRows local = local_rows(parallel_, shape);
  const int64_t tokens = local.tokens, rows = local.rows, width = widths_.width;
  const at::ScalarType c = p.compute, s = p.state;
  UnitValues v;
  v.output = {"output", {rows, width}, c};
  v.saved = {{"rstd1", {rows}, s},
             {"rstd2", {rows}, s},
             {"qkv", attention_->qkv_shape(shape), c},
             {"attended", {tokens, widths_.q_width()}, c},
             {"lse", attention_->lse_shape(shape), s},
             {"mid", {rows, width}, c},
             {"hidden", {tokens, config_.gated_mlp ? 2 * widths_.mlp : widths_.mlp}, c}};
  const auto append = [](std::vector<TensorSpec>& to, const std::vector<TensorSpec>& more) {
    to.insert(to.end(), more.begin(), more.end());
  };
  if (layout_.norm1.centered()) append(v.saved, {{"mean1", {rows}, s}, {"mean2", {rows}, s}});
  if (has_head_norms())
    append(v.saved, {{"raw_qk", {tokens, widths_.q_width() + widths_.kv_width()}, c},
                     {"rstd_qk", {tokens, widths_.heads + widths_.kv_heads}, s}});
  if (has_post_norms())
    append(v.saved, {{"attention_out", {rows, width}, c},
                     {"rstd_post1", {rows}, s},
                     {"mlp_out", {rows, width}, c},
                     {"rstd_post2", {rows}, s}});
  v.forward_work = {{"normed", {tokens, width}, c}, {"activated", {tokens, widths_.mlp}, c}};
  append(v.forward_work, attention_->forward_work(shape, p));
  if (sequence_parallel()) v.forward_work.push_back({"reduced rows", {rows, width}, c});

  const TensorSpec d_normed{"d_normed", {tokens, width}, c}, d_attended{"d_attended", {tokens, widths_.q_width()}, c},
      d_activated{"d_activated", {tokens, widths_.mlp}, c}, d_qkv{"d_qkv", {tokens, widths_.qkv_width()}, c};
  v.backward_work = {d_normed, d_activated, d_qkv, d_attended};
  append(v.backward_work, input_half_work(shape, p));
  if (sequence_parallel()) v.backward_work.push_back({"norm gradients", {num_norm_vectors(), width}, s});
  if (has_head_norms() && parallel_.tp_size > 1) v.backward_work.push_back(head_norm_gradients(p));
  append(v.backward_work, weight_half_work(p));

  v.deferred = {{"dy", {tokens, width}, c},
                {"activated", {tokens, widths_.mlp}, c},
                {"normed2", {rows, width}, c},
                {"d_mid", {tokens, width}, c},
                {"normed1", {rows, width}, c},
                d_qkv,
                {"norm gradients", {num_norm_vectors(), width}, s}};
  if (has_head_norms()) v.deferred.push_back(head_norm_gradients(p));
  v.saved_for_weight = {kAttended, kHidden};
  v.input_work = {d_normed, d_attended};
  append(v.input_work, input_half_work(shape, p));
  if (sequence_parallel()) v.weight_work.push_back({"gathered", {tokens, width}, c});
  append(v.weight_work, weight_half_work(p));
  return v;
}

std::vector<TensorSpec> DecoderBlock::input_half_work(const BatchShape& shape, const Precision& p) const {
  std::vector<TensorSpec> work = attention_->backward_work(shape, p);
  if (sequence_parallel())
    work.push_back({"reduced rows", {local_rows(parallel_, shape).rows, widths_.width}, p.compute});
  return work;
}

std::vector<TensorSpec> DecoderBlock::weight_half_work(const Precision& p) const {
  if (!shares_heads()) return {};
  const int64_t rows = 2 * config_.num_key_value_heads * widths_.head_dim;
  const TensorSpec all_heads{"all heads", {rows, widths_.width}, p.gradient()};
  if (!config_.attention_bias) return {all_heads};
  return {all_heads, {"all heads' biases", {rows}, p.state}, {"biases", {widths_.qkv_width()}, p.state}};
}

TensorSpec DecoderBlock::head_norm_gradients(const Precision& p) const {
  return {"head norm gradients", {2, widths_.head_dim}, p.state};
}

ContextAttention::Scratch DecoderBlock::attention_work(const UnitTensors& t, size_t first) const {
  return ContextAttention::Scratch(t.work).subspan(first);
}

NormStatistics DecoderBlock::statistics1(const UnitTensors& t) const {
  return {places_.mean1 >= 0 ? t.saved[places_.mean1] : at::Tensor(), t.saved[kRstd1]};
}
NormStatistics DecoderBlock::statistics2(const UnitTensors& t) const {
  return {places_.mean2 >= 0 ? t.saved[places_.mean2] : at::Tensor(), t.saved[kRstd2]};
}

// input -> qkv
void DecoderBlock::project(UnitTensors& t) const {
  const TensorParallel tp(parallel_, t.tp);
  const at::Tensor& normed = t.work[kNormed];
  norm_forward(layout_.norm1, tp.own_rows(normed), statistics1(t), t.input, t.parameters, config_.norm_eps);
  tp.gather_in_place(normed);
  const auto work = attention_work(t, kForwardAttention);
  const at::Tensor rows = attention_->projected(t.saved[kQkv], work, t.shape);
  product_forward(layout_.qkv, rows, normed, t.parameters);
  product_bias(layout_.qkv, rows, t.parameters);
  if (has_head_norms()) normalize_heads(t, rows);
  if (rotary_) {
    const auto table = rotary_of(t);
    ops::rotary_forward(rows, table.cosine, table.sine, widths_.heads, widths_.kv_heads, t.position_ids);
  }
  attention_->share(t.saved[kQkv], work, t.shape, t.cp);
}

void DecoderBlock::normalize_heads(UnitTensors& t, const at::Tensor& rows) const {
  ops::head_norm_forward(rows, t.saved[places_.raw_qk], t.saved[places_.rstd_qk], t.parameters[layout_.query_norm],
                         t.parameters[layout_.key_norm], widths_.heads, widths_.kv_heads, config_.norm_eps,
                         config_.norm_offset);
}

// qkv -> attended
void DecoderBlock::attend(UnitTensors& t) const {
  attention_->forward(t.saved[kAttended], t.saved[kLse], t.saved[kQkv], attention_work(t, kForwardAttention), t.shape,
                      t.document_starts, t.cp);
}

// x -> `to`: this rank's rows of the sum of all ranks' products, with the bias
void DecoderBlock::reduce_branch(UnitTensors& t, const Product& product, const at::Tensor& x,
                                 const at::Tensor& to) const {
  const TensorParallel tp(parallel_, t.tp);
  const at::Tensor& partial = tp.sequence() ? t.work[kNormed] : to;
  product_forward(product, partial, x, t.parameters);
  tp.reduce(partial, to);
  product_bias(product, to, t.parameters);
}

// attended, input -> mid, and its norm in `normed`
void DecoderBlock::add_attended(UnitTensors& t) const {
  const TensorParallel tp(parallel_, t.tp);
  const at::Tensor own = tp.own_rows(t.work[kNormed]);
  at::Tensor branch = has_post_norms() ? t.saved[places_.attention_out] : tp.sequence() ? t.work.back() : own;
  reduce_branch(t, layout_.out, t.saved[kAttended], branch);
  if (has_post_norms()) {
    norm_forward(layout_.post1, own, post_statistics(t, places_.rstd_post1), branch, t.parameters, config_.norm_eps);
    branch = own;
  }
  add_norm_forward(layout_.norm2, t.saved[kMid], own, statistics2(t), branch, t.input, t.parameters, config_.norm_eps);
}

// norm of mid -> hidden
void DecoderBlock::expand(UnitTensors& t) const {
  const at::Tensor& normed = t.work[kNormed];
  TensorParallel(parallel_, t.tp).gather_in_place(normed);
  product_forward(layout_.up, t.saved[kHidden], normed, t.parameters);
  product_bias(layout_.up, t.saved[kHidden], t.parameters);
}

void DecoderBlock::activate(const at::Tensor& y, const at::Tensor& hidden) const {
  if (!config_.gated_mlp)
    ops::gelu_forward(y, hidden);
  else if (config_.activation == Activation::silu)
    ops::swiglu_forward(y, hidden);
  else
    ops::geglu_forward(y, hidden);
}

// hidden -> mlp_out, and its norm; for a block with post-norms
at::Tensor DecoderBlock::finish_mlp(UnitTensors& t) const {
  const at::Tensor own = TensorParallel(parallel_, t.tp).own_rows(t.work[kNormed]), &out = t.saved[places_.mlp_out];
  activate(t.work[kActivated], t.saved[kHidden]);
  reduce_branch(t, layout_.down, t.work[kActivated], out);
  norm_forward(layout_.post2, own, post_statistics(t, places_.rstd_post2), out, t.parameters, config_.norm_eps);
  return own;
}

void DecoderBlock::recompute(UnitTensors& t, const std::vector<int>& which) const {
  const auto wants = [&](int index) { return std::find(which.begin(), which.end(), index) != which.end(); };
  if (wants(kQkv)) project(t);
  if (wants(kAttended)) attend(t);
  if (wants(kMid)) add_attended(t);
  if (wants(kHidden)) {
    // The norm is of the rounded sum: found again from mid, bit for bit, statistics included.
    if (!wants(kMid))
      norm_forward(layout_.norm2, TensorParallel(parallel_, t.tp).own_rows(t.work[kNormed]), statistics2(t),
                   t.saved[kMid], t.parameters, config_.norm_eps);
    expand(t);
  }
  if (has_post_norms() && wants(places_.mlp_out)) finish_mlp(t);
}

void DecoderBlock::forward(UnitTensors& t) const {
  project(t);
  attend(t);
  add_attended(t);
  expand(t);
  if (has_post_norms()) {
    ops::add_forward(t.output, finish_mlp(t), t.saved[kMid]);
    return;
  }
  activate(t.work[kActivated], t.saved[kHidden]);
  reduce_branch(t, layout_.down, t.work[kActivated], t.output);
  ops::add_forward(t.output, t.output, t.saved[kMid]);
}

double DecoderBlock::forward_flops(const BatchShape& shape) const {
  const double tokens = double(shape.tokens()) / parallel_.cp_size, width = double(widths_.width),
               heads = double(widths_.q_width()), mlp = double(widths_.mlp);
  const double mlp_products = config_.gated_mlp ? 3 : 2, keys = config_.attended_keys(layer_, shape.sequence);
  return 2 * tokens * (width * double(widths_.qkv_width()) + heads * width + mlp_products * width * mlp) +
         4 * tokens * keys * heads;
}

}  // namespace trireme::model
