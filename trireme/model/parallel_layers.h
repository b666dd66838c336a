// Column and row parallel linear layers and a vocabulary parallel embedding for modules of your own (wrap.h).
//
//     x -> ColumnParallelLinear -> any function of single columns (or heads) -> RowParallelLinear -> y
//
// Each rank of mesh.tp holds a part of the matrices and computes with it; the ranks meet once at the row product, and
// under sequence parallelism also before the column product. A layer draws the whole matrix, as torch::nn::Linear and
// torch::nn::Embedding draw theirs, and keeps its part: from one seed, all sizes of mesh.tp start from the same
// weights, bit for bit. On one rank the layers are those of torch::nn. Checkpoints hold the whole matrices.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include "trireme/model/tensor_ranks.h"

namespace trireme::model {

struct ColumnOptions {
  bool bias = true;
  int64_t matrices = 1;  ///< `out` is that many equal matrices, each divided by itself: 3 for q, k and v in one
  bool gather_output = false;  ///< all columns on every rank
};

/// y = x W^T + b, of which a rank computes its 1/tp of the columns: `weight` [out/tp, in], `bias` [out/tp].
///
/// Shapes    x [..., in] -> [..., out/tp]; with gather_output [..., out]. Sequence parallel: x has T/tp rows, y has T
/// Cost      forward: under sequence parallelism an all-gather of x; with gather_output one of y. backward: a
///           reduce-scatter for each of these. Construction draws a whole matrix for a moment
/// Errors    UsageError if tp does not divide out / matrices
class ColumnParallelLinearImpl : public torch::nn::Module, public ParallelLayer {
 public:
  ColumnParallelLinearImpl(TensorRanksPtr ranks, int64_t in, int64_t out, const ColumnOptions& options = {});
  at::Tensor forward(const at::Tensor& x);
  std::vector<Divided> divided() const override;

  at::Tensor weight, bias;  ///< bias is undefined without one

 private:
  std::vector<Piece> pieces() const;
  int64_t in_, out_;
  ColumnOptions options_;
};
TORCH_MODULE(ColumnParallelLinear);

struct RowOptions {
  bool bias = true;
};

/// y = x W^T + b, of which a rank has its 1/tp of the columns of x: `weight` [out, in/tp], whole `bias` [out].
///
/// Shapes    x [..., in/tp] -> [..., out]; sequence parallel: x [..., T, in/tp] -> [..., T/tp, out]
/// Cost      forward and backward: an all-reduce of y; sequence parallel: a reduce-scatter, in backward an all-gather
/// Errors    UsageError if tp does not divide `in`; ShapeError if it does not divide T under sequence parallelism
class RowParallelLinearImpl : public torch::nn::Module, public ParallelLayer {
 public:
  RowParallelLinearImpl(TensorRanksPtr ranks, int64_t in, int64_t out, const RowOptions& options = {});
  at::Tensor forward(const at::Tensor& x);
  std::vector<Divided> divided() const override;

  at::Tensor weight, bias;  ///< bias is undefined without one

 private:
  int64_t in_, out_;
};
TORCH_MODULE(RowParallelLinear);

/// Rows of a table of which a rank holds vocabulary/tp consecutive rows: `weight` [vocabulary/tp, width].
///
/// Shapes    ids [..., T] int64 -> [..., T, width]; sequence parallel: [..., T/tp, width]
/// Cost      as RowParallelLinear
/// Errors    UsageError if tp does not divide `vocabulary`; Error naming an id outside the vocabulary
class VocabParallelEmbeddingImpl : public torch::nn::Module, public ParallelLayer {
 public:
  VocabParallelEmbeddingImpl(TensorRanksPtr ranks, int64_t vocabulary, int64_t width);
  at::Tensor forward(const at::Tensor& ids);
  std::vector<Divided> divided() const override;

  at::Tensor weight;

 private:
  int64_t vocabulary_, width_;
};
TORCH_MODULE(VocabParallelEmbedding);

/// The sum of the losses of scores that ColumnParallelLinear divided over the vocabulary, without gathering them.
///
/// Shapes    scores [..., V/tp], targets [...] int64; targets of -100 count nothing
/// Cost      three all-reduces of targets.numel() numbers, in backward two
at::Tensor vocab_parallel_cross_entropy(const TensorRanksPtr& ranks, const at::Tensor& scores,
                                        const at::Tensor& targets);

}  // namespace trireme::model

namespace trireme {
using model::ColumnOptions;
using model::ColumnParallelLinear;
using model::RowOptions;
using model::RowParallelLinear;
using model::vocab_parallel_cross_entropy;
using model::VocabParallelEmbedding;
}  // namespace trireme
