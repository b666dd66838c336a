// The engine executes a placed schedule: it allocates the arena once, binds every action to views of it, and then walks
// through the list. It has no code for single strategies: the list says what happens when. An action waits only for the
// asynchronous actions that the list wants complete before it.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "trireme/base/meter.h"
#include "trireme/comm/communicator.h"
#include "trireme/comm/flight_recorder.h"
#include "trireme/engine/arena.h"
#include "trireme/engine/communicators.h"
#include "trireme/engine/offload_file.h"
#include "trireme/engine/step_graphs.h"
#include "trireme/engine/transfer_queue.h"
#include "trireme/engine/unit_traffic.h"
#include "trireme/model/model.h"
#include "trireme/optim/exact_sum.h"
#include "trireme/optim/optimizer.h"
#include "trireme/plan/step_plan.h"
#include "trireme/schedule/lifetimes.h"

namespace trireme::ops::cuda {
struct CopyStream;
struct GraphMaker;
}  // namespace trireme::ops::cuda

namespace trireme::engine {

/// Planned memory that one micro-batch is loaded into. Tensors that this rank does not need are undefined.
struct BatchTensors {
  at::Tensor inputs, targets;  ///< shaped as Model::inputs and Model::targets say: for language models [T] int64,
                               ///< target -100: not supervised. Both exist on ranks with the first or the last unit
  at::Tensor document_starts;  ///< [B*S] int64, of whole sequences, if the plan keeps documents apart
  at::Tensor position_ids;  ///< [T] int64, if positions begin at 0 in each document
  int64_t* text_length = nullptr;  ///< of the longest text on all context-parallel ranks, if the plan asks for lengths;
                                   ///< it is the sequence's if nothing is written
};

/// Fills the tensors of micro-batch `micro_batch` of this data rank (StepRequest::data_index), with the tokens of this
/// context-parallel rank (model::context_positions). Micro-batches may be requested in any order.
using LoadBatch = std::function<void(int micro_batch, const BatchTensors& to)>;

struct StepInputs {
  LoadBatch load_batch;
  int64_t supervised_tokens = 1;  ///< of the global batch; divides the loss
  optim::OptimizerOptions optimizer;  ///< learning rate and number of this step; action Clip sets gradient_scale
  std::optional<double> max_norm;  ///< of the gradient; absent: no clipping, as StepRequest::steps_in_backward needs
  uint64_t seed = 0;  ///< of dropout's masks and of stochastic rounding
  /// The loss is multiplied by this, a power of two, for the backward passes; the optimizer and the norm see gradients
  /// divided by it again. Present: a step whose gradient has an element that is not finite is skipped. Absent with
  /// StepRequest::steps_in_backward.
  std::optional<double> loss_scale = {};
  int64_t skipped = 0;  ///< steps before this one that were skipped; the optimizer does not count them

  /// Micro-batches of this data rank from this one on have no supervised token, on no rank: nothing is computed for
  /// them, and their gradients and losses are 0.
  std::optional<int> used_micro_batches = {};

  // For steps that may be given up before they end. With StepRequest::steps_in_backward none can: give_up is not
  // called, and commit when the step has been taken.
  /// Called before every computation; true gives up the step on this rank alone. The rest of the list then runs without
  /// computing, but still sends messages, with meaningless contents, so that no rank waits forever.
  std::function<bool()> give_up = {};
  /// Called once, before the optimizer's first action; returns whether all ranks take the step. All ranks must return
  /// the same (by a collective on `world`), and must return false if `given_up` is true on any rank. After false,
  /// masters and optimizer state are unchanged.
  std::function<bool(bool given_up)> commit = {};
};

struct StepResult {
  double loss = 0;  ///< mean over supervised tokens of the global batch, with the weighted measures
  std::vector<double> measures = {};  ///< such means, of the units' measures in the order of units
  double gradient_norm = 0;  ///< before clipping
  double learning_rate = 0;  ///< of this step: the given one, or Adafactor's own
  bool committed = true;  ///< false: StepInputs::commit returned false; loss and norm mean nothing
  bool overflowed = false;  ///< the step was skipped: nothing has changed, and loss and norm may not be finite
};

/// Sums over the micro-batches of several runs of the evaluation list: losses and measures, in the order of units. Sums
/// of each run alone, added up, would depend on the number of ranks.
struct LossSums {
  std::vector<double> sums = {};
  int64_t runs = 0;
};

/// A tensor of optimizer state, under PyTorch's name for it.
struct OptimizerTensor {
  std::string name;
  at::Tensor tensor;
};

/// Optimizer state of a whole parameter, whose shape is not the parameter's (optim::whole_state).
struct WholeTensor {
  const model::ParameterSpec* parameter;
  std::string name;  ///< transformers' name for it
  std::vector<int64_t> shape;
  int64_t elements_each;  ///< of optim::WholeState
  at::Tensor tensor;  ///< what this rank keeps of it, flat
  bool saved;  ///< this rank writes it to a checkpoint
};

/// This rank's part of a group's state, for checkpoints.
struct GroupState {
  const shard::FlatLayout* layout;
  const std::vector<model::ParameterSpec>* parameters;  ///< in the order of the layout
  const plan::GroupStorage* storage;
  shard::Range held;  ///< elements of the flat layout that the tensors hold
  shard::Range saved;  ///< of these, the elements that this rank writes to a checkpoint
  at::Tensor master;
  std::vector<OptimizerTensor> optimizer = {};  ///< as `storage` says
  std::vector<WholeTensor> whole = {};
  /// Times the loss scale; undefined if the group is frozen, or with StepRequest::steps_in_backward.
  at::Tensor gradient = {};
};

struct EngineOptions {
  bool poison = false;  ///< debugging: fill values with NaN after their lifetime, check guard bytes; CPU only
  /// The device of the arena and of computation. On a GPU, actions are issued to the current stream and the host runs
  /// ahead; a step ends when its loss has been read back. All communicators except `world` are on the same device.
  at::Device device = at::kCPU;
  std::filesystem::path offload_path = ".";  ///< folder of what rests on a disk
  /// Memory of at least plan.arena.of(Memory::own) bytes, for own values, which outlives the engine; empty: it
  /// allocates its own. On processors.
  std::span<char> memory = {};
  /// Makes graphs of what training steps launch again and again (step_graphs.h); null: none, as poison needs.
  std::shared_ptr<ops::cuda::GraphMaker> graphs = {};
};

/// Start and end of one action of the last step, seconds since the step began.
struct ActionTime {
  int action;
  double begin, end;  ///< on a GPU: when the host issued it, unless base::set_meter_fence makes the host wait
  double waited = 0;  ///< seconds after `end` in which this thread waited until it was complete
};

class Engine {
 public:
  /// Allocates the arena: exactly plan.arena, but for what lies in EngineOptions::memory. Errors: Error if the memory
  /// is not available, on every rank; UsageError for wrapped modules or poison on a GPU; InternalError if ranks that
  /// share memory have planned different places in it
  Engine(const model::Model& model, plan::StepPlan plan, Communicators communicators, EngineOptions options = {});
  ~Engine();

  /// Sets weights by (seed, name, element index) as model/initialize.h does, and optimizer state to zero, with no
  /// untrained_steps().
  void initialize(uint64_t seed);

  StepResult train_step(const StepInputs& inputs);

  /// Runs the evaluation list; returns the mean loss over all ranks' micro-batches. Collective. `so_far` of the earlier
  /// runs of one evaluation: the mean is over their micro-batches too, which are added up in the order of one rank.
  /// Their sequences are numbered on, so units that draw bits in evaluation draw the same on any number of data ranks.
  double evaluate(const LoadBatch& load_batch, int64_t supervised_tokens, LossSums* so_far = nullptr);
  /// Runs the list of generation; the plan has one (StepRequest::generation).
  ///
  /// @param ids        the new tokens [R]; `positions` in their sequences
  /// @returns  logits [M,V] of the rows tokens.logit_rows, in the compute dtype, valid until the next run; undefined
  ///           except on the last pipeline stage
  /// Cost      one pass over the weights; calls with a new number of rows bind the list again
  /// Errors    ShapeError for more rows than planned
  at::Tensor generate(std::span<const int64_t> ids, std::span<const int64_t> positions, model::NewTokens tokens);
  /// Copies a page of every block's cache.
  void copy_page(int64_t from, int64_t to);
  /// StepResult::measures of the last evaluation or step.
  const std::vector<double>& measures() const { return measures_; }

  /// This rank's state. On a GPU, masters and optimizer state are copied to the host unless they rest there; what the
  /// caller writes there takes effect with refresh_weights(). Calls before the next train_step return the same host
  /// memory.
  std::vector<GroupState> state();
  /// Copies what this rank saves into the memory planned for it (StepRequest::save_copy). Returns the copy like
  /// state(), but with `held` = `saved` and without gradients. The copy stays unchanged until the next call.
  /// Cost      one pass at memory speed; on a GPU, it allocates host memory of the state's size
  std::vector<GroupState> copy_state();
  /// By parameter: steps that the optimizer had counted before it was trained, because it was frozen or its state was
  /// not saved. Its bias correction begins behind them. Of all ranks' parameters; those that are not in it: 0.
  void set_untrained_steps(std::map<std::string, int64_t> steps);
  const std::map<std::string, int64_t>& untrained_steps() const { return untrained_steps_; }
  /// Updates the weights in the compute dtype from the masters. Call it after writing to the masters of state().
  void refresh_weights();

  const plan::StepPlan& plan() const { return plan_; }
  /// StepRequest::lent_bytes of own memory. Whatever is kept there ends with the next run of a list.
  std::span<char> lent_memory() const;
  /// Of all regions but the tiers: plan().arena.total(), less own values that lie in EngineOptions::memory.
  int64_t allocated_bytes() const;
  const std::vector<ActionTime>& timeline() const { return timeline_; }
  const Communicators& communicators() const { return comm_; }
  /// Parts of the training list that run as graphs, and how many graphs have been made; both 0 without them.
  std::pair<int, int> graphs() const;

 private:
  struct GroupViews {  // persistent tensors of a group that this rank holds
    at::Tensor weights, master, gradient, step_gradient, local_gradient, compute_copy, compensation;
    std::vector<at::Tensor> optimizer;
    at::Tensor whole_state;  ///< of optimizers that keep nothing else
    std::vector<at::Tensor> state() const { return whole_state.defined() ? std::vector{whole_state} : optimizer; }
  };
  struct Bound {  // an action with its views of the arena
    comm::ActionLabel label;
    model::UnitTensors unit;  // computation
    model::UnitTraffic traffic;
    const std::vector<model::TrafficRow>* rows = nullptr;  // of the action's kind
    std::vector<int> recomputed;  // recompute
    std::vector<at::Tensor> gaps;  // of the gradients that start here: bytes that no unit of this rank writes
    at::Tensor input, output;  // communication; output: also the work memory of an optimizer's step
    std::vector<model::TrafficRow> step_traffic;
    std::vector<optim::DecaySegment> segments;  // step
    std::vector<int64_t> counts;
    BatchTensors batch;  // load_batch
    BatchTensors host_batch;  // the same on the host, if the batch lies on a GPU
    GroupViews group;  // of an action on a group: its persistent tensors, or the copies of them that it uses
    struct {
      char* copy = nullptr;
      char* home = nullptr;
      int64_t offset = 0;  // of the home
      const std::string* label = nullptr;  // of the home
    } move;  // fetch, evict
  };
  struct Pending {
    comm::WorkPtr work;
    int action, completes_at;
    base::Activity activity;
  };
  // bind.cpp
  at::Tensor at_address(char* data, at::IntArrayRef shape, at::ScalarType dtype) const;  ///< on the engine's device
  at::Tensor view(const schedule::Value& value, at::IntArrayRef shape, at::ScalarType dtype) const;
  at::Tensor view(const schedule::Value& value, const model::TensorSpec& spec) const {
    return view(value, spec.shape, spec.dtype);
  }
  std::vector<at::Tensor> parameter_views(char* base, const shard::FlatLayout& layout, at::ScalarType dtype) const;
  /// Of the values that `action` uses, where it uses them; else of those that persist.
  GroupViews group_views(int group, const schedule::Schedule& schedule, const schedule::ValueIndex& values,
                         const schedule::Action* action = nullptr) const;
  /// The shapes of a list's values: as planned, or of a run of generation with fewer rows.
  struct Shapes {
    schedule::List list;
    model::BatchShape batch;
    model::DocumentRequest documents;
    model::GenerationShape generation;
    bool generates() const { return list == schedule::List::generate; }
  };
  Shapes planned_shapes(schedule::List list) const;
  model::UnitValues values_of(int unit, const Shapes& shapes) const;
  std::vector<Bound> bind(const Shapes& shapes);
  BatchTensors bind_batch(const schedule::Action& action, const Shapes& shapes);
  void bind_documents(BatchTensors& to, const schedule::Value& value, const Shapes& shapes) const;
  /// model::Randomness::first_sequence of this data rank's micro-batch.
  int64_t first_sequence(int64_t micro_batch, const model::BatchShape& shape) const;
  void bind_unit(Bound& bound, const schedule::Action& action, const Shapes& shapes,
                 std::set<std::pair<int, int>>& written);
  void bind_group(Bound& bound, const schedule::Schedule& schedule, const schedule::Action& action);
  std::vector<at::Tensor> gaps_of(char* base, int group) const;

  // engine.cpp
  GroupState group_state(int group, const std::function<at::Tensor(const at::Tensor&)>& take,
                         const std::function<at::Tensor(const at::Tensor&)>& take_whole);
  void run(schedule::List list) { run(plan_.lists[list], bound_[list]); }
  void run(const schedule::Schedule& schedule, std::vector<Bound>& bound);
  bool is_gathered(const schedule::Action& action) const;
  bool gives_up();
  void execute(const schedule::Schedule& schedule, const schedule::Action& action, Bound& bound);
  void perform(const schedule::Schedule& schedule, const schedule::Action& action, Bound& bound);
  comm::WorkPtr communicate(const schedule::Action& action, Bound& bound);
  void step(const schedule::Action& action, Bound& bound);
  void compute(const schedule::Schedule& schedule, const schedule::Action& action, Bound& bound);
  void pass_by(const schedule::Schedule& schedule, const schedule::Action& action, const Bound& bound);
  static void leave_empty(const schedule::Action& action, Bound& bound);
  bool commits();
  bool takes_step();
  bool overflowed() const;
  void wait_until(int index);
  void end_last_list();
  void progress();

  // loss.cpp
  double mean_loss(schedule::List list, double tokens, LossSums& so_far);

  // device.cpp
  bool on_gpu() const { return options_.device.is_cuda(); }
  BatchTensors host_batch(const BatchTensors& on_device) const;
  void load(const schedule::Action& action, Bound& bound);
  at::Tensor on_host(const at::Tensor& tensor);

  // step_graphs.cpp
  void plan_graphs();
  bool only_launches(const schedule::Action& action) const;
  /// Runs the part of the list that begins at action `first` as a graph; returns its end, or 0 if nothing has run.
  int run_as_graph(const schedule::Schedule& schedule, std::vector<Bound>& bound, int first);

  // norm.cpp
  void add_squares(int group, const at::Tensor& step_gradient);
  void sum_squares(const schedule::Action& action, const Bound& bound);
  void gather_norm(const schedule::Schedule& schedule, const schedule::Action& action);

  // offload.cpp
  void allocate_tiers();
  void bind_transfer(Bound& bound, const schedule::Schedule& schedule, const schedule::Action& action) const;
  comm::WorkPtr transfer(const schedule::Action& action, const Bound& bound);
  void seal_tiers();
  void look_at_tiers();
  void leave_tiers();
  void keep_transfers();

  // poison.cpp
  void poison_ended(const schedule::Schedule& schedule, const schedule::Lifetimes& lives, int index);
  void set_guards(const schedule::Schedule& schedule, const schedule::Lifetimes& lives, int index);

  const model::Model& model_;
  std::vector<const model::Unit*> wrapped_;  ///< units whose modules have parameters in this engine's memory
  plan::StepPlan plan_;
  Communicators comm_;
  EngineOptions options_;
  MappedMemory private_;
  at::Tensor device_memory_;  ///< replaces private_ on a GPU
  std::map<const void*, at::Tensor> mirror_;  ///< host copies of the state, by address on the GPU
  std::array<char*, schedule::kNumMemories> base_{};
  std::map<int, GroupViews> views_;  ///< by group
  std::map<int, std::vector<optim::DecaySegment>> segments_;  ///< by group, for the held range
  std::map<std::string, int64_t> untrained_steps_;
  schedule::PerList<std::vector<Bound>> bound_;
  /// Of a unit that writes sums: where each rank that runs it has them among all sums of one micro-batch.
  struct SumPlaces {
    struct OfRank {
      int64_t before;  ///< sums of a micro-batch on ranks before this one
      int64_t count;  ///< sums of a micro-batch on this rank
    };
    int unit;
    std::vector<OfRank> ranks;  ///< in the order of micro-batches
  };
  std::vector<SumPlaces> sum_places_;
  std::vector<double> measures_;
  std::vector<Pending> pending_;
  std::set<int> gathered_;  ///< groups whose whole weights, gathered once, are those of the shards
  std::vector<ActionTime> timeline_;
  // Generation (generate.cpp).
  model::NewTokens new_tokens_;
  std::map<std::tuple<int64_t, int64_t, bool>, std::vector<Bound>>
      runs_;  ///< by rows, rows of logits, whether sequences begin
  std::vector<comm::Communicator*> asynchronous_;
  comm::PerUnitAxis<std::unique_ptr<WatchedCommunicator>> inside_;  ///< ranks that divide a unit; null: only this rank

  // Scalars of the step under way.
  const StepInputs* inputs_ = nullptr;
  const LoadBatch* load_batch_ = nullptr;
  std::map<std::pair<schedule::List, int>, int64_t> text_lengths_;  ///< by micro-batch; bound actions point to them
  optim::ExactSum squares_;  ///< of the gradients so far
  int norm_partials_ = -1;  ///< the value in the training list
  at::Tensor squares_on_gpu_;
  double gradient_norm_ = 0, gradient_scale_ = 1, loss_scale_ = 1;
  bool given_up_ = false;
  std::optional<bool> committed_;
  std::optional<StepGraphs> graphs_;

  // Tiers. Last, so that transfers end before the memory that they use.
  MappedMemory host_memory_;
  PageLock page_lock_;  ///< of host_memory_, if copies go to a GPU
  std::unique_ptr<OffloadFile> file_;
  bool looked_at_file_ = false;  ///< through its mapping, since the last step
  struct Mover {
    std::unique_ptr<BlockIo> io;  ///< of a disk
    std::unique_ptr<TransferQueue> queue;
    std::unique_ptr<ops::cuda::CopyStream> stream;  ///< of a GPU, instead of a queue
  };
  std::map<schedule::Queue, Mover> movers_;
};

}  // namespace trireme::engine
