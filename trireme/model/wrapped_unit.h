// WrappedUnit: runs a part's forward under autograd and keeps one graph for each micro-batch. The micro-batch's
// backward copies the gradients into planned memory and frees the graph.
//
// Autograd saves the module's parameters and views of them, so these tensors are never replaced. Instead, the address
// in their storage is set before each action. So saved views read the weight's present memory, also when the weight was
// gathered again to another place. Between the steps of a Trainer and after the engine's end there is no such memory:
// then the storage refuses to be read, with a sentence.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "trireme/model/wrap.h"

namespace trireme::model {

/// Counts this thread's allocations from LibTorch's CPU allocator during its life, by the hook of LibTorch's profiler.
class AllocationWatch {
 public:
  int64_t live() const { return count_->live; }  ///< bytes; freeing older memory does not count
  int64_t peak() const { return count_->peak; }  ///< largest live() so far

 private:
  struct Count : c10::MemoryReportingInfoBase {
    int64_t live = 0, peak = 0;
    void reportMemoryUsage(void*, int64_t bytes, size_t, size_t, c10::Device) override {
      live += bytes;
      peak = std::max(peak, live);
    }
    bool memoryProfilingEnabled() const override { return true; }
  };
  std::shared_ptr<Count> count_ = std::make_shared<Count>();
  c10::DebugInfoGuard guard_{c10::DebugInfoKind::PROFILER_STATE, count_};
};

/// Names of parameters, by their TensorImpl.
using ParameterNames = std::map<const void*, std::string>;

class WrappedUnit : public Unit {
 public:
  /// `specs` describe `part.parameters`. Gives each parameter its own storage and converts the module to `compute`.
  /// `ranks`: those of the parallel layers; null without mesh.tp.
  WrappedUnit(Wrapped part, std::vector<ParameterSpec> specs, at::ScalarType compute, TensorRanksPtr ranks);

  /// The tensors, by TensorImpl, of which ranks of mesh.tp hold parts of their own.
  void know_divided(std::set<const void*> divided) { divided_ = std::move(divided); }
  /// Runs the part once; returns its output (of the last part: the loss) and stores its shape and memory. `names`: the
  /// trainable parameters of all parts.
  /// Errors    UsageError if the part computes with a parameter that it does not register
  at::Tensor probe(const Example& example, bool first, const ParameterNames& names);
  /// The parameters that probe()'s output was computed from, by autograd.
  const std::set<std::string>& reached() const { return reached_; }
  /// Buffers in two bytes that forward changes, such as BatchNorm's statistics.
  std::vector<std::string> rounded_statistics() const;
  /// Whether a gradient of its output becomes one of its input.
  bool passes_gradients() const { return passes_gradients_; }

  std::string name() const override { return part_.name; }
  const std::vector<ParameterSpec>& parameters() const override { return specs_; }
  /// Errors    UsageError if the precision is not the one that the model was built with
  UnitValues values(const BatchShape& shape, const Precision& precision) const override;
  void forward(UnitTensors& t) const override;
  void recompute(UnitTensors& t, const std::vector<int>& which) const override;
  void backward(UnitTensors& t) const override;
  bool backward_includes_forward() const override { return is_loss(); }
  /// Two operations for each element of each matrix and each row of the output. That is good enough to cut a pipeline
  /// if matrix products dominate; otherwise set pipeline.split.
  double forward_flops(const BatchShape& shape) const override;
  /// As probe() recorded.
  UnitTraffic traffic(const BatchShape& shape, const Precision& precision) const override;

  bool runs_on_gpu() const override { return false; }
  bool keeps_references() const override { return true; }
  /// As probe() measured.
  AllocatorMemory allocator_memory() const override { return memory_; }
  void train(bool training) const override;
  void keep_graphs(bool keep) const override { keeps_graphs_ = keep; }
  const std::vector<at::Tensor>* initial() const override;
  void release() const override;
  void own(int index, const at::Tensor& value) const override;
  void end_memory() const override;
  std::vector<at::Tensor> buffers() const override;
  uint64_t frozen_values() const override;

 private:
  struct Graph {
    at::Tensor input, output;
    int64_t serial = 0;  ///< also in the planned value "graph": backward checks that the graph is of its own forward
  };

  using WeakTensor = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;

  bool is_loss() const { return part_.loss != nullptr; }
  std::vector<WeakTensor> strange_leaves(const Graph& graph, const ParameterNames& names);  // and fills reached_
  void bind(const UnitTensors& t) const;
  std::vector<int64_t> versions() const;
  void refuse_draws() const;
  void check_unchanged() const;
  void check_kind(size_t i) const;
  void check_registered() const;
  void note_changes(const std::vector<int64_t>& before, bool buffers_differ = false) const;
  at::Tensor input_of(const UnitTensors& t) const;
  Graph build(const UnitTensors& t) const;
  Graph build_again(const UnitTensors& t) const;
  Graph build_with_first_numbers(const UnitTensors& t) const;
  void keep(UnitTensors& t, Graph graph) const;
  std::vector<at::Tensor> gradients(const Graph& graph, const at::Tensor& incoming) const;
  void sum_replicated(std::vector<at::Tensor>& gradients) const;
  void write_gradients(UnitTensors& t, const Graph& graph, const at::Tensor& incoming) const;
  void check_output(const at::Tensor& output) const;

  Wrapped part_;
  size_t count_ = 0;  // of the module's parameters
  std::vector<ParameterSpec> specs_;
  std::vector<at::Tensor> parameters_;  // the module's own
  at::ScalarType compute_;
  std::vector<int64_t> output_shape_;
  AllocatorMemory memory_;
  TensorRanksPtr ranks_;
  std::set<const void*> divided_;
  std::vector<TrafficRow> forward_rows_, backward_rows_;
  bool changes_input_ = false;  // in place
  std::set<std::string> reached_;
  bool passes_gradients_ = false;
  mutable std::vector<at::Tensor> initial_;
  mutable std::map<int, Graph> graphs_;  // by micro-batch
  mutable std::map<int, at::Tensor> random_states_;  // by micro-batch, if forward drew and kept no graph
  mutable std::vector<at::Tensor> changing_;  // buffers and frozen parameters that a forward may change
  mutable bool training_ = true, keeps_graphs_ = true;
  mutable int64_t serial_ = 0;
};

}  // namespace trireme::model
