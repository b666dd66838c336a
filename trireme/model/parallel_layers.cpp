#include "trireme/model/parallel_layers.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include "trireme/base/error.h"
#include "trireme/ops/checks.h"

namespace trireme::model {
namespace {

constexpr int64_t kNotSupervised = -100;

// This rank's part of what LibTorch drew for the whole parameter.
at::Tensor part_of(const at::Tensor& whole, int dim, const std::vector<Piece>& pieces) {
  return take_pieces(whole.detach(), dim, pieces);
}

Piece own_piece(const TensorRanks& ranks, int64_t count, const std::string& what) {
  const int64_t part = ranks.share(count, what);
  return {ranks.rank() * part, (ranks.rank() + 1) * part};
}

}  // namespace

ColumnParallelLinearImpl::ColumnParallelLinearImpl(TensorRanksPtr ranks, int64_t in, int64_t out,
                                                   const ColumnOptions& options)
    : ParallelLayer(std::move(ranks)), in_(in), out_(out), options_(options) {
  const std::vector<Piece> mine = pieces();
  const torch::nn::Linear whole(torch::nn::LinearOptions(in, out).bias(options.bias));
  weight = register_parameter("weight", part_of(whole->weight, 0, mine));
  if (options.bias) bias = register_parameter("bias", part_of(whole->bias, 0, mine));
}

std::vector<Piece> ColumnParallelLinearImpl::pieces() const {
  if (options_.matrices < 1 || out_ % options_.matrices != 0)
    throw UsageError(
        fmt::format("[wrap] {} outputs of a column parallel layer are not {} equal matrices; take a "
                    "multiple",
                    out_, options_.matrices));
  const int64_t columns = out_ / options_.matrices;
  const Piece own = own_piece(*ranks(), columns, "outputs of a column parallel matrix");
  std::vector<Piece> all;
  for (int64_t m = 0; m < options_.matrices; ++m) all.push_back({m * columns + own.begin, m * columns + own.end});
  return all;
}

at::Tensor ColumnParallelLinearImpl::forward(const at::Tensor& x) {
  const at::Tensor y = at::linear(ranks()->gather_rows(x), weight, bias);
  if (!options_.gather_output || ranks()->size() == 1) return y;
  if (options_.matrices == 1) return ranks()->gather(y, -1);
  return ranks()->gather(y.unflatten(-1, {options_.matrices, -1}), -1).flatten(-2);
}

std::vector<ParallelLayer::Divided> ColumnParallelLinearImpl::divided() const {
  if (ranks()->size() == 1) return {};
  std::vector<Divided> all{{"weight", {{out_, in_}, 0, pieces()}}};
  if (bias.defined()) all.push_back({"bias", {{out_}, 0, pieces()}});
  return all;
}

RowParallelLinearImpl::RowParallelLinearImpl(TensorRanksPtr ranks, int64_t in, int64_t out, const RowOptions& options)
    : ParallelLayer(std::move(ranks)), in_(in), out_(out) {
  const Piece own = own_piece(*this->ranks(), in, "inputs of a row parallel matrix");
  const torch::nn::Linear whole(torch::nn::LinearOptions(in, out).bias(options.bias));
  weight = register_parameter("weight", part_of(whole->weight, 1, {own}));
  if (options.bias) bias = register_parameter("bias", whole->bias.detach().clone());
}

at::Tensor RowParallelLinearImpl::forward(const at::Tensor& x) {
  if (ranks()->size() == 1) return at::linear(x, weight, bias);
  const at::Tensor y = ranks()->sum_rows(at::linear(x, weight));
  return bias.defined() ? y + bias : y;
}

std::vector<ParallelLayer::Divided> RowParallelLinearImpl::divided() const {
  if (ranks()->size() == 1) return {};
  return {{"weight", {{out_, in_}, 1, {own_piece(*ranks(), in_, "inputs of a row parallel matrix")}}}};
}

VocabParallelEmbeddingImpl::VocabParallelEmbeddingImpl(TensorRanksPtr ranks, int64_t vocabulary, int64_t width)
    : ParallelLayer(std::move(ranks)), vocabulary_(vocabulary), width_(width) {
  const Piece own = own_piece(*this->ranks(), vocabulary, "rows of a vocabulary parallel table");
  const torch::nn::Embedding whole(vocabulary, width);
  weight = register_parameter("weight", part_of(whole->weight, 0, {own}));
}

at::Tensor VocabParallelEmbeddingImpl::forward(const at::Tensor& ids) {
  ops::check_tokens("VocabParallelEmbedding", ids.contiguous(), vocabulary_);
  if (ranks()->size() == 1) return at::embedding(weight, ids);
  const int64_t rows = weight.size(0);
  const at::Tensor local = ids - ranks()->rank() * rows;
  const at::Tensor held = local.ge(0).logical_and_(local.lt(rows));
  const at::Tensor found = at::embedding(weight, local.masked_fill(held.logical_not(), 0));
  return ranks()->sum_rows(found * held.unsqueeze(-1));
}

std::vector<ParallelLayer::Divided> VocabParallelEmbeddingImpl::divided() const {
  if (ranks()->size() == 1) return {};
  return {{"weight",
           {{vocabulary_, width_}, 0, {own_piece(*ranks(), vocabulary_, "rows of a vocabulary parallel table")}}}};
}

// log sum exp of all scores, less the target's score, which one rank has.
at::Tensor vocab_parallel_cross_entropy(const TensorRanksPtr& ranks, const at::Tensor& scores,
                                        const at::Tensor& targets) {
  const at::Tensor s = scores.to(at::promote_types(scores.scalar_type(), at::kFloat));
  const int64_t columns = s.size(-1);
  ops::check_targets("vocab_parallel_cross_entropy", targets.contiguous(), columns * ranks->size());
  const at::Tensor highest = ranks->max(s.detach().amax(-1));
  const at::Tensor sums = ranks->sum((s - highest.unsqueeze(-1)).exp().sum(-1));
  const at::Tensor supervised = targets.ne(kNotSupervised), local = targets - ranks->rank() * columns;
  const at::Tensor held = local.ge(0).logical_and_(local.lt(columns));
  const at::Tensor column = local.masked_fill(held.logical_not(), 0).unsqueeze(-1);
  const at::Tensor score = ranks->sum(s.gather(-1, column).squeeze(-1) * held);
  return ((sums.log() + highest - score) * supervised).sum();
}

}  // namespace trireme::model
