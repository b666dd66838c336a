#include "trireme/model/embedding.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "trireme/base/error.h"
#include "trireme/model/tensor_parallel.h"
#include "trireme/ops/checks.h"
#include "trireme/ops/ops.h"

namespace trireme::model {
namespace {
enum Parameter { kTable, kPositions };

struct EmbeddingWork {
  enum Slot {
    local_ids,     ///< tensor parallel
    position_ids,  ///< of learned positions, context parallel
    order,         ///< backward
    whole_rows,    ///< sequence parallel
  };
};
}  // namespace

VocabularyPart vocabulary_part(const ModelConfig& config, const Parallel& parallel) {
  const int64_t size = (config.vocab_size + parallel.tp_size - 1) / parallel.tp_size;
  return {size * parallel.tp_rank, size};
}

ParameterSpec vocabulary_parameter(const std::string& name, const ModelConfig& config, const Parallel& parallel) {
  ParameterSpec p{.name = name,
                  .shape = {config.vocab_size, config.hidden_size},
                  .init = {Initializer::Kind::normal, config.initializer_range}};
  if (parallel.tp_size == 1) return p;
  const VocabularyPart part = vocabulary_part(config, parallel);
  p.full_shape = p.shape;
  p.shape[0] = part.size;
  p.split_dim = 0;
  p.pieces = {{part.first, part.first + part.size}};
  return p;
}

std::string embedding_table_name(Architecture architecture) {
  return architecture == Architecture::gpt2 ? "transformer.wte.weight" : "model.embed_tokens.weight";
}

EmbeddingUnit::EmbeddingUnit(const ModelConfig& c, const Parallel& parallel) : config_(c), parallel_(parallel) {
  parameters_.push_back(vocabulary_parameter(embedding_table_name(c.architecture), c, parallel));
  if (!c.learned_positions) return;
  parameters_.push_back({.name = "transformer.wpe.weight",
                         .shape = {c.max_position_embeddings, c.hidden_size},
                         .init = {Initializer::Kind::normal, c.initializer_range},
                         .counted = parallel.tp_rank == 0});
}

// The factor is rounded like a weight, as when the model was trained.
double EmbeddingUnit::scale(at::ScalarType compute) const {
  if (!config_.scaled_embedding) return 1;
  return at::scalar_tensor(std::sqrt(double(config_.hidden_size)), compute).item<double>();
}

UnitValues EmbeddingUnit::values(const BatchShape& shape, const Precision& p) const {
  const LocalRows local = local_rows(parallel_, shape);
  UnitValues v;
  v.output = {"output", {local.rows, config_.hidden_size}, p.compute};
  for (Slots* work : {&v.forward_work, &v.backward_work}) {
    if (parallel_.tp_size > 1) (*work)[EmbeddingWork::local_ids] = {"local ids", {local.tokens}, at::kLong};
    if (own_positions()) (*work)[EmbeddingWork::position_ids] = {"position ids", {local.tokens}, at::kLong};
    if (sequence_parallel())
      (*work)[EmbeddingWork::whole_rows] = {"whole rows", {local.tokens, config_.hidden_size}, p.compute};
  }
  v.backward_work[EmbeddingWork::order] = {"order", {local.tokens}, at::kLong};
  return v;
}

// Tensor parallel: rows in this rank's part of the table; -1 for ids of other ranks.
void EmbeddingUnit::to_local(const at::Tensor& ids, const at::Tensor& tokens) const {
  const VocabularyPart part = vocabulary_part(config_, parallel_);
  if (tokens.is_cuda()) {
    at::Tensor(ids).copy_(tokens).sub_(part.first);
    at::Tensor(ids).masked_fill_(ids.ge(part.size).logical_or_(ids.lt(0)), -1);
    return;
  }
  ops::check_tokens("embedding", tokens, config_.vocab_size);
  const int64_t* token = tokens.data_ptr<int64_t>();
  auto* id = at::Tensor(ids).mutable_data_ptr<int64_t>();
  for (int64_t i = 0; i < tokens.numel(); ++i) {
    const int64_t local = token[i] - part.first;
    id[i] = local >= 0 && local < part.size ? local : -1;
  }
}

EmbeddingUnit::Rows EmbeddingUnit::rows(const UnitTensors& t) const {
  Rows rows{t.tokens, {}};
  if (parallel_.tp_size > 1) {
    rows.ids = t.work[EmbeddingWork::local_ids];
    to_local(rows.ids, t.tokens);
  }
  if (own_positions()) rows.positions = t.work[EmbeddingWork::position_ids];
  if (t.position_ids.defined()) {
    rows.positions = t.position_ids;
  } else if (own_positions()) {
    const std::vector<int64_t> positions = context_positions(parallel_, t.shape.sequence);
    auto* position = rows.positions.mutable_data_ptr<int64_t>();
    for (int64_t b = 0; b < t.shape.micro_batch; ++b)
      position = std::copy(positions.begin(), positions.end(), position);
  }
  return rows;
}

void EmbeddingUnit::forward(UnitTensors& t) const {
  const TensorParallel tp(parallel_, t.ranks);
  const Rows r = rows(t);
  const bool adds_positions = parameters_.size() > kPositions && parallel_.tp_rank == 0;
  const at::Tensor partial = tp.sequence() ? t.work[EmbeddingWork::whole_rows] : t.output;
  ops::embedding_forward(partial, r.ids, t.parameters[kTable], adds_positions ? t.parameters[kPositions] : at::Tensor(),
                         t.shape.sequence / parallel_.cp_size, r.positions, scale(t.parameters[kTable].scalar_type()));
  tp.reduce(partial, t.output);
}

void EmbeddingUnit::backward(UnitTensors& t) const {
  const TensorParallel tp(parallel_, t.ranks);
  const Rows r = rows(t);
  const at::Tensor& order = t.work[EmbeddingWork::order];
  const at::Tensor dy = tp.gather(tp.sequence() ? t.work[EmbeddingWork::whole_rows] : at::Tensor(), t.d_boundary);
  // Every rank has all rows of dy: the gradient of the positions is the same on all of them.
  ops::embedding_backward(t.gradient(kTable),
                          t.gradients.size() > kPositions ? t.gradient(kPositions) : ops::Gradient(), dy, r.ids, order,
                          t.shape.sequence / parallel_.cp_size, r.positions, scale(dy.scalar_type()));
}

void EmbeddingUnit::decode(const DecodeTensors& t) const {
  const int64_t count = t.tokens.size(0);
  at::Tensor local = t.tokens;
  if (parallel_.tp_size > 1) to_local(local = at::empty_like(t.tokens), t.tokens);
  const bool adds_positions = config_.learned_positions && parallel_.tp_rank == 0;
  ops::embedding_forward(t.x, local, t.parameters[kTable],
                         adds_positions ? t.parameters[kPositions].narrow(0, t.position, count) : at::Tensor(), count,
                         at::Tensor(), scale(t.x.scalar_type()));
  TensorParallel(parallel_, t.ranks).sum(t.x);
}

UnitTraffic EmbeddingUnit::traffic(const BatchShape& shape, const Precision& p) const {
  const TensorTraffic tp(parallel_);
  const int64_t boundary = local_rows(parallel_, shape).tokens * config_.hidden_size;
  UnitTraffic u;
  tp.reduce(u.forward, p.compute, boundary);
  tp.gather(u.backward, p.compute, boundary);
  return u;
}

}  // namespace trireme::model
