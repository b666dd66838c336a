// Unit: the smallest piece of a model that is scheduled: the embedding, one decoder block, or the head with its loss. A
// unit declares what it needs (parameters, values for a batch shape) and computes on views of planned memory. It never
// allocates, and only its values outlive a call. A boundary is the tensor between two units: the output of the first.
//
// T below is the number of local tokens: micro_batch x sequence / cp. Boundaries have T rows; under sequence
// parallelism they have T / tp.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "trireme/comm/collective.h"
#include "trireme/comm/unit_axes.h"
#include "trireme/model/parameter.h"
#include "trireme/model/settings.h"
#include "trireme/ops/attention/kernels.h"
#include "trireme/ops/ops.h"

namespace trireme::model {

/// The dtypes of a run: `compute` for matrix products, `state` for statistics and, unless the fields below say
/// otherwise, for master weights, moments and summed gradients.
struct Precision {
  at::ScalarType compute = at::kFloat;
  at::ScalarType state = at::kFloat;
  /// True: units add up the gradients of a step's micro-batches in place, in the state dtype. False: they write each
  /// micro-batch's gradient to memory of its own, in the compute dtype. The step's plan sets it.
  bool units_sum_gradients = false;
  bool on_gpu = false;  ///< units compute on a GPU
  bool float8 = false;  ///< products of decoder blocks take operands of 8 bits (ops/products/float8.h)
  bool any_order = false;  ///< on a GPU: sums may have an order that differs from run to run. The step's plan sets it
  bool narrow_weights = false;  ///< masters and moments have the compute dtype; there is no other copy of the weights
  bool narrow_gradients = false;  ///< the gradients' sums over micro-batches and ranks have the compute dtype
  bool wide_slots = false;  ///< units write a micro-batch's gradient in the state dtype
  Rounding rounding = Rounding::nearest;  ///< of narrow weights
  /// What units write gradients in, what masters and moments are kept in, and what gradients are summed in.
  at::ScalarType gradient() const { return units_sum_gradients || wide_slots ? state : compute; }
  at::ScalarType master() const { return narrow_weights ? compute : state; }
  at::ScalarType gradient_sum() const { return narrow_gradients ? compute : state; }
  bool operator==(const Precision&) const = default;
};

/// This rank's place on the mesh axes that divide the computation inside a unit: tp and cp.
struct Parallel {
  int tp_rank = 0, tp_size = 1;
  bool sequence_parallel = false;  ///< between blocks each tensor-parallel rank keeps 1/tp of the tokens
  int cp_rank = 0, cp_size = 1;
  Context context = Context::ring;
  bool operator==(const Parallel&) const = default;
};

/// A context-parallel rank r holds sequence / cp_size tokens; these are their positions in the whole sequence. ring:
/// chunks r and 2 cp - 1 - r of 2 cp chunks; ulysses: the r-th of cp parts.
/// Errors    UsageError if the sequence cannot be divided like this
std::vector<int64_t> context_positions(const Parallel& parallel, int64_t sequence);

/// A micro-batch, over all context-parallel ranks.
struct BatchShape {
  int64_t micro_batch = 1;
  int64_t sequence = 1;
  int64_t tokens() const { return micro_batch * sequence; }
  bool operator==(const BatchShape&) const = default;
};

/// What one rank holds of a micro-batch: the same for every unit.
struct LocalRows {
  int64_t sequence = 1;  ///< tokens of each sequence on this context-parallel rank
  int64_t tokens = 1;  ///< T: tokens of the micro-batch on this context-parallel rank
  int64_t rows = 1;  ///< rows of boundaries: T; under sequence parallelism T / tp
};
/// Errors    UsageError if `parallel` cannot divide the sequence or the tokens
LocalRows local_rows(const Parallel& parallel, const BatchShape& shape);

/// One run of generation at most. Its sequences lie in one micro-batch, row after row.
struct GenerationShape {
  int64_t rows = 0;  ///< new tokens; 0: no generation
  int64_t logit_rows = 0;  ///< of these, rows whose logits are computed
  int64_t pages = 0;  ///< of the cache, ops::kAttentionPage tokens each
  bool begins = true;  ///< some sequences begin: a Free Transformer's encoder reads them
  bool operator==(const GenerationShape&) const = default;
};

/// In the place of the code of a latent; with 64 bits no code is this one.
inline constexpr int64_t kDrawnCode = -1;

/// The new tokens of a run of generation.
struct NewTokens {
  std::vector<ops::PagedSequence> sequences;  ///< every row belongs to one; `pages` outlive the run
  at::Tensor places;  ///< [R] int64: where a token's keys and values go, as ops::cache_write
  at::Tensor logit_rows;  ///< [M] int64
  // Of a Free Transformer:
  at::Tensor codes;  ///< [R] int64; kDrawnCode: the encoder draws it. It reads a sequence's new tokens, which begin the
                     ///< sequence
  std::vector<uint64_t> seeds;  ///< of each sequence's draws
};

struct TensorSpec {
  std::string name;
  std::vector<int64_t> shape;
  at::ScalarType dtype = at::kFloat;
  int64_t bytes() const;
};

/// Specs by slot. A slot is an index that the unit names in an enum; UnitTensors has the tensor at the same index. A
/// slot that the unit does not need has no name, and its tensor stays undefined.
class Slots {
 public:
  Slots() = default;
  Slots(std::initializer_list<TensorSpec> from_zero_on) : specs_(from_zero_on) {}
  TensorSpec& operator[](int slot) {
    if (slot >= static_cast<int>(specs_.size())) specs_.resize(static_cast<size_t>(slot) + 1);
    return specs_[static_cast<size_t>(slot)];
  }
  const TensorSpec& operator[](int slot) const { return specs_[static_cast<size_t>(slot)]; }
  /// Puts `specs` in the slots from `first` on.
  void put(int first, const std::vector<TensorSpec>& specs) {
    for (const TensorSpec& spec : specs) (*this)[first++] = spec;
  }
  size_t size() const { return specs_.size(); }
  bool empty() const { return specs_.empty(); }
  auto begin() const { return specs_.begin(); }
  auto end() const { return specs_.end(); }

 private:
  std::vector<TensorSpec> specs_;
};

/// What blocks know about the documents in a sequence. If neither attention nor positions are asked for, they treat the
/// sequence as one text.
struct DocumentRequest {
  bool attention = false;  ///< a token sees those of its own document only
  bool positions = false;  ///< each document's positions begin at 0
  bool lengths = false;  ///< the longest text of each micro-batch: some rotary frequencies follow from it
  bool any() const { return attention || positions || lengths; }
  bool operator==(const DocumentRequest&) const = default;
};

/// Document starts and positions of one micro-batch, int64 [2, B*S]. Row 0: for each token of the whole sequences, the
/// position where its document begins. Row 1, first T elements: each local token's position in its document.
TensorSpec documents_of(const BatchShape& shape);

/// What a unit keeps and needs for one micro-batch.
struct UnitValues {
  TensorSpec output;  ///< boundary to the next unit; empty shape for the last unit
  Slots saved;  ///< written by forward, read (and may be overwritten) by backward
  Slots forward_work;  ///< scratch of forward and recompute
  Slots backward_work;  ///< scratch of backward
  // If backward has two halves (splits_backward):
  Slots deferred = {};  ///< written by backward_input, read by backward_weight
  std::vector<int> saved_for_weight = {};  ///< which of `saved` backward_weight reads too
  Slots input_work = {};  ///< scratch of backward_input
  Slots weight_work = {};  ///< scratch of backward_weight
};

/// One collective or message that a unit calls on its own tp or cp communicator.
struct TrafficRow {
  comm::UnitAxis axis;
  comm::Operation operation;
  at::ScalarType dtype;
  int64_t elements;  ///< all_gather: of the output; reduce_scatter, all_to_all: of the input; all_reduce, send,
                     ///< receive: of the tensor
  comm::ReduceOp op = {};  ///< for reductions
};

/// A unit's calls on its own communicators, in order; the engine allows no others.
struct UnitTraffic {
  std::vector<TrafficRow> forward, recompute, backward, backward_input, backward_weight;
};

/// A sum over supervised tokens that a unit writes beside the loss: its mean over the global batch counts `weight`
/// times in the loss.
struct Measure {
  std::string name;
  double weight = 0;
};

/// What the masks of dropout depend on, beside the module, the position and the column (model/dropout.h).
struct Randomness {
  bool active = false;  ///< false: nothing is dropped (evaluation)
  uint64_t step_key = 0;  ///< dropout_step_key()
  int64_t first_sequence = 0;  ///< of this micro-batch among the sequences of the global batch
};

/// Views handed to a unit: parameters in its order, values by slot.
struct UnitTensors {
  std::vector<at::Tensor> parameters;
  std::vector<at::Tensor> gradients;  ///< undefined if the parameter is frozen
  std::vector<bool> accumulate;  ///< per gradient: add to it instead of overwriting; empty: overwrite all
  at::Tensor input;  ///< the output of the unit before; undefined for the first unit
  at::Tensor output;
  at::Tensor d_boundary;  ///< holds d_output when backward starts; d_input overwrites it
  at::Tensor d_output;  ///< view of d_boundary in the output's shape; undefined for the last unit
  std::vector<at::Tensor> saved;
  std::vector<at::Tensor> deferred;
  std::vector<at::Tensor> work;
  at::Tensor tokens;  ///< [local tokens] int64
  at::Tensor targets;  ///< [local tokens] int64, -100: not supervised
  at::Tensor document_starts;  ///< [B*S] int64, of whole sequences; undefined: attention does not end at documents
  at::Tensor position_ids;  ///< [local tokens] int64; undefined: positions count from the sequence's start
  const int64_t* text_length = nullptr;  ///< of the micro-batch's longest text, on every rank; null: the sequence's
  at::Tensor loss_sum;  ///< [1] float64, written by the last unit; over all T tokens, on every tp rank. In the forward
                        ///< of a unit with measures: these, likewise; of the last unit behind the loss
  double loss_scale = 1;  ///< gradient of loss_sum: 1 / supervised tokens of the global batch
  BatchShape shape;
  int micro_batch = 0;  ///< of the step
  Randomness random;
  comm::UnitCommunicators ranks;
  const NewTokens* new_tokens = nullptr;  ///< of generation
  at::Tensor k_pages, v_pages;  ///< [pages, ops::kAttentionPage, Unit::cache_width()]

  int64_t longest_text() const { return text_length != nullptr ? *text_length : shape.sequence; }

  /// Where the gradient of parameter `index` goes. With `accumulate`, that memory already holds gradients of other
  /// units or earlier micro-batches. So a gradient that must first be summed over ranks is computed elsewhere.
  ops::Gradient gradient(size_t index) const {
    return {gradients[index], index < accumulate.size() && accumulate[index]};
  }
};

/// Bytes that one micro-batch of a unit takes in LibTorch's allocator, outside planned memory.
struct AllocatorMemory {
  int64_t graph_bytes = 0;  ///< kept from forward to backward: what autograd saved, and the output
  int64_t work_bytes = 0;  ///< in addition, at the peak of forward or backward
};

class Unit {
 public:
  virtual ~Unit() = default;
  virtual std::string name() const = 0;
  virtual const std::vector<ParameterSpec>& parameters() const = 0;
  virtual UnitValues values(const BatchShape& shape, const Precision& precision) const = 0;

  /// Computes `output` and `saved`; the last unit computes loss_sum. With `new_tokens`, a run of generation: one
  /// sequence of rows, whose `output` is the logits of some rows in the last unit.
  virtual void forward(UnitTensors& t) const = 0;
  /// Computes the slots `which` of `saved` (ascending) again; the other slots still hold what forward wrote. Does not
  /// write `output`.
  virtual void recompute(UnitTensors& t, const std::vector<int>& which) const = 0;
  /// Names in `saved` that selective recomputation can choose; empty: all or none.
  virtual std::vector<std::string> recomputable() const { return {}; }
  /// Writes the defined `gradients`, in the dtype Precision::gradient(). Overwrites d_output in d_boundary with
  /// d_input.
  virtual void backward(UnitTensors& t) const = 0;
  /// True if the unit has the two halves below; otherwise the whole backward runs in place of the input half.
  virtual bool splits_backward() const { return false; }
  /// Overwrites d_output in d_boundary with d_input; writes `deferred`, but no gradient of a parameter.
  virtual void backward_input(UnitTensors&) const {}
  /// Writes `gradients` from `deferred` and saved_for_weight; reads neither parameters nor boundaries.
  virtual void backward_weight(UnitTensors&) const {}
  virtual UnitTraffic traffic(const BatchShape&, const Precision&) const { return {}; }
  /// The calls of recompute(t, which).
  virtual std::vector<TrafficRow> traffic_of_recompute(const BatchShape& shape, const Precision& precision,
                                                       const std::vector<int>& /*which*/) const {
    return traffic(shape, precision).recompute;
  }

  /// Whether backward reads parameter `index` too.
  virtual bool reads_in_backward(int /*index*/) const { return true; }
  /// True if the unit reads document_starts, position_ids or text_length.
  virtual bool reads_documents() const { return false; }
  /// True if the unit reads targets too, which the last unit always does.
  virtual bool reads_targets() const { return false; }
  /// What forward writes to loss_sum; the last unit writes the loss first.
  virtual std::vector<Measure> measures() const { return {}; }
  /// True for the head: backward computes the loss too, so training needs no forward for it.
  virtual bool backward_includes_forward() const { return false; }
  /// Floating-point operations of one forward on this rank; backward has twice as many.
  virtual double forward_flops(const BatchShape& shape) const = 0;
  /// The layer that parameter `index` belongs to, if a unit has several.
  virtual std::string layer_of(int /*index*/) const { return name(); }
  virtual bool runs_on_gpu() const { return true; }
  /// True where autograd keeps references to the inputs and weights of a forward pass until its backward pass.
  virtual bool keeps_references() const { return false; }

  /// Elements of keys that generation keeps for each token; it keeps as many elements of values.
  virtual int64_t cache_width() const { return 0; }
  /// The values of a run of generation, in which nothing is saved: output and forward_work.
  /// Errors    UsageError if the unit cannot generate
  virtual UnitValues generation_values(const GenerationShape& shape, const Precision& precision) const;
  virtual std::vector<TrafficRow> generation_traffic(const GenerationShape& shape, const Precision& precision) const;

  // Only wrapped modules (wrapped_unit.h) have memory outside the plan.
  virtual AllocatorMemory allocator_memory() const { return {}; }
  /// False: evaluation mode, in which forward keeps nothing for a backward. True: back to the modes before.
  virtual void train(bool /*training*/) const {}
  /// If false, forward runs again before backward, so the first forward keeps nothing.
  virtual void keep_graphs(bool /*keep*/) const {}
  /// The parameters' values when the model was built, or what the module has been given since, until release(); null
  /// for built-in units.
  virtual const std::vector<at::Tensor>* initial() const { return nullptr; }
  /// Frees these values, and what an error in a step has left. The module's parameters then have no memory until the
  /// next action or own(): who reads them gets an error of LibTorch with a sentence.
  virtual void release() const {}
  /// Gives the module's parameter `index` memory of its own with a copy of `value`, until the next action.
  virtual void own(int /*index*/, const at::Tensor& /*value*/) const {}
  /// Called before the engine's memory is freed: parameters that lie there have none from then on.
  virtual void end_memory() const {}
  /// Values of the module that are no parameters, and that a forward may change. Each rank has its own.
  virtual std::vector<at::Tensor> buffers() const { return {}; }
  /// A hash of the frozen parameters that all ranks hold alike.
  virtual uint64_t frozen_values() const { return 0; }
};

/// The slots of `saved`, ascending, that recompute() must compute if the values in `names` are not kept: these values
/// and what is computed together with them, such as statistics (unit.cpp). No names: all of `saved`.
///
/// Errors    UsageError with the possible names; a unit that saves nothing accepts every name
std::vector<int> recompute_set(const Unit& unit, const BatchShape& shape, const Precision& precision,
                               const std::vector<std::string>& names);

}  // namespace trireme::model
