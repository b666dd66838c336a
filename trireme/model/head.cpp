#include "trireme/model/head.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/comm/communicator.h"
#include "trireme/model/adapter_parameters.h"
#include "trireme/model/embedding.h"
#include "trireme/model/head_chunks.h"
#include "trireme/model/tensor_names.h"
#include "trireme/ops/checks.h"
#include "trireme/ops/ops.h"

namespace trireme::model {
namespace {
constexpr const char* kHeadModule = "lm_head";
}  // namespace

HeadUnit::HeadUnit(const ModelConfig& c, const Parallel& parallel, const VocabularyPart& part, const Adapters& adapters,
                   const Objective& objective, std::shared_ptr<const Scores> scores)
    : config_(c), parallel_(parallel), part_(part), objective_(objective), scores_(std::move(scores)) {
  const bool counted = parallel.tp_rank == 0;
  const auto vector = [&](const std::string& name, Initializer::Kind kind) {
    parameters_.push_back(
        {.name = name, .shape = {c.hidden_size}, .init = {kind, 0}, .decay = false, .counted = counted});
  };
  const std::string norm = tensor_names(c.architecture).final_norm;
  vector(norm + ".weight", c.norm_offset == 0 ? Initializer::Kind::ones : Initializer::Kind::zeros);
  if (c.layer_norm) vector(norm + ".bias", Initializer::Kind::zeros);
  norm_ = {.weight = 0, .bias = c.layer_norm ? 1 : -1, .offset = c.norm_offset};
  parameters_.push_back(vocabulary_parameter(
      c.tie_word_embeddings ? embedding_table_name(c.architecture) : head_table_name(c.architecture), c, part));
  product_.weight = static_cast<int>(parameters_.size()) - 1;
  if (c.packed) {
    pack_for_head(parameters_.back(), c);
    product_.packed = {*parameters_.back().packed};
  }
  const auto adapter = adapters.modules.find(kHeadModule);
  if (adapter == adapters.modules.end()) return;
  product_.adapters = {add_adapter(parameters_, product_.weight, false, kHeadModule, adapter->second, 0)};
  for (ParameterSpec& p : parameters_)
    if (p.split_dim < 0) p.counted = counted;
}

int64_t HeadUnit::chunk_rows(int64_t tokens, const Precision& p) const {
  return ops::cross_entropy_chunk_rows(tokens, part_.size, p.on_gpu);
}

UnitValues HeadUnit::values(const BatchShape& shape, const Precision& p) const {
  const LocalRows local = local_rows(parallel_, shape);
  const int64_t tokens = local.tokens, rows = chunk_rows(tokens, p), width = config_.hidden_size;
  const std::vector<int64_t>& matrix = parameters_[static_cast<size_t>(product_.weight)].shape;
  UnitValues v;
  v.forward_work[HeadWork::normed] = {"normed", {tokens, width}, p.compute};
  v.forward_work[HeadWork::rstd] = {"rstd", {local.rows}, p.state};
  v.forward_work[HeadWork::mean] = {"mean", {local.rows}, p.state};
  v.forward_work[HeadWork::logits] = {"logits", {rows, matrix[0]}, p.compute};
  if (in_chunks())
    v.forward_work[HeadWork::sums] = {"sums", {sums_of_row() * (objective_.has_inputs() ? tokens : rows)}, p.state};
  if (!objective_.is_plain()) declare_objective(v, shape, tokens, rows, p);
  v.backward_work = v.forward_work;
  if (has_adapter()) declare_adapter(v, tokens, rows, p);
  if (rows < tokens && ops::is_narrow(p.gradient()))
    v.backward_work[HeadWork::weight_sum] = {"weight sum", matrix, p.state};
  if (sequence_parallel()) {
    v.backward_work[HeadWork::reduced_rows] = {"reduced rows", {local.rows, width}, p.compute};
    v.backward_work[HeadWork::norm_gradients] = {"norm gradients", {norm_.centered() ? 2 : 1, width}, p.state};
  }
  return v;
}

void HeadUnit::normalize(const UnitTensors& t) const {
  const TensorParallel tp(parallel_, t.ranks);
  norm_forward(norm_, tp.own_rows(t.work[HeadWork::normed]), {t.work[HeadWork::mean], t.work[HeadWork::rstd]}, t.input,
               t.parameters, config_.norm_eps);
  divide_logits(tp.own_rows(t.work[HeadWork::normed]));
  tp.gather_in_place(t.work[HeadWork::normed]);
}

// Dividing what the product reads divides the logits. The same factor belongs to the gradient of what it reads.
void HeadUnit::divide_logits(const at::Tensor& rows) const {
  if (config_.logit_divisor != 1) at::Tensor(rows).div_(config_.logit_divisor);
}

void HeadUnit::forward(UnitTensors& t) const {
  if (t.new_tokens != nullptr) return write_logits(t);
  normalize(t);
  if (in_chunks())
    chunk_loss(t, nullptr);
  else
    ops::cross_entropy_forward(t.loss_sum, t.work[HeadWork::normed], t.parameters[product_.weight], t.targets,
                               t.work[HeadWork::logits], config_.logit_softcap);
}

void HeadUnit::compute_logits(UnitTensors& t, const Chunk& c) const {
  product_forward(product_, t, c.logits, c.x);
  adapters_forward(product_, t, parallel_, adapter_buffers(t, c.first), c.logits, c.x);
  adapters_bias(product_, t, adapter_buffers(t, c.first), c.logits);
  if (config_.logit_softcap > 0) ops::softcap_forward(c.logits, config_.logit_softcap);
}

void HeadUnit::sum_rows(UnitTensors& t, const Chunk& c) const {
  const TensorParallel tp(parallel_, t.ranks);
  const int64_t vocabulary = config_.vocab_size;
  ops::cross_entropy_shard_max(c.row_max, c.logits, part_.first, vocabulary, temperature());
  tp.max(c.row_max);
  ops::cross_entropy_shard_sum(c.sum_exp, c.target_logit, c.logits, c.row_max, c.targets, part_.first, vocabulary,
                               c.logit_sum, temperature());
  tp.sum(c.to_add);
}

// The chunk's logits become their gradient, and the gradients of what they were computed from follow.
void HeadUnit::differentiate(UnitTensors& t, const Gradients& g, const Chunk& c) const {
  const at::Tensor weights = objective_.is_plain()     ? at::Tensor()
                             : objective_.has_inputs() ? t.work[HeadWork::row_weights].narrow(0, c.first, c.rows)
                                                       : t.work[HeadWork::row_weights].narrow(0, 0, c.rows);
  ops::cross_entropy_shard_backward(c.logits, c.row_max, c.sum_exp, c.targets, t.loss_scale, part_.first,
                                    config_.vocab_size, config_.logit_softcap, weights, temperature());
  ops::cross_entropy_weight_gradient(g.dw, g.dw_sum, c.logits, c.x, c.is_first(), c.is_last());
  chunk_backward(t, g, c.first, c.x, c.logits);
}

void HeadUnit::chunk_loss(UnitTensors& t, const Gradients* g) const {
  if (objective_.is_pairs()) return pair_loss(t, g);
  if (objective_.is_policy()) return policy_loss(t, g);
  t.loss_sum.zero_();
  for_chunks(t, t.work[HeadWork::normed].size(0), [&](const Chunk& c) {
    compute_logits(t, c);
    sum_rows(t, c);
    if (objective_.is_plain())
      ops::cross_entropy_shard_loss(t.loss_sum, c.row_max, c.sum_exp, c.target_logit, c.targets);
    else
      judge_tokens(t, c);
    if (g != nullptr) differentiate(t, *g, c);
  });
}

void HeadUnit::backward(UnitTensors& t) const {
  const TensorParallel tp(parallel_, t.ranks);
  const at::Tensor& normed = t.work[HeadWork::normed];
  Gradients g{.dx = normed, .dw = t.gradient(static_cast<size_t>(product_.weight)), .adapter = adapter_sums(t)};
  if (t.work[HeadWork::logits].size(0) < normed.size(0) && g.dw.defined() && ops::is_narrow(g.dw.to.scalar_type()))
    g.dw_sum = t.work[HeadWork::weight_sum];
  normalize(t);
  if (in_chunks())
    chunk_loss(t, &g);
  else
    ops::cross_entropy_forward_backward(t.loss_sum, normed, g.dw, normed, t.parameters[product_.weight], t.targets,
                                        t.loss_scale, t.work[HeadWork::logits], g.dw_sum, config_.logit_softcap);
  write_adapter(t, g);

  // normed now holds its own gradient; the norm's input gradient is the boundary's.
  const at::Tensor d_normed = tp.reduce(normed, tp.sequence() ? t.work[HeadWork::reduced_rows] : at::Tensor());
  divide_logits(d_normed);
  const NormGradients direct{t.gradient(norm_.weight), norm_.centered() ? t.gradient(norm_.bias) : ops::Gradient()};
  NormGradients n = direct;
  const at::Tensor parts = tp.sequence() ? t.work[HeadWork::norm_gradients] : at::Tensor();
  if (tp.sequence()) n = {parts[0], norm_.centered() ? parts[1] : at::Tensor()};
  norm_backward(norm_, t.d_boundary, n, d_normed, d_normed, t.input, t.parameters,
                {t.work[HeadWork::mean], t.work[HeadWork::rstd]}, at::Tensor());
  if (!tp.sequence()) return;
  tp.sum(parts);
  ops::write_gradient(direct.weight, parts[0]);
  if (norm_.centered()) ops::write_gradient(direct.bias, parts[1]);
}

UnitTraffic HeadUnit::traffic(const BatchShape& shape, const Precision& p) const {
  const TensorTraffic tp(parallel_);
  const int64_t tokens = local_rows(parallel_, shape).tokens, chunk = chunk_rows(tokens, p),
                boundary = tokens * config_.hidden_size;
  UnitTraffic u;
  tp.gather(u.forward, p.compute, boundary);
  for (int64_t first = 0; first < tokens; first += chunk) {
    const int64_t rows = std::min(chunk, tokens - first);
    tp.max(u.forward, p.state, rows);  // the largest logits
    tp.sum(u.forward, p.state, (sums_of_row() - 1) * rows);
  }
  u.backward = u.forward;
  if (objective_.sums_documents() && parallel_.cp_size > 1) {
    const bool three = objective_.is_pairs() || objective_.policy->weighs_answers();
    const TrafficRow sums{comm::UnitAxis::cp, comm::Operation::all_reduce, at::kDouble,
                          (three ? 3 : 2) * shape.tokens()};
    u.backward.push_back(sums);
    if (objective_.is_pairs()) u.forward.push_back(sums);  // forward only scores the tokens of answers
  }
  if (has_adapter()) tp.sum(u.backward, p.state, product_.adapter_ranks() * config_.hidden_size);
  tp.reduce(u.backward, p.compute, boundary);
  if (sequence_parallel()) tp.sum(u.backward, p.state, (norm_.centered() ? 2 : 1) * config_.hidden_size);
  return u;
}

double HeadUnit::forward_flops(const BatchShape& shape) const {
  return 2.0 * double(shape.tokens()) / parallel_.cp_size * double(config_.hidden_size) *
         double(parameters_[static_cast<size_t>(product_.weight)].shape[0]);
}

}  // namespace trireme::model
