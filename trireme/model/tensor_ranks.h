// TensorRanks: what modules of your own need from the ranks of mesh.tp, as functions that autograd differentiates.
// ParallelLayer: a module whose parameters are this rank's part of whole ones (parallel_layers.h has three).
//
//     const auto ranks = trireme::tensor_ranks(options);             // TrainerOptions: the mesh and this rank
//     up = register_module("up", trireme::ColumnParallelLinear(ranks, width, 4 * width));
//
// One rule makes every module right, whatever it computes between two collectives: a step trains on the *mean of the
// ranks' losses*. So the gradient of each function below is its plain adjoint (of a sum: a sum; of a gather: a sum of
// which each rank keeps its part), and the gradient of a parameter that all ranks hold is the sum over the ranks
// (wrapped_unit.h adds that). A module need not say which of its tensors are equal on all ranks.
// Source: Shoeybi et al., Megatron-LM (2019); Korthikanti et al., Reducing Activation Recomputation (2022)
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trireme/model/unit.h"

namespace trireme::model {

/// A rank's place among the tensor-parallel ranks, and their collectives. On one rank the functions return `x`. Ranks
/// must call them in the same order with the same shapes. All layers of a model share one TensorRanks. Its collectives
/// work inside the passes of a model (build_model connects it), or after connect().
///
/// Rows are the second to last dimension: tokens of [B,T,D] or [N,D]. Under sequence parallelism a rank holds a 1/size
/// of them between a row product and the next column product; then T, or N, must be a multiple of size().
class TensorRanks : public std::enable_shared_from_this<TensorRanks> {
 public:
  explicit TensorRanks(const Parallel& parallel) : parallel_(parallel) {}

  const Parallel& parallel() const { return parallel_; }
  int rank() const { return parallel_.tp_rank; }
  int size() const { return parallel_.tp_size; }
  bool sequence() const { return size() > 1 && parallel_.sequence_parallel; }

  /// This rank's number of `count` things, such as attention heads.
  /// Errors    UsageError naming `what` if the ranks cannot share them evenly
  int64_t share(int64_t count, const std::string& what) const;

  at::Tensor sum(const at::Tensor& x);
  /// The ranks' parts, one after the other along `dim`.
  at::Tensor gather(const at::Tensor& x, int64_t dim);
  /// This rank's part, along `dim`, of the sum of the ranks' `x`.
  at::Tensor sum_scatter(const at::Tensor& x, int64_t dim);
  /// This rank's part of `x` along `dim`.
  at::Tensor own(const at::Tensor& x, int64_t dim) const;

  /// Sequence parallel: all rows, this rank's rows, this rank's rows of the sum. Otherwise x, x, sum(x).
  at::Tensor gather_rows(const at::Tensor& x) { return sequence() ? gather(x, -2) : x; }
  at::Tensor own_rows(const at::Tensor& x) const { return sequence() ? own(x, -2) : x; }
  at::Tensor sum_rows(const at::Tensor& x) { return sequence() ? sum_scatter(x, -2) : sum(x); }

  /// Largest values over the ranks; without a gradient.
  at::Tensor max(const at::Tensor& x);

  /// What the functions call from now on; null: nothing, and they throw UsageError. They keep it alive.
  void connect(std::shared_ptr<comm::Communicator> ranks) {
    connected_ = std::move(ranks);
    ranks_ = connected_.get();
  }
  /// Until record(null): no rank is called, results have the right shape and meaningless values, and the calls that
  /// would be made are appended to `rows`.
  void record(std::vector<TrafficRow>* rows) { rows_ = rows; }

 private:
  friend struct CollectiveGradient;
  friend class RanksInUse;
  at::Tensor all_reduce(const at::Tensor& x, comm::ReduceOp op);
  at::Tensor all_gather(const at::Tensor& x, int64_t dim);
  at::Tensor reduce_scatter(const at::Tensor& x, int64_t dim);
  at::Tensor all_ranks(const at::Tensor& x);  // [size, *x]
  bool records(comm::Operation operation, const at::Tensor& x, int64_t elements, comm::ReduceOp op = {});
  void check_divides(const at::Tensor& x, int64_t dim) const;

  Parallel parallel_;
  std::shared_ptr<comm::Communicator> connected_;
  comm::Communicator* ranks_ = nullptr;  // that one, or a model's in its passes
  std::vector<TrafficRow>* rows_ = nullptr;
};

using TensorRanksPtr = std::shared_ptr<TensorRanks>;

/// While it lives, `ranks` call a communicator, or only record; afterwards what they did before. `ranks` may be null.
class RanksInUse {
 public:
  RanksInUse(TensorRanksPtr ranks, comm::Communicator* communicator) : ranks_(std::move(ranks)) {
    if (ranks_) before_ = std::exchange(ranks_->ranks_, communicator);
  }
  RanksInUse(TensorRanksPtr ranks, std::vector<TrafficRow>& rows) : RanksInUse(std::move(ranks), nullptr) {
    if (ranks_) ranks_->record(&rows);
  }
  ~RanksInUse() {
    if (!ranks_) return;
    ranks_->ranks_ = before_;
    ranks_->record(nullptr);
  }
  RanksInUse(const RanksInUse&) = delete;
  RanksInUse& operator=(const RanksInUse&) = delete;

 private:
  TensorRanksPtr ranks_;
  comm::Communicator* before_ = nullptr;
};

/// How a rank's part lies in a whole parameter: `pieces` of dimension `dim`, one after the other.
struct Division {
  std::vector<int64_t> whole_shape;
  int dim = 0;
  std::vector<Piece> pieces;
};

/// A copy of the pieces of `whole`.
at::Tensor take_pieces(const at::Tensor& whole, int dim, const std::vector<Piece>& pieces);

/// A module derives from this beside torch::nn::Module if it divides its own parameters.
class ParallelLayer {
 public:
  explicit ParallelLayer(TensorRanksPtr ranks);
  virtual ~ParallelLayer() = default;
  const TensorRanksPtr& ranks() const { return ranks_; }

  struct Divided {
    std::string name;  ///< as in named_parameters(/*recurse=*/false)
    Division division;
  };
  /// Its divided parameters; every rank holds all of the others. Empty on one rank.
  virtual std::vector<Divided> divided() const = 0;

 private:
  TensorRanksPtr ranks_;
};

}  // namespace trireme::model

namespace trireme {
using model::ParallelLayer;
using model::TensorRanks;
using model::TensorRanksPtr;
}  // namespace trireme
