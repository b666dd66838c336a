// The engine executes a placed schedule: it allocates the arena once, binds every action to views of it, and then
// walks the list. There is no branch per strategy here; what happens when is in the list.
//
// An action waits for the asynchronous actions that the list says are complete by then, and for nothing else.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/engine/arena.h"
#include "trireme/engine/communicators.h"
#include "trireme/engine/unit_traffic.h"
#include "trireme/model/model.h"
#include "trireme/optim/optimizer.h"
#include "trireme/plan/step_plan.h"

namespace trireme::engine {

/// Planned memory that one micro-batch is loaded into; undefined: not wanted on this rank.
struct BatchTensors {
  at::Tensor inputs, targets;  ///< Model::inputs, Model::targets; for language models tokens [T] and targets [T] int64,
                               ///< -100: not supervised. On ranks that hold the first or the last unit
  at::Tensor document_starts;  ///< [B*S] int64, of whole sequences, where the plan keeps documents apart
  at::Tensor position_ids;  ///< [T] int64, where their positions begin at 0
};

/// Fills the tensors of this rank's micro-batch `micro_batch`: of its data index, cut for its context-parallel rank
/// (model::context_positions). Called in any order of micro-batches.
using LoadBatch = std::function<void(int micro_batch, const BatchTensors& to)>;

struct StepInputs {
  LoadBatch load_batch;
  int64_t supervised_tokens = 1;  ///< of the global batch: the loss is normalised by it
  optim::OptimizerOptions optimizer;  ///< learning rate and step of this step; gradient_scale is set by Clip
  std::optional<double> max_norm;  ///< no clipping when absent

  // For steps that may be given up half-way; absent: none is.
  /// Asked before every computation, on every rank for itself: true gives the step up. The rest of the list then runs
  /// without computing: messages still flow, so that no rank waits for another, and what they hold means nothing.
  std::function<bool()> give_up = {};
  /// Called once, before the optimizer's first action: whether all ranks take that step. They have to agree (a
  /// collective on `world`), and not to where `given_up` is true on any. On false masters and optimizer state stay as
  /// they were.
  std::function<bool(bool given_up)> commit = {};
};

struct StepResult {
  double loss = 0;  ///< mean over supervised tokens of the global batch
  double gradient_norm = 0;  ///< before clipping
  bool committed = true;  ///< false: StepInputs::commit said no; loss and norm mean nothing
};

/// A tensor that the optimizer keeps, under PyTorch's name for it.
struct OptimizerTensor {
  std::string name;
  at::Tensor tensor;
};

/// This rank's part of a group's state, for checkpoints.
struct GroupState {
  const shard::FlatLayout* layout;
  const std::vector<model::ParameterSpec>* parameters;  ///< as in the layout
  shard::Range held;  ///< elements of the flat layout that the tensors hold
  shard::Range saved;  ///< the part of them that this rank writes to a checkpoint
  at::Tensor master;
  std::vector<OptimizerTensor> optimizer;  ///< as StepRequest::optimizer_state says
  at::Tensor gradient;
};

struct EngineOptions {
  bool poison = false;  ///< fill values with NaN after their life; check guard bytes behind them; on the CPU only
  /// Where the arena lies and units compute. On a GPU actions are issued to its current stream and the host runs ahead;
  /// a step ends when its loss has come back. Communicators other than `world` are of the same device.
  at::Device device = at::kCPU;
};

/// Start and end of one action of the last step, seconds since the step began.
struct ActionTime {
  int action;
  double begin, end;  ///< on a GPU when the host had issued it, unless base::set_meter_fence makes the host wait
};

class Engine {
 public:
  /// Allocates the arena: exactly plan.arena. Errors: Error when the memory cannot be had, on every rank; UsageError
  /// for wrapped modules or poison on a GPU
  Engine(const model::Model& model, plan::StepPlan plan, Communicators communicators, EngineOptions options = {});
  ~Engine();

  /// Weights from (seed, name, element index), optimizer state zero.
  void initialize(uint64_t seed);

  StepResult train_step(const StepInputs& inputs);

  /// Mean loss over the evaluation list's micro-batches of all ranks.
  double evaluate(const LoadBatch& load_batch, int64_t supervised_tokens);

  /// This rank's state. From a GPU masters and optimizer state are copied to the host: what is written to it counts
  /// from refresh_weights() on, until the next train_step the same memory is given again.
  std::vector<GroupState> state();
  /// Copies what this rank saves into the memory planned for it (StepRequest::save_copy). The same as state() with
  /// `held` = `saved` and no gradients, and stays as it is until the next call.
  /// Cost      one pass at memory speed; allocates nothing of the state's size (on a GPU: host memory of its size)
  std::vector<GroupState> copy_state();
  /// Call after masters were written from outside: weights in the compute dtype follow them.
  void refresh_weights();

  const plan::StepPlan& plan() const { return plan_; }
  int64_t allocated_bytes() const;  ///< what the regions hold; equals plan().arena.total()
  const std::vector<ActionTime>& timeline() const { return timeline_; }
  const Communicators& communicators() const { return comm_; }

 private:
  struct Bound;  // an action with its views
  struct Pending {
    comm::WorkPtr work;
    int completes_at;
  };
  struct GroupViews {  // persistent tensors of a group that this rank holds
    at::Tensor weights, master, gradient, step_gradient, local_gradient, compute_copy;
    std::vector<at::Tensor> optimizer;
  };

  // bind.cpp
  at::Tensor at_address(char* data, at::IntArrayRef shape, at::ScalarType dtype) const;
  at::Tensor view(const schedule::Value& value, at::IntArrayRef shape, at::ScalarType dtype) const;
  std::vector<at::Tensor> parameter_views(char* base, const shard::FlatLayout& layout, at::ScalarType dtype) const;
  GroupViews group_views(int group) const;
  std::vector<Bound> bind(const schedule::Schedule& schedule);
  BatchTensors bind_batch(const schedule::Schedule& schedule, const schedule::Action& action) const;
  void bind_documents(BatchTensors& to, const schedule::Value& value) const;
  void bind_unit(Bound& bound, const schedule::Schedule& schedule, const schedule::Action& action,
                 std::set<std::pair<int, int>>& written);
  void bind_group(Bound& bound, const schedule::Schedule& schedule, const schedule::Action& action);
  std::vector<at::Tensor> gaps_of(char* base, int group) const;

  // engine.cpp
  void run(const schedule::Schedule& schedule, std::vector<Bound>& bound);
  void execute(const schedule::Schedule& schedule, const schedule::Action& action, Bound& bound);
  comm::WorkPtr communicate(const schedule::Action& action, Bound& bound);
  void compute(const schedule::Schedule& schedule, const schedule::Action& action, Bound& bound);
  void pass_by(const schedule::Action& action, const Bound& bound);
  bool commits();
  void wait_until(int index);
  void progress();
  double sum_losses(int num_micro_batches) const;

  // device.cpp
  bool on_gpu() const { return options_.device.is_cuda(); }
  void check_device() const;
  BatchTensors host_batch(const BatchTensors& on_device) const;
  void load(const schedule::Action& action, Bound& bound);
  at::Tensor on_host(const at::Tensor& tensor);

  // norm.cpp
  void gather_norm();

  // poison.cpp
  void poison_ended(const schedule::Schedule& schedule, int index);
  void set_guards(const schedule::Schedule& schedule, int index);

  const model::Model& model_;
  plan::StepPlan plan_;
  Communicators comm_;
  EngineOptions options_;
  MappedMemory private_;
  at::Tensor device_memory_;  ///< instead of it on a GPU
  std::map<const void*, at::Tensor> mirror_;  ///< copies of the state on the host, by address on the device
  std::array<char*, schedule::kNumMemories> base_{};
  std::map<int, GroupViews> views_;  ///< by group
  std::map<int, std::vector<optim::DecaySegment>> decay_;  ///< by group, of the held range
  std::vector<Bound> train_, evaluate_;
  std::vector<int> loss_order_;  ///< ranks of the loss group, in the order of micro-batches
  std::vector<Pending> pending_;
  std::vector<ActionTime> timeline_;
  std::vector<comm::Communicator*> asynchronous_;
  std::unique_ptr<WatchedCommunicator> tp_, cp_;  ///< null when alone on the axis

  // Scalars of the step under way.
  const StepInputs* inputs_ = nullptr;
  const LoadBatch* load_batch_ = nullptr;
  double gradient_norm_ = 0, gradient_scale_ = 1;
  bool given_up_ = false;
  std::optional<bool> committed_;
};

}  // namespace trireme::engine
