#include "trireme/optim/loss_scale.h"

#include <algorithm>

namespace trireme::optim {
namespace {

constexpr double kLargest = 0x1p127;  // of float32, in which gradients are summed

}  // namespace

LossScale::LossScale(const LossScaleOptions& options)
    : options_(options), state_{.scale = options.initial, .overflows_left = options.hysteresis} {}

void LossScale::update(bool overflowed) {
  state_.skipped += overflowed;
  if (!options_.dynamic) {
    in_a_row_ = overflowed ? in_a_row_ + 1 : 0;
    exhausted_ = in_a_row_ >= kMostInARow;
    return;
  }
  const bool torch = options_.rule == model::ScaleRule::torch;
  if (overflowed) {
    state_.good_steps = 0;
    if (!torch && state_.overflows_left > 1) {
      --state_.overflows_left;
      return;
    }
    exhausted_ = state_.scale <= options_.minimum;
    state_.scale = std::max(state_.scale / 2, options_.minimum);
    return;
  }
  if (!torch && options_.consecutive_hysteresis) state_.overflows_left = options_.hysteresis;
  // PyTorch counts this step before it compares, DeepSpeed after.
  const bool grows = torch ? ++state_.good_steps >= options_.window  // more, where a resume has a smaller window
                           : state_.good_steps > 0 && state_.good_steps % options_.window == 0;
  if (!torch) ++state_.good_steps;
  if (!grows) return;
  if (torch)
    state_.good_steps = 0;
  else if (!options_.consecutive_hysteresis)
    state_.overflows_left = options_.hysteresis;
  state_.scale = std::min(state_.scale * 2, kLargest);
}

void LossScale::restore(const LossScaleState& state) {
  if (state.scale == 0) {
    *this = LossScale(options_);
    return;
  }
  exhausted_ = false;
  in_a_row_ = 0;
  const double scale = options_.dynamic ? std::max(state.scale, options_.minimum) : options_.initial;
  state_ = state;
  state_.scale = scale;
  state_.overflows_left = std::clamp<int64_t>(state.overflows_left, 1, options_.hysteresis);
}

LossScaleOptions loss_scale_options(const model::PrecisionSettings& s) {
  const bool torch = s.scale_rule == model::ScaleRule::torch;
  return {.rule = s.scale_rule,
          .dynamic = !s.loss_scale,
          .initial = s.loss_scale.value_or(s.initial_loss_scale),
          .window = s.loss_scale_window.value_or(torch ? 2000 : 1000),
          .hysteresis = s.loss_scale_hysteresis.value_or(torch ? 1 : 2),
          .consecutive_hysteresis = s.consecutive_hysteresis,
          .minimum = s.min_loss_scale};
}

}  // namespace trireme::optim
