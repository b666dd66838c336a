#include "trireme/model/head.h"

#include <ATen/ATen.h>

#include "trireme/ops/ops.h"

namespace trireme::model {
namespace {
// The vocabulary product's weight is the last parameter: norm weight (, norm bias), head.
enum Work { kNormed, kRstd, kMean, kLogits, kWeightSum };
}  // namespace

HeadUnit::HeadUnit(const ModelConfig& c) : config_(c) {
  const Initializer normal{Initializer::Kind::normal, c.initializer_range}, ones{Initializer::Kind::ones, 0},
      zeros{Initializer::Kind::zeros, 0};
  if (c.architecture == Architecture::llama) {
    parameters_ = {{"model.norm.weight", {c.hidden_size}, ones, false, false}};
  } else {
    parameters_ = {{"transformer.ln_f.weight", {c.hidden_size}, ones, false, false},
                   {"transformer.ln_f.bias", {c.hidden_size}, zeros, false, false}};
  }
  const bool llama = c.architecture == Architecture::llama;
  const char* tied_name = llama ? "model.embed_tokens.weight" : "transformer.wte.weight";
  parameters_.push_back(
      {c.tie_word_embeddings ? tied_name : "lm_head.weight", {c.vocab_size, c.hidden_size}, normal, true, false});
}

UnitValues HeadUnit::values(const BatchShape& shape, const Precision& p) const {
  const int64_t tokens = shape.tokens(), rows = ops::cross_entropy_chunk_rows(tokens, config_.vocab_size);
  UnitValues v;
  v.forward_work = {{"normed", {tokens, config_.hidden_size}, p.compute},
                    {"rstd", {tokens}, p.state},
                    {"mean", {tokens}, p.state},
                    {"logits", {rows, config_.vocab_size}, p.compute}};
  v.backward_work = v.forward_work;
  if (rows < tokens) v.backward_work.push_back({"weight sum", {config_.vocab_size, config_.hidden_size}, p.state});
  return v;
}

void HeadUnit::normalize(const at::Tensor& y, const at::Tensor& mean, const at::Tensor& rstd, const at::Tensor& x,
                         const std::vector<at::Tensor>& p) const {
  if (config_.architecture == Architecture::llama)
    ops::rms_norm_forward(y, rstd, x, p[0], config_.norm_eps);
  else
    ops::layer_norm_forward(y, mean, rstd, x, p[0], p[1], config_.norm_eps);
}

void HeadUnit::forward(UnitTensors& t) const {
  normalize(t.work[kNormed], t.work[kMean], t.work[kRstd], t.input, t.parameters);
  ops::cross_entropy_forward(t.loss_sum, t.work[kNormed], t.parameters.back(), t.targets, t.work[kLogits]);
}

void HeadUnit::backward(UnitTensors& t) const {
  const auto& p = t.parameters;
  const auto& g = t.gradients;
  const at::Tensor& normed = t.work[kNormed];
  normalize(normed, t.work[kMean], t.work[kRstd], t.input, p);
  ops::cross_entropy_forward_backward(t.loss_sum, normed, g.back(), normed, p.back(), t.targets, t.loss_scale,
                                      t.work[kLogits], t.work.size() > kWeightSum ? t.work[kWeightSum] : at::Tensor());
  // normed now holds its own gradient; the norm's input gradient is the boundary's.
  if (config_.architecture == Architecture::llama)
    ops::rms_norm_backward(t.d_boundary, g[0], normed, normed, t.input, p[0], t.work[kRstd], at::Tensor());
  else
    ops::layer_norm_backward(t.d_boundary, g[0], g[1], normed, normed, t.input, p[0], p[1], t.work[kMean],
                             t.work[kRstd], at::Tensor());
}

double HeadUnit::forward_flops(const BatchShape& shape) const {
  return 2.0 * double(shape.tokens()) * double(config_.hidden_size) * double(config_.vocab_size);
}

void HeadUnit::logits(const at::Tensor& out, const at::Tensor& x, const std::vector<at::Tensor>& p) const {
  const at::ScalarType state = x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  at::Tensor normed = at::empty_like(x), rstd = at::empty({x.size(0)}, x.options().dtype(state)),
             mean = at::empty_like(rstd);
  normalize(normed, mean, rstd, x, p);
  ops::linear_forward(out, normed, p.back());
}

}  // namespace trireme::model
