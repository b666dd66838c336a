// Unit: the smallest piece of a model that is scheduled - the embedding, one decoder block, the head with its
// loss. A unit says as data what it needs (parameters, values for a batch shape) and computes over views of
// memory that somebody else planned: it never allocates, and nothing outlives a call except through its values.
//
// T below is the number of local tokens: micro_batch x sequence / cp; boundaries have T rows, under sequence
// parallelism T / tp.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "trireme/comm/collective.h"
#include "trireme/ops/ops.h"

namespace trireme::model {

/// The two dtypes of a run: what products run in, and what masters, moments and statistics are kept in.
struct Precision {
  at::ScalarType compute = at::kFloat;
  at::ScalarType state = at::kFloat;
  /// Units add the gradients of a step's micro-batches up where they lie, in the state dtype; otherwise they write
  /// each into a place of its own, in the compute dtype. The step's plan sets it.
  bool units_sum_gradients = false;
  bool on_gpu = false;  ///< units compute on a GPU, where attention takes no workspace of the plan
  at::ScalarType gradient() const { return units_sum_gradients ? state : compute; }
  bool operator==(const Precision&) const = default;
};

struct Initializer {
  enum class Kind { normal, ones, zeros } kind = Kind::normal;
  double stddev = 0.02;
};

/// Elements [begin, end) of one dimension.
struct Piece {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const Piece&) const = default;
};

/// What one rank holds of a parameter. On one tensor-parallel rank that is all of it.
struct ParameterSpec {
  std::string name;             ///< Hugging Face's
  std::vector<int64_t> shape;   ///< of what this rank holds, in Hugging Face's orientation
  Initializer init;
  bool decay = true;            ///< weight decay applies (matrices; not norms and biases)
  bool joined = false;          ///< lies without a gap behind the one before: both are one matrix to a product
  // Tensor parallel: `shape` is made of `pieces` of dimension `split_dim` of `full_shape`, one behind the other. A
  // piece may reach beyond the full dimension (a padded vocabulary): what lies there is zero, in no file, and stays.
  std::vector<int64_t> full_shape = {};  ///< empty: `shape`
  int split_dim = -1;                    ///< -1: every tensor-parallel rank holds all of it
  std::vector<Piece> pieces = {};
  bool counted = true;          ///< false where another tensor-parallel rank holds the same elements and counts them
  int64_t numel() const {
    int64_t n = 1;
    for (int64_t s : shape) n *= s;
    return n;
  }
  const std::vector<int64_t>& whole_shape() const { return full_shape.empty() ? shape : full_shape; }
};

/// Calls visit(local, full, count) for the runs of the held elements [begin, end) that lie next to each other in the
/// full parameter too: `local` and `full` are their first row-major indices. Padding is left out.
void for_each_run(const ParameterSpec& parameter, int64_t begin, int64_t end,
                  const std::function<void(int64_t local, int64_t full, int64_t count)>& visit);

/// This rank's place on the axes that divide a unit's own mathematics.
struct Parallel {
  enum class Context { ring, ulysses };
  int tp_rank = 0, tp_size = 1;
  bool sequence_parallel = false;   ///< between blocks each tensor-parallel rank keeps 1/tp of the tokens
  int cp_rank = 0, cp_size = 1;
  Context context = Context::ring;
  bool operator==(const Parallel&) const = default;
};

/// Positions in the whole sequence of the local_sequence = sequence / cp_size tokens that a context-parallel rank
/// holds: ring: chunks r and 2 cp - 1 - r of 2 cp; ulysses: the r-th part.
/// Errors    UsageError when the sequence does not divide so
std::vector<int64_t> context_positions(const Parallel& parallel, int64_t sequence);

/// A micro-batch of all context-parallel ranks together.
struct BatchShape {
  int64_t micro_batch = 1;
  int64_t sequence = 1;
  int64_t tokens() const { return micro_batch * sequence; }
  bool operator==(const BatchShape&) const = default;
};

struct TensorSpec {
  std::string name;
  std::vector<int64_t> shape;
  at::ScalarType dtype = at::kFloat;
  int64_t bytes() const;
};

/// What blocks are told of the documents that share a sequence. Neither: they see one text.
struct DocumentRequest {
  bool attention = false;  ///< a token sees those of its own document only
  bool positions = false;  ///< each document's positions begin at 0
  bool any() const { return attention || positions; }
  bool operator==(const DocumentRequest&) const = default;
};

/// Both facts of one micro-batch, int64 [2, B*S]: in row 0 the position at which each token's document begins in its
/// sequence, of whole sequences; in the first T places of row 1 the local tokens' positions in their documents.
TensorSpec documents_of(const BatchShape& shape);

/// What a unit keeps and needs for one micro-batch.
struct UnitValues {
  TensorSpec output;                        ///< boundary to the next unit; empty shape when there is none
  std::vector<TensorSpec> saved;            ///< written by forward, read (and may be overwritten) by backward
  std::vector<TensorSpec> forward_work;     ///< scratch of forward and recompute
  std::vector<TensorSpec> backward_work;    ///< scratch of backward
  // Where backward is split in two halves (splits_backward):
  std::vector<TensorSpec> deferred = {};    ///< written by backward_input, read by backward_weight
  std::vector<int> saved_for_weight = {};   ///< which of `saved` backward_weight reads too
  std::vector<TensorSpec> input_work = {};  ///< scratch of backward_input
  std::vector<TensorSpec> weight_work = {}; ///< scratch of backward_weight
};

/// One call of a unit on a communicator of its own, in the order of the calls.
struct TrafficRow {
  enum class Axis { tp, cp } axis;
  comm::Operation operation;
  at::ScalarType dtype;
  int64_t elements;   ///< all_reduce, send, receive: of the tensor; all_gather: of the output; reduce_scatter,
                      ///< all_to_all: of the input
  comm::ReduceOp op = {};  ///< of reductions
};

/// What a unit says on its own communicators; the engine lets nothing else pass.
struct UnitTraffic {
  std::vector<TrafficRow> forward, recompute, backward, backward_input, backward_weight;
};

/// Views handed to a unit, in the order in which it declared them.
struct UnitTensors {
  std::vector<at::Tensor> parameters;
  std::vector<at::Tensor> gradients;
  std::vector<bool> accumulate;  ///< per gradient: add to what it holds, do not overwrite; empty: none
  at::Tensor input;        ///< the boundary before; undefined for the first unit
  at::Tensor output;
  at::Tensor d_boundary;   ///< holds d_output when backward starts and d_input when it ends, same bytes
  at::Tensor d_output;     ///< the same bytes in the output's shape; undefined for the last unit
  std::vector<at::Tensor> saved;
  std::vector<at::Tensor> deferred;
  std::vector<at::Tensor> work;
  at::Tensor tokens;       ///< [local tokens] int64
  at::Tensor targets;      ///< [local tokens] int64, -100 where not supervised
  at::Tensor document_starts;  ///< [B*S] int64, of whole sequences; undefined: attention does not end at documents
  at::Tensor position_ids;     ///< [local tokens] int64; undefined: positions count from the sequence's start
  at::Tensor loss_sum;     ///< [1] float64, the last unit's; of the local tokens (all of the tp group's)
  double loss_scale = 1;   ///< gradient of loss_sum: 1 / supervised tokens of the global batch
  BatchShape shape;
  int micro_batch = 0;     ///< of the step
  comm::Communicator* tp = nullptr;  ///< of the tensor-parallel ranks; null when alone
  comm::Communicator* cp = nullptr;  ///< of the context-parallel ranks; null when alone

  /// Where the gradient of parameter `index` goes. With `accumulate` it holds what other units or earlier micro-batches
  /// put there, so what has to be summed over ranks first is made beside it.
  ops::Gradient gradient(size_t index) const {
    return {gradients[index], index < accumulate.size() && accumulate[index]};
  }
};

class Unit {
 public:
  virtual ~Unit() = default;
  virtual std::string name() const = 0;
  virtual const std::vector<ParameterSpec>& parameters() const = 0;
  virtual UnitValues values(const BatchShape& shape, const Precision& precision) const = 0;

  /// Computes `output` and `saved` (last unit: loss_sum).
  virtual void forward(UnitTensors& t) const = 0;
  /// Computes again those of `saved` that `which` names (by index, ascending); `output` is not written. The others
  /// hold what forward wrote.
  virtual void recompute(UnitTensors& t, const std::vector<int>& which) const = 0;
  /// Names in `saved` that selective recomputation may leave out of memory; empty: only all or none.
  virtual std::vector<std::string> recomputable() const { return {}; }
  /// Writes `gradients`, which are of Precision::gradient(), and turns d_boundary from d_output into d_input.
  virtual void backward(UnitTensors& t) const = 0;
  /// True when the two halves below exist; otherwise backward runs whole where its input half would stand.
  virtual bool splits_backward() const { return false; }
  /// Turns d_boundary from d_output into d_input; writes `deferred`, no gradient.
  virtual void backward_input(UnitTensors&) const {}
  /// Writes `gradients` from `deferred` and saved_for_weight; reads neither parameters nor boundaries.
  virtual void backward_weight(UnitTensors&) const {}
  virtual UnitTraffic traffic(const BatchShape&, const Precision&) const { return {}; }
  /// What recompute says when it is asked for `which` alone.
  virtual std::vector<TrafficRow> traffic_of_recompute(const BatchShape& shape, const Precision& precision,
                                                       const std::vector<int>& /*which*/) const {
    return traffic(shape, precision).recompute;
  }

  virtual bool reads_parameters_in_backward() const { return true; }
  /// True when the unit looks at document_starts or position_ids.
  virtual bool reads_documents() const { return false; }
  /// True for the head: backward computes the loss too, so that training lays down no forward for it.
  virtual bool backward_includes_forward() const { return false; }
  /// Multiply-add pairs x 2 of one forward on this rank; the costs of backward are twice that.
  virtual double forward_flops(const BatchShape& shape) const = 0;
};

/// Indices in `saved`, ascending, of what recompute(t, which) shall compute again when the values of these names are
/// not kept: with each what is made beside it, statistics above all (unit.cpp). No names: all of `saved`.
///
/// Errors    UsageError naming the names that are possible; a unit that saves nothing accepts every name
std::vector<int> recompute_set(const Unit& unit, const BatchShape& shape, const Precision& precision,
                               const std::vector<std::string>& names);

}  // namespace trireme::model
