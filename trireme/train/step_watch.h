// Times steps of training on this rank's own thread: by cause and by kind of action. --predict, --profile and `bench
// train` read the same figures.
#pragma once

#include "trireme/base/meter.h"
#include "trireme/base/stopwatch.h"
#include "trireme/train/session.h"
#include "trireme/train/step_time.h"

namespace trireme::train {

class StepWatch {
 public:
  explicit StepWatch(const Session& session);
  /// What has passed since the construction. The last step of the session's engine is the one that is timed.
  StepTime read() const;

 private:
  const Session& s_;
  base::ActivitySeconds before_;
  double background_;
  base::Stopwatch watch_;
};

}  // namespace trireme::train
