// Trainer: the few calls that an own training loop needs, over a model of wrapped modules (model/wrap.h) and the
// engine. For everything else - evaluation lists, checkpoints, timelines - engine() is there.
//
//     trireme::Trainer trainer(std::move(model), {.ranks = {.backend = "shm", .rank = rank, .size = 2, .store =
//     store}}); for (...) {
//       for (int i = 0; i < trainer.micro_batches(); ++i) trainer.backward(inputs, targets);
//       const auto [loss, norm] = trainer.step(1e-3);
//     }
//
// backward() only hands a micro-batch over: a step is a schedule that is planned whole, so it runs in step(), which
// needs all micro-batches. Their number (`accumulate`) and shape are fixed when the trainer is made, and there is no
// loss before step() returns.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/engine/engine.h"
#include "trireme/engine/wrapped.h"

namespace trireme::engine {

struct TrainerOptions {
  comm::GroupOptions ranks = {};            ///< who this rank is and how ranks talk: rank, size, backend, store
  comm::MeshSizes mesh = {};                ///< by default every rank has its own data and shards the state
  plan::Strategy strategy = plan::Strategy::full_shard;
  plan::PipelineRequest pipeline = {};      ///< with mesh.pp above 1
  plan::RecomputeRequest recompute = {};
  model::Precision precision = {};          ///< the one that the model was built with
  int accumulate = 1;                       ///< micro-batches of a rank and step
  bool local_accumulation = false;  ///< each rank adds up its own, and the sums are reduced once a step: bits
                                    ///< depend on the number of ranks
  optim::OptimizerOptions optimizer = {.lr = 0, .step = 0};  ///< lr and step are set by step()
  std::optional<double> max_norm = {};  ///< of the gradient; no clipping when absent
  /// Number of losses that a micro-batch's loss is the sum of; by default its targets' first size.
  std::function<int64_t(const at::Tensor& targets)> count = {};
  bool poison = false;  ///< debugging, see EngineOptions
};

class Trainer {
 public:
  /// Collective over the ranks. Weights start as the modules' own, those of rank 0.
  /// Errors    UsageError for combinations that cannot work, before anything is allocated
  Trainer(model::Model model, TrainerOptions options);

  /// Hands over one micro-batch of this rank. Ranks of one pipeline hand over the same.
  /// Errors    ShapeError when it is not of the example's shape; UsageError when there are `accumulate` already
  void backward(at::Tensor inputs, at::Tensor targets);

  /// Runs forward, backward and the optimizer over the micro-batches handed over. Collective.
  /// Errors    UsageError when there are fewer than `accumulate`
  StepResult step(double lr);

  /// Mean loss over one micro-batch of every rank, the modules in evaluation mode. Collective.
  double evaluate(const at::Tensor& inputs, const at::Tensor& targets);

  int micro_batches() const { return options_.accumulate; }
  /// Ranks that hand over different micro-batches, and this one's place among them.
  int num_data_ranks() const { return engine_->plan().request.num_data_ranks(); }
  int data_index() const { return engine_->plan().request.data_index(); }

  /// Master weights, whole; see gather_parameters. Collective.
  std::vector<model::NamedTensor> parameters() { return gather_parameters(*engine_); }
  /// Puts trained weights into the modules' own memory; see store_parameters. Collective.
  void store() { store_parameters(*engine_); }
  /// What the rank needs: the plan's table and the allowance for autograd.
  std::string describe_memory() const;

  Engine& engine() { return *engine_; }

 private:
  struct MicroBatch {
    at::Tensor inputs, targets;
  };
  void check_shapes(const MicroBatch& batch) const;
  int64_t count_everywhere(const std::vector<MicroBatch>& batches) const;
  static LoadBatch loader(const std::vector<MicroBatch>& batches);
  void set_training(bool training) const;

  model::Model model_;
  TrainerOptions options_;
  std::unique_ptr<Engine> engine_;
  std::vector<MicroBatch> batches_;
  int64_t steps_ = 0;
};

}  // namespace trireme::engine

namespace trireme {
using engine::Trainer;
using engine::TrainerOptions;
}  // namespace trireme
