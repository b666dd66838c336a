// A GPU's launches of a step as CUDA graphs. Addresses of the arena never change, so what a step launched once can be
// launched again at once, instead of kernel by kernel.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "trireme/ops/cuda/graph.h"
#include "trireme/schedule/schedule.h"

namespace trireme::engine {

/// Actions [begin, end) of a list.
struct GraphPart {
  int begin, end;
  bool operator==(const GraphPart&) const = default;
};

/// The longest rows of actions of which `only_launches` is true. What completes before an action of a row,
/// unless it only launches too, ends the row there: the host waits for it.
/// Cost      linear in the actions
std::vector<GraphPart> graph_parts(const schedule::Schedule& list,
                                   const std::function<bool(const schedule::Action&)>& only_launches);

/// The graphs of a list's parts.
class StepGraphs {
 public:
  /// What the launches of a part depend on, beside the list.
  struct Inputs {
    double loss_scale = 0;  ///< with the number of tokens that divides the loss
    int used_micro_batches = 0;
    bool operator==(const Inputs&) const = default;
  };

  StepGraphs(std::shared_ptr<ops::cuda::GraphMaker> maker, const std::vector<GraphPart>& parts);

  /// The end of the part that begins at `action`; 0: none does.
  int end_of(int action) const;

  /// Runs the part that begins at `action`. The first time, and whenever `inputs` differ from those of the last time,
  /// it calls `launch`; the second time it makes a graph of what `launch` launches; from then on it launches the graph.
  /// A part that cannot be a graph is told once, and runs by `launch`.
  void run(int action, const Inputs& inputs, const std::function<void()>& launch);

  int parts() const { return static_cast<int>(kept_.size()); }
  int captured() const { return captured_; }  ///< graphs made so far

 private:
  struct Kept {
    int end;
    bool refused = false;
    bool has_run = false;
    Inputs inputs = {};  ///< of the last time
    std::unique_ptr<ops::cuda::LaunchGraph> graph = {};
  };
  std::shared_ptr<ops::cuda::GraphMaker> maker_;
  std::map<int, Kept> kept_;  ///< by the part's first action
  int captured_ = 0;
  bool told_ = false;
};

}  // namespace trireme::engine
