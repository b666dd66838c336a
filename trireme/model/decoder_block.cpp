#include "trireme/model/decoder_block.h"

#include <ATen/ATen.h>

#include <cmath>

#include "trireme/ops/attention.h"

namespace trireme::model {
namespace {

// Parameter order of each architecture; joined parameters are one matrix to a product.
enum LlamaParameter { kNorm1, kQ, kK, kV, kO, kNorm2, kGate, kUp, kDown };
enum Gpt2Parameter { kLn1W, kLn1B, kQkvW, kQkvB, kProjW, kProjB, kLn2W, kLn2B, kFcW, kFcB, kFcProjW, kFcProjB };
enum Saved { kRstd1, kRstd2, kQkv, kAttended, kLse, kMid, kHidden, kMean1, kMean2 };
enum ForwardWork { kNormed, kActivated, kForwardAttention };
enum BackwardWork { kDNormed, kDActivated, kDQkv, kDAttended, kBackwardAttention };

// The joined matrices q|k|v and gate|up as one view: their parts lie without gaps.
at::Tensor joined(const std::vector<at::Tensor>& parts, int first, int count) {
  const at::Tensor& head = parts[first];
  int64_t rows = 0;
  for (int i = 0; i < count; ++i) rows += parts[first + i].size(0);
  return at::from_blob(head.data_ptr(), {rows, head.size(1)}, head.options());
}

}  // namespace

DecoderBlock::DecoderBlock(const ModelConfig& c, int64_t layer, at::ScalarType state_dtype)
    : config_(c), layer_(layer) {
  const int64_t width = c.hidden_size, heads = c.num_attention_heads * c.head_dim,
                kv = c.num_key_value_heads * c.head_dim, mlp = c.intermediate_size;
  using Kind = Initializer::Kind;
  const Initializer normal{Kind::normal, c.initializer_range}, ones{Kind::ones, 0}, zeros{Kind::zeros, 0};
  // Projections back into the residual stream start smaller, as in GPT-2, so that its variance stays put.
  const Initializer residual{Kind::normal, c.initializer_range / std::sqrt(2.0 * double(c.num_hidden_layers))};
  if (c.architecture == Architecture::llama) {
    const std::string p = "model.layers." + std::to_string(layer) + ".";
    parameters_ = {{p + "input_layernorm.weight", {width}, ones, false, false},
                   {p + "self_attn.q_proj.weight", {heads, width}, normal, true, false},
                   {p + "self_attn.k_proj.weight", {kv, width}, normal, true, true},
                   {p + "self_attn.v_proj.weight", {kv, width}, normal, true, true},
                   {p + "self_attn.o_proj.weight", {width, heads}, residual, true, false},
                   {p + "post_attention_layernorm.weight", {width}, ones, false, false},
                   {p + "mlp.gate_proj.weight", {mlp, width}, normal, true, false},
                   {p + "mlp.up_proj.weight", {mlp, width}, normal, true, true},
                   {p + "mlp.down_proj.weight", {width, mlp}, residual, true, false}};
    cosine_ = at::empty({c.max_position_embeddings, c.head_dim / 2}, at::TensorOptions().dtype(state_dtype));
    sine_ = at::empty_like(cosine_);
    ops::rotary_table(cosine_, sine_, c.rope_theta, 0);
  } else {
    const std::string p = "transformer.h." + std::to_string(layer) + ".";
    parameters_ = {{p + "ln_1.weight", {width}, ones, false, false},
                   {p + "ln_1.bias", {width}, zeros, false, false},
                   {p + "attn.c_attn.weight", {width, heads + 2 * kv}, normal, true, false},
                   {p + "attn.c_attn.bias", {heads + 2 * kv}, zeros, false, false},
                   {p + "attn.c_proj.weight", {heads, width}, residual, true, false},
                   {p + "attn.c_proj.bias", {width}, zeros, false, false},
                   {p + "ln_2.weight", {width}, ones, false, false},
                   {p + "ln_2.bias", {width}, zeros, false, false},
                   {p + "mlp.c_fc.weight", {width, mlp}, normal, true, false},
                   {p + "mlp.c_fc.bias", {mlp}, zeros, false, false},
                   {p + "mlp.c_proj.weight", {mlp, width}, residual, true, false},
                   {p + "mlp.c_proj.bias", {width}, zeros, false, false}};
  }
}

int64_t DecoderBlock::qkv_width() const {
  return (config_.num_attention_heads + 2 * config_.num_key_value_heads) * config_.head_dim;
}

ops::AttentionShape DecoderBlock::attention_shape(const BatchShape& shape) const {
  return {.batch = shape.micro_batch,
          .sequence = shape.sequence,
          .num_heads = config_.num_attention_heads,
          .num_kv_heads = config_.num_key_value_heads,
          .head_dim = config_.head_dim};
}

UnitValues DecoderBlock::values(const BatchShape& shape, const Precision& p) const {
  const int64_t tokens = shape.tokens(), width = config_.hidden_size,
                heads = config_.num_attention_heads * config_.head_dim, mlp = config_.intermediate_size;
  const bool gated = config_.architecture == Architecture::llama;
  const int64_t attention_bytes =
      std::max<int64_t>(1, ops::attention_workspace_bytes(attention_shape(shape), p.compute));
  const at::ScalarType c = p.compute, s = p.state;
  UnitValues v;
  v.output = {"output", {tokens, width}, c};
  v.saved = {{"rstd1", {tokens}, s},
             {"rstd2", {tokens}, s},
             {"qkv", {tokens, qkv_width()}, c},
             {"attended", {tokens, heads}, c},
             {"lse", {shape.micro_batch, config_.num_attention_heads, shape.sequence}, s},
             {"mid", {tokens, width}, c},
             {"hidden", {tokens, gated ? 2 * mlp : mlp}, c}};
  if (!gated) {
    v.saved.push_back({"mean1", {tokens}, s});
    v.saved.push_back({"mean2", {tokens}, s});
  }
  v.forward_work = {
      {"normed", {tokens, width}, c}, {"activated", {tokens, mlp}, c}, {"attention", {attention_bytes}, at::kByte}};
  v.backward_work = {{"d_normed", {tokens, width}, c},
                     {"d_activated", {tokens, mlp}, c},
                     {"d_qkv", {tokens, qkv_width()}, c},
                     {"d_attended", {tokens, heads}, c},
                     {"attention", {attention_bytes}, at::kByte}};
  return v;
}

void DecoderBlock::forward_to_activation(UnitTensors& t) const {
  const auto& p = t.parameters;
  auto& s = t.saved;
  const at::Tensor& normed = t.work[kNormed];
  if (config_.architecture == Architecture::llama) {
    ops::rms_norm_forward(normed, s[kRstd1], t.input, p[kNorm1], config_.norm_eps);
    ops::linear_forward(s[kQkv], normed, joined(p, kQ, 3));
    ops::rotary_forward(s[kQkv], cosine_.narrow(0, 0, t.shape.sequence), sine_.narrow(0, 0, t.shape.sequence),
                        config_.num_attention_heads, config_.num_key_value_heads);
    ops::attention_forward(s[kAttended], s[kLse], s[kQkv], attention_shape(t.shape), t.work[kForwardAttention]);
    ops::linear_forward(normed, s[kAttended], p[kO]);
    ops::add_rms_norm_forward(s[kMid], normed, s[kRstd2], normed, t.input, p[kNorm2], config_.norm_eps);
    ops::linear_forward(s[kHidden], normed, joined(p, kGate, 2));
  } else {
    ops::layer_norm_forward(normed, s[kMean1], s[kRstd1], t.input, p[kLn1W], p[kLn1B], config_.norm_eps);
    ops::linear_in_out_forward(s[kQkv], normed, p[kQkvW]);
    ops::bias_forward(s[kQkv], p[kQkvB]);
    ops::attention_forward(s[kAttended], s[kLse], s[kQkv], attention_shape(t.shape), t.work[kForwardAttention]);
    ops::linear_in_out_forward(normed, s[kAttended], p[kProjW]);
    ops::bias_forward(normed, p[kProjB]);
    ops::add_layer_norm_forward(s[kMid], normed, s[kMean2], s[kRstd2], normed, t.input, p[kLn2W], p[kLn2B],
                                config_.norm_eps);
    ops::linear_in_out_forward(s[kHidden], normed, p[kFcW]);
    ops::bias_forward(s[kHidden], p[kFcB]);
  }
}

void DecoderBlock::recompute(UnitTensors& t) const { forward_to_activation(t); }

void DecoderBlock::forward(UnitTensors& t) const {
  forward_to_activation(t);
  const at::Tensor& activated = t.work[kActivated];
  if (config_.architecture == Architecture::llama) {
    ops::swiglu_forward(activated, t.saved[kHidden]);
    ops::linear_forward(t.output, activated, t.parameters[kDown]);
  } else {
    ops::gelu_forward(activated, t.saved[kHidden]);
    ops::linear_in_out_forward(t.output, activated, t.parameters[kFcProjW]);
    ops::bias_forward(t.output, t.parameters[kFcProjB]);
  }
  ops::add_forward(t.output, t.output, t.saved[kMid]);
}

void DecoderBlock::backward(UnitTensors& t) const {
  const auto& p = t.parameters;
  const auto& g = t.gradients;
  auto& s = t.saved;
  const at::Tensor& dy = t.d_boundary;
  const at::Tensor &d_normed = t.work[kDNormed], &d_activated = t.work[kDActivated], &d_qkv = t.work[kDQkv],
                   &d_attended = t.work[kDAttended];
  if (config_.architecture == Architecture::llama) {
    ops::linear_backward_input(d_activated, dy, p[kDown]);
    ops::swiglu_backward(s[kHidden], d_activated);  // hidden becomes its gradient, d_activated the activation
    ops::linear_backward_weight(g[kDown], dy, d_activated);
    ops::linear_backward_input(d_normed, s[kHidden], joined(p, kGate, 2));
    ops::rms_norm_backward(dy, g[kNorm2], d_normed, d_normed, s[kMid], p[kNorm2], s[kRstd2], dy);
    ops::linear_backward_weight(joined(g, kGate, 2), s[kHidden], d_normed);
    ops::linear_backward_input(d_attended, dy, p[kO]);
    ops::linear_backward_weight(g[kO], dy, s[kAttended]);
    ops::attention_backward(d_qkv, d_attended, s[kAttended], s[kLse], s[kQkv], attention_shape(t.shape),
                            t.work[kBackwardAttention]);
    ops::rotary_backward(d_qkv, cosine_.narrow(0, 0, t.shape.sequence), sine_.narrow(0, 0, t.shape.sequence),
                         config_.num_attention_heads, config_.num_key_value_heads);
    ops::linear_backward_input(d_normed, d_qkv, joined(p, kQ, 3));
    ops::rms_norm_backward(dy, g[kNorm1], d_normed, d_normed, t.input, p[kNorm1], s[kRstd1], dy);
    ops::linear_backward_weight(joined(g, kQ, 3), d_qkv, d_normed);
  } else {
    ops::bias_backward(g[kFcProjB], dy);
    ops::linear_in_out_backward_input(d_activated, dy, p[kFcProjW]);
    ops::gelu_backward(s[kHidden], d_activated);
    ops::linear_in_out_backward_weight(g[kFcProjW], dy, d_activated);
    ops::bias_backward(g[kFcB], s[kHidden]);
    ops::linear_in_out_backward_input(d_normed, s[kHidden], p[kFcW]);
    ops::layer_norm_backward(dy, g[kLn2W], g[kLn2B], d_normed, d_normed, s[kMid], p[kLn2W], p[kLn2B], s[kMean2],
                             s[kRstd2], dy);
    ops::linear_in_out_backward_weight(g[kFcW], s[kHidden], d_normed);
    ops::bias_backward(g[kProjB], dy);
    ops::linear_in_out_backward_input(d_attended, dy, p[kProjW]);
    ops::linear_in_out_backward_weight(g[kProjW], dy, s[kAttended]);
    ops::attention_backward(d_qkv, d_attended, s[kAttended], s[kLse], s[kQkv], attention_shape(t.shape),
                            t.work[kBackwardAttention]);
    ops::bias_backward(g[kQkvB], d_qkv);
    ops::linear_in_out_backward_input(d_normed, d_qkv, p[kQkvW]);
    ops::layer_norm_backward(dy, g[kLn1W], g[kLn1B], d_normed, d_normed, t.input, p[kLn1W], p[kLn1B], s[kMean1],
                             s[kRstd1], dy);
    ops::linear_in_out_backward_weight(g[kQkvW], d_qkv, d_normed);
  }
}

double DecoderBlock::forward_flops(const BatchShape& shape) const {
  const double tokens = double(shape.tokens()), width = double(config_.hidden_size),
               heads = double(config_.num_attention_heads * config_.head_dim), mlp = double(config_.intermediate_size);
  const double mlp_products = config_.architecture == Architecture::llama ? 3 : 2;
  return 2 * tokens * (width * double(qkv_width()) + heads * width + mlp_products * width * mlp) +
         2 * tokens * double(shape.sequence) * heads;  // causal half of 4 T S H d
}

void DecoderBlock::decode(const at::Tensor& x, const std::vector<at::Tensor>& p, const at::Tensor& k_cache,
                          const at::Tensor& v_cache, int64_t position) const {
  const int64_t rows = x.size(0), heads = config_.num_attention_heads * config_.head_dim,
                kv = config_.num_key_value_heads * config_.head_dim;
  const bool llama = config_.architecture == Architecture::llama;
  const at::TensorOptions options = x.options();
  const at::ScalarType state = x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  at::Tensor normed = at::empty_like(x), qkv = at::empty({rows, qkv_width()}, options),
             attended = at::empty({rows, heads}, options), rstd = at::empty({rows}, options.dtype(state)),
             mean = at::empty_like(rstd), mid = at::empty_like(x),
             hidden = at::empty({rows, (llama ? 2 : 1) * config_.intermediate_size}, options),
             activated = at::empty({rows, config_.intermediate_size}, options);
  if (llama) {
    ops::rms_norm_forward(normed, rstd, x, p[kNorm1], config_.norm_eps);
    ops::linear_forward(qkv, normed, joined(p, kQ, 3));
    // One position: its row of the table serves every batch row.
    ops::rotary_forward(qkv, cosine_.narrow(0, position, 1), sine_.narrow(0, position, 1), config_.num_attention_heads,
                        config_.num_key_value_heads);
  } else {
    ops::layer_norm_forward(normed, mean, rstd, x, p[kLn1W], p[kLn1B], config_.norm_eps);
    ops::linear_in_out_forward(qkv, normed, p[kQkvW]);
    ops::bias_forward(qkv, p[kQkvB]);
  }
  k_cache.select(1, position).copy_(qkv.narrow(1, heads, kv));
  v_cache.select(1, position).copy_(qkv.narrow(1, heads + kv, kv));
  const at::Tensor q = qkv.narrow(1, 0, heads).contiguous();
  ops::attention_decode(attended, q, k_cache, v_cache, at::full({rows}, position + 1, at::kLong),
                        attention_shape({rows, position + 1}));
  if (llama) {
    ops::linear_forward(normed, attended, p[kO]);
    ops::add_rms_norm_forward(mid, normed, rstd, normed, x, p[kNorm2], config_.norm_eps);
    ops::linear_forward(hidden, normed, joined(p, kGate, 2));
    ops::swiglu_forward(activated, hidden);
    ops::linear_forward(x, activated, p[kDown]);
  } else {
    ops::linear_in_out_forward(normed, attended, p[kProjW]);
    ops::bias_forward(normed, p[kProjB]);
    ops::add_layer_norm_forward(mid, normed, mean, rstd, normed, x, p[kLn2W], p[kLn2B], config_.norm_eps);
    ops::linear_in_out_forward(hidden, normed, p[kFcW]);
    ops::bias_forward(hidden, p[kFcB]);
    ops::gelu_forward(activated, hidden);
    ops::linear_in_out_forward(x, activated, p[kFcProjW]);
    ops::bias_forward(x, p[kFcProjB]);
  }
  ops::add_forward(x, x, mid);
}

}  // namespace trireme::model
