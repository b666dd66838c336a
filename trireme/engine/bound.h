// An action with its views of the arena.
#pragma once

#include "trireme/comm/flight_recorder.h"
#include "trireme/engine/engine.h"

namespace trireme::engine {

struct Engine::Bound {
  comm::ActionLabel label;
  model::UnitTensors unit;                     // computation
  const std::vector<model::TrafficRow>* rows = nullptr;
  std::vector<int> recomputed;                 // recompute
  std::vector<at::Tensor> gaps;                // bytes of gradients begun here that no unit writes
  at::Tensor input, output;                    // communication
  BatchTensors batch;                          // load_batch
  BatchTensors host_batch;                     // the same on the host, where the batch lies on a GPU
  std::vector<int64_t> counts;
  model::UnitTraffic traffic;
};

}  // namespace trireme::engine
