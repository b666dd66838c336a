#include "trireme/model/embedding.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "trireme/base/error.h"
#include "trireme/model/local_rows.h"
#include "trireme/model/tensor_parallel.h"
#include "trireme/model/vocabulary.h"
#include "trireme/ops/checks.h"
#include "trireme/ops/ops.h"

namespace trireme::model {
namespace {
enum Parameter { kTable, kPositions };
}  // namespace

EmbeddingUnit::EmbeddingUnit(const ModelConfig& c, const Parallel& parallel) : config_(c), parallel_(parallel) {
  parameters_.push_back(vocabulary_parameter(embedding_table_name(c.architecture), c, parallel));
  if (!c.learned_positions) return;
  parameters_.push_back({.name = "transformer.wpe.weight",
                         .shape = {c.max_position_embeddings, c.hidden_size},
                         .init = {Initializer::Kind::normal, c.initializer_range},
                         .counted = parallel.tp_rank == 0});
}

// As the model was trained: the factor is rounded like a weight.
double EmbeddingUnit::scale(at::ScalarType compute) const {
  if (!config_.scaled_embedding) return 1;
  return at::scalar_tensor(std::sqrt(double(config_.hidden_size)), compute).item<double>();
}

// The order of work: ids, positions, then what forward or backward adds (each only where it is needed).
std::vector<TensorSpec> EmbeddingUnit::row_work(int64_t tokens) const {
  std::vector<TensorSpec> work;
  if (parallel_.tp_size > 1) work.push_back({"local ids", {tokens}, at::kLong});
  if (own_positions()) work.push_back({"position ids", {tokens}, at::kLong});
  return work;
}

UnitValues EmbeddingUnit::values(const BatchShape& shape, const Precision& p) const {
  const LocalRows local = local_rows(parallel_, shape);
  const TensorSpec whole{"whole rows", {local.tokens, config_.hidden_size}, p.compute};
  UnitValues v;
  v.output = {"output", {local.rows, config_.hidden_size}, p.compute};
  v.forward_work = v.backward_work = row_work(local.tokens);
  v.backward_work.push_back({"order", {local.tokens}, at::kLong});
  if (sequence_parallel()) {
    v.forward_work.push_back(whole);
    v.backward_work.push_back(whole);
  }
  return v;
}

// Tensor parallel: the rows of this rank's part of the table, -1 for those of others.
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

EmbeddingUnit::Rows EmbeddingUnit::rows(const UnitTensors& t, size_t& next) const {
  Rows rows{t.tokens, {}};
  if (parallel_.tp_size > 1) {
    rows.ids = t.work[next++];
    to_local(rows.ids, t.tokens);
  }
  if (own_positions()) {
    rows.positions = t.work[next++];
  }
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
  const TensorParallel tp(parallel_, t.tp);
  size_t next = 0;
  const Rows r = rows(t, next);
  const bool adds_positions = parameters_.size() > kPositions && parallel_.tp_rank == 0;
  const at::Tensor partial = tp.sequence() ? t.work[next] : t.output;
  ops::embedding_forward(partial, r.ids, t.parameters[kTable], adds_positions ? t.parameters[kPositions] : at::Tensor(),
                         t.shape.sequence / parallel_.cp_size, r.positions, scale(t.parameters[kTable].scalar_type()));
  tp.reduce(partial, t.output);
}

void EmbeddingUnit::backward(UnitTensors& t) const {
  const TensorParallel tp(parallel_, t.tp);
  size_t next = 0;
  const Rows r = rows(t, next);
  const at::Tensor order = t.work[next++];
  const at::Tensor dy = tp.gather(tp.sequence() ? t.work[next] : at::Tensor(), t.d_boundary);
  // Every rank has all rows of dy: the gradient of the positions is the same on all of them.
  ops::embedding_backward(t.gradient(kTable),
                          t.gradients.size() > kPositions ? t.gradient(kPositions) : ops::Gradient(), dy, r.ids, order,
                          t.shape.sequence / parallel_.cp_size, r.positions, scale(dy.scalar_type()));
}

void EmbeddingUnit::look_up(const at::Tensor& y, const at::Tensor& ids, int64_t position,
                            const std::vector<at::Tensor>& p, comm::Communicator* tp) const {
  const int64_t count = ids.size(0);
  at::Tensor local = ids;
  if (parallel_.tp_size > 1) to_local(local = at::empty_like(ids), ids);
  const bool adds_positions = config_.learned_positions && parallel_.tp_rank == 0;
  ops::embedding_forward(y, local, p[kTable], adds_positions ? p[kPositions].narrow(0, position, count) : at::Tensor(),
                         count, at::Tensor(), scale(y.scalar_type()));
  TensorParallel(parallel_, tp).sum(y);
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
