// WrappedUnit: runs a part's forward under autograd and keeps the graph in a table by micro-batch until the backward
// of that micro-batch, which copies the gradients into planned memory.
//
// The module's parameters never change as tensors, because autograd saves them and views of them: what changes is the
// address in their storage, set before each action. A weight that was gathered again, to another place, is then what
// the saved view reads.
#pragma once

#include <map>

#include "trireme/model/wrap.h"

namespace trireme::model {

/// What one micro-batch of a unit takes in LibTorch's allocator, measured.
struct AutogradMemory {
  int64_t graph_bytes = 0;  ///< from forward to backward: what autograd saved, and the output
  int64_t work_bytes = 0;   ///< more than that, at the highest point of forward or backward
};

class WrappedUnit : public Unit {
 public:
  /// `specs` and `part.parameters` correspond. Gives the parameters storages of their own and converts the module.
  WrappedUnit(Wrapped part, std::vector<ParameterSpec> specs, at::ScalarType compute);

  /// Runs the part once; returns its output (the loss, of the last part) and remembers shape and memory.
  at::Tensor probe(const Example& example, bool first);

  std::string name() const override { return part_.name; }
  const std::vector<ParameterSpec>& parameters() const override { return specs_; }
  /// Errors    UsageError when the precision is not the one that the model was built with
  UnitValues values(const BatchShape& shape, const Precision& precision) const override;
  void forward(UnitTensors& t) const override;
  void recompute(UnitTensors& t, const std::vector<int>& which) const override;
  void backward(UnitTensors& t) const override;
  bool backward_includes_forward() const override { return is_loss(); }
  /// Two operations an element of each matrix and row of the output: good enough to cut a pipeline where matrices do
  /// the work. Set pipeline.split where they do not.
  double forward_flops(const BatchShape& shape) const override;

  const AutogradMemory& memory() const { return memory_; }
  /// The modules' values when the model was built, by parameter; empty after release_initial().
  const std::vector<at::Tensor>& initial() const { return initial_; }
  /// Frees them, and with them what the parameters hold until the next action or own().
  void release_initial() const;
  /// Gives parameter `index` memory of its own that holds `value`, until the next action.
  void own(int index, const at::Tensor& value) const;
  /// false: the module's evaluation mode; forward keeps nothing for a backward.
  void train(bool training) const;
  /// false: the plan runs forward again before backward, so the first one keeps nothing.
  void keep_graphs(bool keep) const { keeps_graphs_ = keep; }

 private:
  struct Graph {
    at::Tensor input, output;
    int64_t serial = 0;  ///< also in the planned value `graph`: the backward proves that it belongs to this forward
  };

  bool is_loss() const { return part_.loss != nullptr; }
  void bind(const UnitTensors& t) const;
  Graph build(const UnitTensors& t) const;
  Graph build_again(const UnitTensors& t) const;
  void keep(UnitTensors& t, Graph graph) const;
  std::vector<at::Tensor> gradients(const Graph& graph, const at::Tensor& incoming) const;
  void write_gradients(UnitTensors& t, const Graph& graph, const at::Tensor& incoming) const;
  void check_output(const at::Tensor& output) const;

  Wrapped part_;
  std::vector<ParameterSpec> specs_;
  std::vector<at::Tensor> parameters_;  // the module's own
  at::ScalarType compute_;
  std::vector<int64_t> output_shape_;
  AutogradMemory memory_;
  bool draws_ = false;                  // random numbers, in forward
  mutable std::vector<at::Tensor> initial_;
  mutable std::map<int, Graph> graphs_;              // by micro-batch
  mutable std::map<int, at::Tensor> random_states_;  // by micro-batch, where forward draws
  mutable bool training_ = true, keeps_graphs_ = true;
  mutable int64_t serial_ = 0;
};

}  // namespace trireme::model
