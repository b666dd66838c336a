// Trainer: the few calls that your own training loop needs for a model of wrapped modules (model/wrap.h). For all else
// (evaluation lists, checkpoints, timelines) use engine().
//
//     trireme::Trainer trainer(std::move(model),
//                              {.ranks = {.backend = "shm", .rank = rank, .size = 2, .store = store}});
//     for (...) {
//       for (int i = 0; i < trainer.micro_batches(); ++i) trainer.backward(inputs, targets);
//       const double loss = trainer.step(1e-3).loss;
//     }
//
// backward() only stores a copy of a micro-batch. A step is planned as a whole, so it runs in step(), when all
// micro-batches are there. Their number (`accumulate`) and shape are fixed in the constructor. There is no loss before
// step() returns. train/trainer_checkpoint.h saves a trainer and goes on from the checkpoint.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/engine/engine.h"
#include "trireme/engine/wrapped.h"
#include "trireme/optim/loss_scale.h"

namespace trireme::engine {

struct TrainerOptions {
  comm::GroupOptions ranks = {};            ///< rank, size, backend, store
  comm::MeshSizes mesh = {};                ///< by default every rank has its own data and shards the state
  bool sequence_parallel = false;           ///< with mesh.tp above 1; see tensor_ranks
  plan::Strategy strategy = plan::Strategy::full_shard;
  schedule::PipelineSettings pipeline = {};      ///< with mesh.pp above 1
  schedule::RecomputeSettings recompute = {};
  schedule::OffloadSettings offload = {};  ///< what rests in host memory, or on a disk in offload.path (by default ".")
  model::Precision precision = {};  ///< as passed to build_model
  int accumulate = 1;  ///< micro-batches of a rank in a step
  bool local_accumulation = false;  ///< a rank sums its micro-batches' gradients and reduces them once a step;
                                    ///< the result's bits then depend on the number of ranks
  /// AdamW with torch.optim's defaults. For another rule with its own defaults: optim::options_of(optim::Rule::sgd).
  /// {.rule = ...} alone keeps those of AdamW. Muon needs a model built with model::Grouping{.matrices_apart = true}.
  /// lr and step are set by step().
  optim::OptimizerOptions optimizer = {.lr = 0, .step = 0};
  /// The optimizer inside the backward pass (optimizer.in_backward), with neither max_norm nor gradients in float16.
  bool steps_in_backward = false;
  /// Of gradients in float16 (precision.compute); by default dynamic, as PyTorch's GradScaler.
  optim::LossScaleOptions loss_scale = {};
  std::optional<double> max_norm = {};  ///< of the gradient; absent: no clipping
  /// How many losses a micro-batch's loss sums; by default targets.size(0), where targets have a dimension.
  std::function<int64_t(const at::Tensor& targets)> count = {};
  bool poison = false;  ///< debugging, see EngineOptions
};

/// This rank's place among the ranks of mesh.tp, for the parallel layers of its modules (model/parallel_layers.h).
/// build_model then takes ->parallel().
/// Errors    UsageError if the mesh does not fit the number of ranks, or ranks.rank is none of them
model::TensorRanksPtr tensor_ranks(const TrainerOptions& options);

/// What a checkpoint keeps of a trainer, beside the weights and the optimizer's state of Engine::state.
struct TrainerState {
  int64_t steps = 0;  ///< that it has taken; AdamW's bias correction depends on them
  /// Of gradients in float16. A trainer in another precision keeps what it is given: its optimizer has not counted the
  /// steps that were skipped.
  optim::LossScaleState loss_scale = {};
  std::map<std::string, int64_t> untrained_steps = {};  ///< Engine::untrained_steps
};

/// It can be moved, but not while another thread uses it.
class Trainer {
 public:
  /// Collective over the ranks. Weights start with the values that rank 0's modules have now. Rank 0 warns of
  /// parameters that no loss of the example reaches (Model::unreached), and of statistics in two bytes. Errors
  /// UsageError for a built-in model, for numbers that the settings of the same names refuse, and for
  ///           combinations that cannot work, before anything is allocated; and, on every rank, for ranks whose options
  ///           or models differ
  Trainer(model::Model model, TrainerOptions options);
  Trainer(Trainer&&) = default;
  Trainer& operator=(Trainer&&) = delete;

  /// Stores a copy of one micro-batch of this rank, so the caller may fill its tensors again. Ranks of one data_index()
  /// (along pp and tp) must pass the same micro-batch.
  /// Errors    ShapeError if its shape is not the example's, or the example's dtype cannot hold its numbers (2.5 or
  ///           300 in a byte); UsageError if `accumulate` are stored already
  void backward(const at::Tensor& inputs, const at::Tensor& targets);

  /// Runs forward, backward and the optimizer over the stored micro-batches. Collective. They are gone afterwards, also
  /// if an error ends the step, but not if `lr` is negative or not finite: store new ones to go on. With several ranks
  /// that works only where the error ended the step of each, at the same place; else the others wait for
  /// comm::GroupOptions::timeout, and the trainer cannot go on. With steps_in_backward such a step may have updated
  /// some of the weights, so all but backward() then want a checkpoint first (train::load_trainer). With float16, a
  /// step whose gradient overflows changes nothing: StepResult::overflowed says so. Errors    UsageError if fewer than
  /// `accumulate` are stored, `lr` is negative or not finite, or ranks pass
  ///           different ones or call evaluate() meanwhile, or c10::InferenceMode is on; Error if gradients overflow at
  ///           the lowest loss scale
  StepResult step(double lr);

  /// Mean loss over one micro-batch of every rank, with the modules in evaluation mode. Collective.
  double evaluate(const at::Tensor& inputs, const at::Tensor& targets);

  /// Steps taken so far, with those before restore().
  int64_t steps() const { return steps_; }
  TrainerState state() const;
  /// Before weights and the optimizer's state are read into Engine::state: stored micro-batches and what store() gave
  /// the modules go. Until restore(), only another load helps.
  void begin_restore();
  /// Goes on from a checkpoint's state. Weights and the optimizer's state are loaded apart (train::load_trainer).
  void restore(const TrainerState& state);

  int micro_batches() const { return options_.accumulate; }
  /// The number of ranks that pass different micro-batches, and this rank's place among them.
  int num_data_ranks() const { return engine_->plan().request.num_data_ranks(); }
  int data_index() const { return engine_->plan().request.data_index(); }

  /// Whole master weights; see gather_parameters. Collective.
  std::vector<model::NamedTensor> parameters();
  /// Puts trained weights into the modules' own memory, where they can be read until the next step or evaluation. What
  /// is written to them is lost with it, and so at load_trainer. Without store() they have no values, and reading them
  /// is an error of LibTorch with a sentence. Buffers of parts of another pipeline stage become those of its
  /// first data rank. See store_parameters. Collective.
  void store();
  /// The memory that this rank needs, as text: the plan's table and autograd_allowance.
  std::string describe_memory() const;

  Engine& engine() { return *engine_; }
  const model::Model& model() const { return *model_; }

 private:
  struct MicroBatch {
    at::Tensor inputs, targets;
  };
  void check_batch(const MicroBatch& batch) const;
  int64_t count_everywhere(const std::vector<MicroBatch>& batches, std::optional<double> lr) const;
  static LoadBatch loader(const std::vector<MicroBatch>& batches);
  void refuse_half_a_step() const;
  void set_training(bool training) const;
  template <class Pass>
  auto run(const Pass& pass) const;

  std::unique_ptr<model::Model> model_;  // the engine refers to it, so it stays where it is when a trainer moves
  TrainerOptions options_;
  std::unique_ptr<Engine> engine_;
  std::vector<MicroBatch> batches_;
  int64_t steps_ = 0;
  bool is_half_stepped_ = false;  ///< a step that updates weights within the backward pass ended with an error
  bool is_half_restored_ = false;  ///< or loading a checkpoint
  std::optional<optim::LossScale> loss_scale_;
  optim::LossScaleState scale_before_;  ///< that of restore(), for a trainer that scales no loss
};

}  // namespace trireme::engine

namespace trireme {
using engine::tensor_ranks;
using engine::Trainer;
using engine::TrainerOptions;
}  // namespace trireme
