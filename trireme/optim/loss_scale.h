// The scale of a loss whose gradients are halves (float16). Scaled gradients do not vanish below 6e-8. If one of them
// overflows, the step is skipped and the scale falls; after many good steps it grows again.
//
// The scale is always a power of two, so that dividing by it rounds nothing and `reduce: ordered` keeps its bits. The
// two rules count differently: PyTorch counts good steps since the last change, DeepSpeed counts all steps since the
// last overflow, so that its scale grows one step later.
//
// Source    PyTorch, aten/src/ATen/native/cuda/AmpKernels.cu (amp_update_scale) and torch/amp/grad_scaler.py;
//           DeepSpeed, deepspeed/runtime/fp16/loss_scaler.py
#pragma once

#include <cstdint>

#include "trireme/model/settings.h"

namespace trireme::optim {

struct LossScaleOptions {
  model::ScaleRule rule = model::ScaleRule::torch;
  bool dynamic = true;  ///< false: the scale stays `initial`, and steps whose gradients overflow are skipped
  double initial = 65536;
  int64_t window = 2000;  ///< good steps before the scale doubles
  int64_t hysteresis = 1;  ///< overflows before the scale halves; deepspeed
  bool consecutive_hysteresis = false;  ///< a good step forgets earlier overflows; deepspeed
  double minimum = 1;
};

/// What a checkpoint keeps.
struct LossScaleState {
  double scale = 0;  ///< 0: none was saved
  int64_t good_steps = 0;  ///< torch: since the scale changed; deepspeed: since the last overflow
  int64_t overflows_left = 1;  ///< deepspeed: before the scale halves
  int64_t skipped = 0;  ///< steps of the whole run
  bool operator==(const LossScaleState&) const = default;
};

class LossScale {
 public:
  explicit LossScale(const LossScaleOptions& options);

  /// Counts a step: whether its gradients had an element that is not finite.
  void update(bool overflowed);
  /// Steps in a row that a static scale may skip.
  static constexpr int64_t kMostInARow = 20;
  /// True if the scale would have had to fall below its minimum, or if a static one has skipped kMostInARow steps in a
  /// row: no loss scale will do, or another one is needed.
  bool exhausted() const { return exhausted_; }

  double scale() const { return state_.scale; }
  int64_t skipped() const { return state_.skipped; }
  const LossScaleState& state() const { return state_; }
  /// Goes on from a checkpoint's state; a scale below the minimum rises to it. A static scale keeps its value, and
  /// takes over only the skipped steps. Without a saved state it begins anew.
  void restore(const LossScaleState& state);
  const LossScaleOptions& options() const { return options_; }

 private:
  LossScaleOptions options_;
  LossScaleState state_;
  bool exhausted_ = false;
  int64_t in_a_row_ = 0;  ///< skipped steps, of a static scale; not in checkpoints
};

/// The options that settings describe; windows and hysteresis have the defaults of the rule.
LossScaleOptions loss_scale_options(const model::PrecisionSettings& settings);

}  // namespace trireme::optim
