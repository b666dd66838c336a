// Launches that a GPU begins as a whole. Made by ops::cuda::Kernels::graph_maker.
#pragma once

#include <functional>
#include <memory>

namespace trireme::ops::cuda {

struct LaunchGraph {
  virtual ~LaunchGraph() = default;
  virtual void launch() const = 0;  ///< on this thread's current stream; the host does not wait
};

/// Makes graphs. Those of one maker share the memory that their launches allocate, so they run one after the other.
struct GraphMaker {
  virtual ~GraphMaker() = default;
  /// Calls `launch` on this thread. What it launches does not run, and becomes the graph.
  /// Errors    what `launch` throws; Error if it did something that a graph cannot hold, such as waiting for the GPU
  virtual std::unique_ptr<LaunchGraph> capture(const std::function<void()>& launch) = 0;
};

}  // namespace trireme::ops::cuda
