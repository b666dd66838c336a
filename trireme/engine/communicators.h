// The communicators (process groups) of a step. Each queue has its own, because a communicator is first-in first-out.
#pragma once

#include <map>

#include "trireme/comm/factory.h"
#include "trireme/plan/step_plan.h"

namespace trireme::engine {

struct Communicators {
  comm::CommunicatorPtr world;  ///< barriers, checkpoints, the gradient's norm; host tensors, also on a GPU
  comm::CommunicatorPtr gather;  ///< Unshard
  comm::CommunicatorPtr reduce;  ///< ReduceGradient
  comm::CommunicatorPtr replicas;  ///< the shard's gradient over copies of the state
  comm::CommunicatorPtr loss;
  comm::CommunicatorPtr stages[2];  ///< messages along the pipeline, by lane
  comm::PerUnitAxis<comm::CommunicatorPtr> inside;  ///< ranks that divide a unit
  std::map<int, comm::CommunicatorPtr> tied;  ///< by group: the pipeline stages that hold it
  comm::CommunicatorPtr debug;  ///< the ranks of `reduce`; only with EngineOptions::poison
  std::shared_ptr<comm::FlightRecorder> recorder;  ///< of all communicators; null: nothing is recorded
};

/// Connects all ranks of the mesh; collective. `options` gives backend, store and timeouts. Its name, rank, size and
/// global_ranks are set here; on_device applies to all groups except `world`, bf16_sums to those that sum gradients.
/// `world`: that of connect_world, if the ranks have met before; null: it is made here.
/// Errors    CommError naming the ranks that have not joined
Communicators connect(const plan::StepPlan& plan, const comm::GroupOptions& options, bool poison = false,
                      comm::CommunicatorPtr world = nullptr);

/// The world alone, for ranks that compare something before they connect the rest. Collective.
comm::CommunicatorPtr connect_world(const plan::StepPlan& plan, const comm::GroupOptions& options);

}  // namespace trireme::engine
