// Times steps of training on this rank's own thread: by cause and by kind of action. --predict, --profile and `bench
// train` read the same figures.
#pragma once

#include "trireme/base/meter.h"
#include "trireme/base/stopwatch.h"
#include "trireme/engine/engine.h"
#include "trireme/observe/step_time.h"

namespace trireme::observe {

class StepWatch {
 public:
  explicit StepWatch(const engine::Engine& engine);
  /// What has passed since the construction. The last step of the engine is the one that is timed.
  StepTime read() const;

 private:
  const engine::Engine& engine_;
  base::ActivitySeconds before_;
  double background_;
  base::Stopwatch watch_;
};

}  // namespace trireme::observe
