#include "trireme/model/decoder_block.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "trireme/model/block_values.h"
#include "trireme/ops/ops.h"

namespace trireme::model {
using namespace block;

DecoderBlock::DecoderBlock(const ModelConfig& c, int64_t layer, const Parallel& parallel,
                           std::shared_ptr<const RotaryTables> rotary)
    : config_(c),
      layer_(layer),
      parallel_(parallel),
      layout_(block_layout(c.architecture)),
      widths_(block_widths(c, parallel)),
      parameters_(block_parameters(c, layer, parallel)),
      rotary_(std::move(rotary)),
      attention_(make_context_attention(widths_, parallel)) {}

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
             {"hidden", {tokens, layout_.gated ? 2 * widths_.mlp : widths_.mlp}, c}};
  if (layout_.norm1.centered()) {
    v.saved.push_back({"mean1", {rows}, s});
    v.saved.push_back({"mean2", {rows}, s});
  }
  const auto append = [](std::vector<TensorSpec>& to, const std::vector<TensorSpec>& more) {
    to.insert(to.end(), more.begin(), more.end());
  };
  v.forward_work = {{"normed", {tokens, width}, c}, {"activated", {tokens, widths_.mlp}, c}};
  append(v.forward_work, attention_->forward_work(shape, p));
  if (sequence_parallel()) v.forward_work.push_back({"reduced rows", {rows, width}, c});

  const TensorSpec d_normed{"d_normed", {tokens, width}, c}, d_attended{"d_attended", {tokens, widths_.q_width()}, c},
      d_activated{"d_activated", {tokens, widths_.mlp}, c}, d_qkv{"d_qkv", {tokens, widths_.qkv_width()}, c};
  v.backward_work = {d_normed, d_activated, d_qkv, d_attended};
  append(v.backward_work, input_half_work(shape, p));
  if (sequence_parallel()) v.backward_work.push_back({"norm gradients", {num_norm_vectors(), width}, c});
  append(v.backward_work, weight_half_work(p));

  v.deferred = {{"dy", {tokens, width}, c},
                {"activated", {tokens, widths_.mlp}, c},
                {"normed2", {rows, width}, c},
                {"d_mid", {tokens, width}, c},
                {"normed1", {rows, width}, c},
                d_qkv,
                {"norm gradients", {num_norm_vectors(), width}, c}};
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
  return {{"all heads", {2 * config_.num_key_value_heads * widths_.head_dim, widths_.width}, p.compute}};
}

ContextAttention::Scratch DecoderBlock::attention_work(const UnitTensors& t, size_t first) const {
  return ContextAttention::Scratch(t.work).subspan(first);
}

NormStatistics DecoderBlock::statistics1(const UnitTensors& t) const {
  return {layout_.norm1.centered() ? t.saved[kMean1] : at::Tensor(), t.saved[kRstd1]};
}
NormStatistics DecoderBlock::statistics2(const UnitTensors& t) const {
  return {layout_.norm2.centered() ? t.saved[kMean2] : at::Tensor(), t.saved[kRstd2]};
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
  if (rotary_) {
    const auto table = rotary_->of(t.shape.sequence);
    ops::rotary_forward(rows, table.cosine, table.sine, widths_.heads, widths_.kv_heads);
  }
  attention_->share(t.saved[kQkv], work, t.shape, t.cp);
}

// qkv -> attended
void DecoderBlock::attend(UnitTensors& t) const {
  attention_->forward(t.saved[kAttended], t.saved[kLse], t.saved[kQkv], attention_work(t, kForwardAttention), t.shape,
                      t.cp);
}

// attended, input -> mid, and its norm in `normed`
void DecoderBlock::add_attended(UnitTensors& t) const {
  const TensorParallel tp(parallel_, t.tp);
  const at::Tensor& normed = t.work[kNormed];
  product_forward(layout_.out, normed, t.saved[kAttended], t.parameters);
  const at::Tensor sum = tp.reduce(normed, t.work.back());
  product_bias(layout_.out, sum, t.parameters);
  add_norm_forward(layout_.norm2, t.saved[kMid], tp.own_rows(normed), statistics2(t), sum, t.input, t.parameters,
                   config_.norm_eps);
}

// norm of mid -> hidden
void DecoderBlock::expand(UnitTensors& t) const {
  const at::Tensor& normed = t.work[kNormed];
  TensorParallel(parallel_, t.tp).gather_in_place(normed);
  product_forward(layout_.up, t.saved[kHidden], normed, t.parameters);
  product_bias(layout_.up, t.saved[kHidden], t.parameters);
}

void DecoderBlock::activate(const at::Tensor& y, const at::Tensor& hidden) const {
  layout_.gated ? ops::swiglu_forward(y, hidden) : ops::gelu_forward(y, hidden);
}

void DecoderBlock::recompute(UnitTensors& t, const std::vector<int>& which) const {
  const auto wants = [&](int index) { return std::find(which.begin(), which.end(), index) != which.end(); };
  if (wants(kQkv)) project(t);
  if (wants(kAttended)) attend(t);
  if (wants(kMid)) add_attended(t);
  if (!wants(kHidden)) return;
  // The norm is of the rounded sum: found again from mid, bit for bit, statistics included.
  if (!wants(kMid))
    norm_forward(layout_.norm2, TensorParallel(parallel_, t.tp).own_rows(t.work[kNormed]), statistics2(t),
                 t.saved[kMid], t.parameters, config_.norm_eps);
  expand(t);
}

void DecoderBlock::forward(UnitTensors& t) const {
  project(t);
  attend(t);
  add_attended(t);
  expand(t);
  const TensorParallel tp(parallel_, t.tp);
  activate(t.work[kActivated], t.saved[kHidden]);
  const at::Tensor& partial = tp.sequence() ? t.work[kNormed] : t.output;
  product_forward(layout_.down, partial, t.work[kActivated], t.parameters);
  tp.reduce(partial, t.output);
  product_bias(layout_.down, t.output, t.parameters);
  ops::add_forward(t.output, t.output, t.saved[kMid]);
}

double DecoderBlock::forward_flops(const BatchShape& shape) const {
  const double tokens = double(shape.tokens()) / parallel_.cp_size, width = double(widths_.width),
               heads = double(widths_.q_width()), mlp = double(widths_.mlp);
  const double mlp_products = layout_.gated ? 3 : 2;
  return 2 * tokens * (width * double(widths_.qkv_width()) + heads * width + mlp_products * width * mlp) +
         2 * tokens * double(shape.sequence) * heads;  // causal half of 4 T S H d
}

}  // namespace trireme::model
