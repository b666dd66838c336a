// The groups of ranks that a step meets in, as communicators: one for each queue, because each is first-in
// first-out.
#pragma once

#include <functional>
#include <map>

#include "trireme/comm/factory.h"
#include "trireme/plan/step_plan.h"

namespace trireme::engine {

struct Communicators {
  comm::CommunicatorPtr world;            ///< barriers, checkpoints, the gradient's norm: tensors on the host
  comm::CommunicatorPtr gather;           ///< Unshard
  comm::CommunicatorPtr reduce;           ///< ReduceGradient
  comm::CommunicatorPtr replicas;         ///< the shard's gradient over copies of the state
  comm::CommunicatorPtr loss;
  comm::CommunicatorPtr stages[2];        ///< messages along the pipeline, by lane
  comm::CommunicatorPtr tp, cp;           ///< inside units
  std::map<int, comm::CommunicatorPtr> tied;  ///< by group: its replicas on several pipeline stages
  comm::CommunicatorPtr debug;            ///< the ranks of `gather`; only with poison
  std::shared_ptr<comm::FlightRecorder> recorder;  ///< of all of them; null: nothing is recorded
};

/// Collective over all ranks of the mesh; `options` gives backend, store and timeouts (name, rank, size and
/// global_ranks are set here; on_device holds for all but the world, bf16_sums for the groups that sum gradients).
/// Errors    CommError naming the ranks that have not joined
Communicators connect(const plan::StepPlan& plan, const comm::GroupOptions& options, bool poison = false);

}  // namespace trireme::engine
