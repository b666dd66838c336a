#include "trireme/model/decoder_block.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/model/block_values.h"
#include "trireme/model/paged_attention.h"
#include "trireme/ops/ops.h"

namespace trireme::model {
using namespace block;

std::optional<ops::PlainActivation> plain_activation(const ModelConfig& c) {
  if (c.gated_mlp || c.activation == Activation::gelu_tanh) return std::nullopt;
  return c.activation == Activation::relu ? ops::PlainActivation::kRelu : ops::PlainActivation::kGeluExact;
}

DecoderBlock::DecoderBlock(const ModelConfig& c, int64_t layer, const Parallel& parallel,
                           std::shared_ptr<const RotaryTables> rotary, const Adapters& adapters, bool float8)
    : config_(c), layer_(layer), parallel_(parallel), widths_(block_widths(c, parallel)), rotary_(std::move(rotary)) {
  BlockParameters p = block_parameters(c, layer, parallel, adapters);
  layout_ = p.layout;
  parameters_ = std::move(p.specs);
  auto& l = layout_;
  if (float8)
    for (Product* product : {&l.qkv, &l.out, &l.up, &l.down}) product->float8_work = kFloat8;
  adapter_parts_ = AdapterParts({&l.qkv, &l.out, &l.up, &l.down}, parameters_);
  for (const Product* product : {&l.qkv, &l.out, &l.up, &l.down}) num_adapter_ranks_ += product->adapter_ranks();
  attention_dropout_ = dropout_of("attention.output", c.dropout.residual);
  mlp_dropout_ = dropout_of("mlp.output", c.dropout.mlp);
  attention_ = make_context_attention(widths_, attention_traits(), parallel);
}

std::vector<Norm> DecoderBlock::norms() const {
  std::vector<Norm> present;
  for (const Norm& norm : {layout_.norm1, layout_.post1, layout_.norm2, layout_.post2, layout_.sum1, layout_.sum2})
    if (norm.present()) present.push_back(norm);
  return present;
}

int64_t DecoderBlock::num_norm_vectors() const {
  return static_cast<int64_t>(norms().size()) * (config_.layer_norm ? 2 : 1);
}

std::vector<std::string> DecoderBlock::recomputable() const {
  std::vector<std::string> names = {"qkv", "attended", "mid", "hidden"};
  if (keeps_mlp_out()) names.emplace_back("mlp_out");
  return names;
}

UnitValues DecoderBlock::values(const BatchShape& shape, const Precision& p) const {
  const LocalRows local = local_rows(parallel_, shape);
  const int64_t tokens = local.tokens, rows = local.rows, width = widths_.width;
  const at::ScalarType c = p.compute, s = p.state;
  UnitValues v;
  v.output = {"output", {rows, width}, c};
  // The statistics of norm1 and norm2, or of sum1 and sum2, which belong to mid and mlp_out.
  const bool sums = has_sum_norms();
  if (layout_.norm1.present() || sums) v.saved[kRstd1] = {sums ? "rstd_sum1" : "rstd1", {rows}, s};
  if (layout_.norm2.present() || sums) v.saved[kRstd2] = {sums ? "rstd_sum2" : "rstd2", {rows}, s};
  v.saved[kQkv] = {"qkv", attention_->qkv_shape(shape), c};
  v.saved[kAttended] = {"attended", {tokens, widths_.q_width()}, c};
  v.saved[kLse] = {"lse", attention_->lse_shape(shape), s};
  v.saved[kMid] = {"mid", {rows, width}, c};
  v.saved[kHidden] = {"hidden", {tokens, config_.gated_mlp ? 2 * widths_.mlp : widths_.mlp}, c};
  if (layout_.norm1.centered() || layout_.sum1.centered()) {
    v.saved[kMean1] = {sums ? "mean_sum1" : "mean1", {rows}, s};
    v.saved[kMean2] = {sums ? "mean_sum2" : "mean2", {rows}, s};
  }
  if (has_head_norms()) {
    v.saved[kRawQk] = {"raw_qk", {tokens, widths_.q_width() + widths_.kv_width()}, c};
    v.saved[kRstdQk] = {"rstd_qk", {tokens, has_wide_norms() ? 2 : widths_.heads + widths_.kv_heads}, s};
  }
  if (has_post_norms()) {
    v.saved[kAttentionOut] = {"attention_out", {rows, width}, c};
    v.saved[kRstdPost1] = {"rstd_post1", {rows}, s};
    v.saved[kRstdPost2] = {"rstd_post2", {rows}, s};
  }
  if (keeps_mlp_out()) v.saved[kMlpOut] = {"mlp_out", {rows, width}, c};
  v.forward_work[kNormed] = {"normed", {tokens, width}, c};
  v.forward_work[kActivated] = {"activated", {tokens, widths_.mlp}, c};
  v.forward_work.put(kAttention, attention_->forward_work(shape, p));

  const int64_t head_norms = has_wide_norms() ? widths_.q_width() + widths_.kv_width() : 2 * widths_.head_dim;
  const TensorSpec d_qkv{"d_qkv", {tokens, widths_.qkv_width()}, c},
      norm_gradients{"norm gradients", {num_norm_vectors(), width}, s},
      head_norm_gradients{"head norm gradients", {head_norms}, s};
  if (has_wide_norms())
    for (Slots* work : {&v.forward_work, &v.backward_work, &v.input_work})
      (*work)[kWideSums] = {"sums over heads", {tokens, 2}, s};
  if (config_.parallel_residual)
    for (Slots* work : {&v.backward_work, &v.input_work})
      (*work)[kMlpGradient] = {"gradient through the MLP", {rows, width}, c};
  for (Slots* work : {&v.backward_work, &v.input_work}) {
    (*work)[kDNormed] = {"d_normed", {tokens, width}, c};
    (*work)[kDAttended] = {"d_attended", {tokens, widths_.q_width()}, c};
    work->put(kAttention, attention_->backward_work(shape, p));
  }
  v.backward_work[kDActivated] = {"d_activated", {tokens, widths_.mlp}, c};
  v.backward_work[kDQkv] = d_qkv;
  if (has_head_norms() && !has_wide_norms() && parallel_.tp_size > 1)
    v.backward_work[kHeadNormGradientParts] = head_norm_gradients;
  if (sequence_parallel()) {
    for (Slots* work : {&v.forward_work, &v.backward_work, &v.input_work})
      (*work)[kReducedRows] = {"reduced rows", {rows, width}, c};
    v.backward_work[kNormGradientParts] = norm_gradients;
    v.weight_work[kGathered] = {"gathered", {tokens, width}, c};
  }
  if (shares_heads()) {
    const int64_t all_heads = 2 * config_.num_key_value_heads * widths_.head_dim;
    for (Slots* work : {&v.backward_work, &v.weight_work}) {
      (*work)[kAllHeads] = {"all heads", {all_heads, width}, p.gradient()};
      if (!config_.attention_bias) continue;
      (*work)[kAllHeadBiases] = {"all heads' biases", {all_heads}, s};
      (*work)[kBiases] = {"biases", {widths_.qkv_width()}, s};
    }
  }

  if (has_adapters()) {
    const auto& l = layout_;
    const ProductSizes sizes{.rows = tokens,
                             .in = std::max({width, widths_.q_width(), widths_.mlp}),
                             .out = std::max({width, widths_.qkv_width(), widths_.mlp * (config_.gated_mlp ? 2 : 1)}),
                             .tokens = tokens};
    const AdapterSpecs specs = adapter_specs({&l.qkv, &l.out, &l.up, &l.down}, sizes, p);
    for (Slots* work : {&v.forward_work, &v.backward_work}) (*work)[kInner] = specs.inner;
    v.backward_work[kDInner] = specs.d_inner;
    v.forward_work[kAdapterBias] = specs.bias;
    for (Slots* work : {&v.forward_work, &v.backward_work}) (*work)[kMagnitudes] = specs.magnitudes;
    for (Slots* work : {&v.forward_work, &v.backward_work, &v.input_work}) {
      (*work)[kDropped] = specs.dropped;
      (*work)[kWide] = specs.wide;
      (*work)[kDropoutKeys] = specs.keys;
      (*work)[kScaled] = specs.scaled;
    }
    v.weight_work[kDropped] = specs.dropped;
    v.weight_work[kDropoutKeys] = specs.keys;
    for (Slots* work : {&v.backward_work, &v.weight_work}) (*work)[kAdapterGradient] = specs.gradient;
    if (adapter_parts_.size() > 0)
      for (Slots* work : {&v.backward_work, &v.weight_work})
        (*work)[kAdapterParts] = {"adapters' gradients", {adapter_parts_.size()}, s};
    int slot = kDeferredInner;
    for (const Product* product : {&l.qkv, &l.out, &l.up, &l.down}) {
      if (const int64_t ranks = product->adapter_ranks(); ranks > 0) {
        v.deferred[slot] = {"adapters' inner values", {tokens * ranks}, c};
        v.deferred[slot + 4] = {"gradients of adapters' inner values", {tokens * ranks}, c};
      }
      if (const int64_t magnitudes = product->magnitudes(); magnitudes > 0)
        v.deferred[slot + 8] = {"adapters' magnitudes", {3 * magnitudes}, s};
      ++slot;
    }
  }

  const auto float8 = [&](const Product& product, int64_t in, int64_t out) {
    return float8_bytes(product, tokens, in, out, p.on_gpu);
  };
  const int64_t hidden = config_.gated_mlp ? 2 * widths_.mlp : widths_.mlp;
  if (p.float8 && p.on_gpu && tokens % 16 != 0)
    throw UsageError(fmt::format(
        "precision fp8-mixed: a GPU multiplies multiples of 16 tokens, and a rank's micro-batch has {}; change "
        "train.micro_batch_size or train.max_seq_length, or set precision bf16-mixed",
        tokens));
  const int64_t float8_most =
      std::max({float8(layout_.qkv, width, widths_.qkv_width()), float8(layout_.out, widths_.q_width(), width),
                float8(layout_.up, width, hidden), float8(layout_.down, widths_.mlp, width)});
  if (float8_most > 0)
    for (Slots* work : {&v.forward_work, &v.backward_work, &v.input_work})
      (*work)[kFloat8] = {"operands of 8 bits", {float8_most}, at::kByte};

  if (drops_branches())
    for (Slots* work : {&v.forward_work, &v.backward_work, &v.input_work})
      (*work)[kDropoutKeys] = {"dropout keys", {tokens}, at::kInt};

  v.deferred[kDy] = {"dy", {tokens, width}, c};
  v.deferred[kDeferredActivated] = {"activated", {tokens, widths_.mlp}, c};
  v.deferred[kNormed2] = {"normed2", {rows, width}, c};
  v.deferred[kDMid] = {"d_mid", {tokens, width}, c};
  v.deferred[kNormed1] = {"normed1", {rows, width}, c};
  v.deferred[kDeferredDQkv] = d_qkv;
  v.deferred[kNormGradients] = norm_gradients;
  if (has_head_norms()) v.deferred[kHeadNormGradients] = head_norm_gradients;
  v.saved_for_weight = {kAttended, kHidden};
  return v;
}

AdapterBuffers DecoderBlock::adapter_buffers(const UnitTensors& t, const Product& product) const {
  const auto slot = [](const std::vector<at::Tensor>& tensors, int index) {
    return index < static_cast<int>(tensors.size()) ? tensors[static_cast<size_t>(index)] : at::Tensor();
  };
  const int number = &product == &layout_.qkv ? 0 : &product == &layout_.out ? 1 : &product == &layout_.up ? 2 : 3;
  AdapterBuffers b{.inner = slot(t.deferred, kDeferredInner + number),
                   .d_inner = slot(t.deferred, kDeferredDInner + number),
                   .dropped = slot(t.work, kDropped),
                   .wide = slot(t.work, kWide),
                   .keys = slot(t.work, kDropoutKeys),
                   .scaled = slot(t.work, kScaled),
                   .magnitudes = slot(t.deferred, kDeferredMagnitudes + number),
                   .gradient = slot(t.work, kAdapterGradient),
                   .bias = slot(t.work, kAdapterBias)};
  if (!b.inner.defined()) b.inner = slot(t.work, kInner);
  if (!b.d_inner.defined()) b.d_inner = slot(t.work, kDInner);
  if (!b.magnitudes.defined()) b.magnitudes = slot(t.work, kMagnitudes);
  return b;
}

ContextAttention::Scratch DecoderBlock::attention_work(const UnitTensors& t) const {
  return ContextAttention::Scratch(t.work).subspan(kAttention);
}

void DecoderBlock::add_biases(const UnitTensors& t, const Product& product, const at::Tensor& y) const {
  product_bias(product, y, t.parameters);
  adapters_bias(product, t, adapter_buffers(t, product), y);
}

// The mean is undefined if the norm has none.
NormStatistics DecoderBlock::statistics1(const UnitTensors& t) const {
  return {layout_.norm1.centered() || layout_.sum1.centered() ? t.saved[kMean1] : at::Tensor(), t.saved[kRstd1]};
}
NormStatistics DecoderBlock::statistics2(const UnitTensors& t) const {
  return {layout_.norm2.centered() || layout_.sum2.centered() ? t.saved[kMean2] : at::Tensor(), t.saved[kRstd2]};
}

void DecoderBlock::normalize(const UnitTensors& t, const Norm& norm, const at::Tensor& y,
                             const NormStatistics& statistics, const at::Tensor& x) const {
  if (norm.present())
    norm_forward(norm, y, statistics, x, t.parameters, config_.norm_eps);
  else
    at::Tensor(y).copy_(x);
}

const at::Tensor& DecoderBlock::mlp_input(const UnitTensors& t) const {
  return config_.parallel_residual ? t.input : t.saved[kMid];
}

void DecoderBlock::multiply(const at::Tensor& branch) const {
  if (has_multiplier()) at::Tensor(branch).mul_(config_.residual_multiplier);
}

void DecoderBlock::finish_branch(const UnitTensors& t, const Dropout& dropout, const at::Tensor& branch) const {
  if (drops_branches()) drop(dropout, branch, branch, t, parallel_, t.work[kDropoutKeys]);
  multiply(branch);
}

// input -> qkv
void DecoderBlock::project(UnitTensors& t) const {
  const TensorParallel tp(parallel_, t.ranks);
  const at::Tensor& normed = t.work[kNormed];
  normalize(t, layout_.norm1, tp.own_rows(normed), statistics1(t), t.input);
  tp.gather_in_place(normed);
  const auto work = attention_work(t);
  const at::Tensor rows = attention_->projected(t.saved[kQkv], work, t.shape);
  product_forward(layout_.qkv, t, rows, normed);
  adapters_forward(layout_.qkv, t, parallel_, adapter_buffers(t, layout_.qkv), rows, normed);
  add_biases(t, layout_.qkv, rows);
  if (has_head_norms()) normalize_heads(t, rows);
  if (rotary_) {
    const auto table = rotary_of(t);
    ops::rotary_forward(rows, table.cosine, table.sine, widths_.heads, widths_.kv_heads, t.position_ids);
  }
  attention_->share(t.saved[kQkv], work, t.shape, t.ranks[comm::UnitAxis::cp]);
}

void DecoderBlock::normalize_heads(UnitTensors& t, const at::Tensor& rows) const {
  if (has_wide_norms()) {
    const at::Tensor& sums = t.work[kWideSums];
    ops::wide_norm_squares(sums, rows, widths_.q_width(), widths_.kv_width());
    TensorParallel(parallel_, t.ranks).sum(sums);
    return ops::wide_norm_forward(rows, t.saved[kRawQk], t.saved[kRstdQk], sums, t.parameters[layout_.query_norm],
                                  t.parameters[layout_.key_norm], whole_q_width(), whole_kv_width(), config_.norm_eps);
  }
  ops::head_norm_forward(rows, t.saved[kRawQk], t.saved[kRstdQk], t.parameters[layout_.query_norm],
                         t.parameters[layout_.key_norm], widths_.heads, widths_.kv_heads, config_.norm_eps,
                         config_.norm_offset);
}

// qkv -> attended
void DecoderBlock::attend(UnitTensors& t) const {
  if (t.new_tokens != nullptr)
    return attend_to_pages(t, t.saved[kAttended], t.saved[kQkv], widths_, attention_traits());
  attention_->forward(t.saved[kAttended], t.saved[kLse], t.saved[kQkv], attention_work(t), t.shape, t.document_starts,
                      t.random, t.ranks[comm::UnitAxis::cp]);
}

// x -> `to`: this rank's rows of the sum of all ranks' products, plus the bias
void DecoderBlock::reduce_branch(UnitTensors& t, const Product& product, const at::Tensor& x,
                                 const at::Tensor& to) const {
  const TensorParallel tp(parallel_, t.ranks);
  const at::Tensor& partial = tp.sequence() ? t.work[kNormed] : to;
  product_forward(product, t, partial, x);
  adapters_forward(product, t, parallel_, adapter_buffers(t, product), partial, x);
  tp.reduce(partial, to);
  add_biases(t, product, to);
}

// attended, input -> mid, and its norm in `normed`
void DecoderBlock::add_attended(UnitTensors& t) const {
  const TensorParallel tp(parallel_, t.ranks);
  const at::Tensor own = tp.own_rows(t.work[kNormed]);
  at::Tensor branch = has_post_norms() ? t.saved[kAttentionOut] : tp.sequence() ? t.work[kReducedRows] : own;
  reduce_branch(t, layout_.out, t.saved[kAttended], branch);
  if (has_post_norms()) {
    norm_forward(layout_.post1, own, post_statistics(t, kRstdPost1), branch, t.parameters, config_.norm_eps);
    branch = own;
  }
  finish_branch(t, attention_dropout_, branch);
  if (has_sum_norms())
    return add_norm_forward(layout_.sum1, t.saved[kMid], own, statistics1(t), branch, t.input, t.parameters,
                            config_.norm_eps);
  if (layout_.norm2.present() && !config_.parallel_residual)
    return add_norm_forward(layout_.norm2, t.saved[kMid], own, statistics2(t), branch, t.input, t.parameters,
                            config_.norm_eps);
  ops::add_forward(t.saved[kMid], branch, t.input);
  normalize(t, layout_.norm2, own, statistics2(t), mlp_input(t));
}

// Writes the norm of mid to `normed` again. add_attended() normalised the rounded sum, so the bits and statistics are
// the same.
void DecoderBlock::normalize_mid(UnitTensors& t) const {
  const at::Tensor own = TensorParallel(parallel_, t.ranks).own_rows(t.work[kNormed]);
  if (has_sum_norms()) return normalize(t, layout_.sum1, own, statistics1(t), t.saved[kMid]);
  normalize(t, layout_.norm2, own, statistics2(t), mlp_input(t));
}

// norm of mid -> hidden
void DecoderBlock::expand(UnitTensors& t) const {
  const at::Tensor& normed = t.work[kNormed];
  TensorParallel(parallel_, t.ranks).gather_in_place(normed);
  product_forward(layout_.up, t, t.saved[kHidden], normed);
  adapters_forward(layout_.up, t, parallel_, adapter_buffers(t, layout_.up), t.saved[kHidden], normed);
  add_biases(t, layout_.up, t.saved[kHidden]);
}

void DecoderBlock::activate(const at::Tensor& y, const at::Tensor& hidden) const {
  if (const auto plain = plain_activation(config_))
    ops::plain_forward(*plain, y, hidden);
  else if (!config_.gated_mlp)
    ops::gelu_forward(y, hidden);
  else if (config_.activation == Activation::silu)
    ops::swiglu_forward(y, hidden);
  else
    ops::geglu_forward(y, hidden);
}

// hidden -> mlp_out, and its norm; for a block with post-norms
at::Tensor DecoderBlock::finish_mlp(UnitTensors& t) const {
  const at::Tensor own = TensorParallel(parallel_, t.ranks).own_rows(t.work[kNormed]), &out = t.saved[kMlpOut];
  activate(t.work[kActivated], t.saved[kHidden]);
  reduce_branch(t, layout_.down, t.work[kActivated], out);
  norm_forward(layout_.post2, own, post_statistics(t, kRstdPost2), out, t.parameters, config_.norm_eps);
  return own;
}

// hidden -> mlp_out: the sum that sum2 normalises, and its norm in y, which may be `normed`; for a post-norm block
void DecoderBlock::finish_sum(UnitTensors& t, const at::Tensor& y) const {
  const TensorParallel tp(parallel_, t.ranks);
  const at::Tensor own = tp.own_rows(t.work[kNormed]), &sum = t.saved[kMlpOut];
  activate(t.work[kActivated], t.saved[kHidden]);
  reduce_branch(t, layout_.down, t.work[kActivated], sum);
  finish_branch(t, mlp_dropout_, sum);
  if (tp.sequence()) normalize_mid(t);  // the product has used its memory
  ops::add_forward(sum, sum, own);
  norm_forward(layout_.sum2, y, statistics2(t), sum, t.parameters, config_.norm_eps);
}

void DecoderBlock::recompute(UnitTensors& t, const std::vector<int>& which) const {
  const auto wants = [&](int index) { return std::find(which.begin(), which.end(), index) != which.end(); };
  if (wants(kQkv)) project(t);
  if (wants(kAttended)) attend(t);
  if (wants(kMid)) add_attended(t);
  if (wants(kHidden)) {
    if (!wants(kMid)) normalize_mid(t);
    expand(t);
  }
  if (has_post_norms() && wants(kMlpOut)) finish_mlp(t);
  if (has_sum_norms() && wants(kMlpOut)) {
    if (!wants(kMid) && !wants(kHidden)) normalize_mid(t);
    finish_sum(t, TensorParallel(parallel_, t.ranks).own_rows(t.work[kNormed]));
  }
}

// Whether nothing happens to the MLP's last product before it is added to mid.
bool DecoderBlock::adds_in_product(const UnitTensors& t) const {
  const Product& p = layout_.down;
  return TensorParallel(parallel_, t.ranks).alone() && p.bias < 0 && p.adapters.empty() && p.packed.empty() &&
         p.quantized.empty() && !drops_branches() && !has_multiplier();
}

void DecoderBlock::forward(UnitTensors& t) const {
  project(t);
  attend(t);
  add_attended(t);
  expand(t);
  if (has_post_norms()) {
    const at::Tensor branch = finish_mlp(t);
    finish_branch(t, mlp_dropout_, branch);
    ops::add_forward(t.output, branch, t.saved[kMid]);
    return;
  }
  if (has_sum_norms()) return finish_sum(t, t.output);
  activate(t.work[kActivated], t.saved[kHidden]);
  if (adds_in_product(t)) return product_forward_onto(layout_.down, t, t.output, t.work[kActivated], t.saved[kMid]);
  reduce_branch(t, layout_.down, t.work[kActivated], t.output);
  finish_branch(t, mlp_dropout_, t.output);
  ops::add_forward(t.output, t.output, t.saved[kMid]);
}

double DecoderBlock::forward_flops(const BatchShape& shape) const {
  const double tokens = double(shape.tokens()) / parallel_.cp_size, width = double(widths_.width),
               heads = double(widths_.q_width()), mlp = double(widths_.mlp);
  const double mlp_products = config_.gated_mlp ? 3 : 2, keys = config_.attended_keys(layer_, shape.sequence);
  return 2 * tokens * (width * double(widths_.qkv_width()) + heads * width + mlp_products * width * mlp) +
         4 * tokens * keys * heads;
}

// Nothing is saved: what forward writes for a backward is scratch here.
UnitValues DecoderBlock::generation_values(const GenerationShape& shape, const Precision& precision) const {
  UnitValues v = Unit::generation_values(shape, precision);
  v.saved[kLse] = {};
  for (int slot = kAttention; slot < kAttention + ContextAttention::kNumSlots; ++slot)
    if (slot < static_cast<int>(v.forward_work.size())) v.forward_work[slot] = {};
  return v;
}

}  // namespace trireme::model
