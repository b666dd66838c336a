#include "trireme/model/embedding.h"

#include <ATen/ATen.h>

#include "trireme/ops/ops.h"

namespace trireme::model {
namespace {
enum Parameter { kTable, kPositions };
enum BackwardWork { kOrder, kTableGradient };
}  // namespace

EmbeddingUnit::EmbeddingUnit(const ModelConfig& c) : config_(c) {
  const Initializer normal{Initializer::Kind::normal, c.initializer_range};
  if (c.architecture == Architecture::llama) {
    parameters_ = {{"model.embed_tokens.weight", {c.vocab_size, c.hidden_size}, normal, true, false}};
  } else {
    parameters_ = {{"transformer.wte.weight", {c.vocab_size, c.hidden_size}, normal, true, false},
                   {"transformer.wpe.weight", {c.max_position_embeddings, c.hidden_size}, normal, true, false}};
  }
}

UnitValues EmbeddingUnit::values(const BatchShape& shape, const Precision& p) const {
  UnitValues v;
  v.output = {"output", {shape.tokens(), config_.hidden_size}, p.compute};
  v.backward_work = {{"order", {shape.tokens()}, at::kLong}};
  // A tied table already holds the head's gradient: ours is made beside it and added.
  if (config_.tie_word_embeddings)
    v.backward_work.push_back({"table gradient", {config_.vocab_size, config_.hidden_size}, p.compute});
  return v;
}

void EmbeddingUnit::forward(UnitTensors& t) const {
  ops::embedding_forward(t.output, t.tokens, t.parameters[kTable],
                         t.parameters.size() > kPositions ? t.parameters[kPositions] : at::Tensor(), t.shape.sequence);
}

void EmbeddingUnit::backward(UnitTensors& t) const {
  const at::Tensor d_positions = t.gradients.size() > kPositions ? t.gradients[kPositions] : at::Tensor();
  const bool tied = config_.tie_word_embeddings;
  const at::Tensor& d_table = tied ? t.work[kTableGradient] : t.gradients[kTable];
  ops::embedding_backward(d_table, d_positions, t.d_boundary, t.tokens, t.work[kOrder], t.shape.sequence);
  if (tied) ops::add_forward(t.gradients[kTable], t.gradients[kTable], d_table);
}

}  // namespace trireme::model
