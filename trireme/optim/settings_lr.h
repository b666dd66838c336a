// Settings of the learning rate's schedules. Which schedule a run has is train.lr_decay, its warm-up
// train.lr_warmup_steps and its end train.min_lr. This section has what only some schedules know, with the defaults of
// the system that each schedule comes from. A setting that the chosen schedule does not read is refused.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "trireme/config/declaration.h"

namespace trireme::optim {

/// How the learning rate goes after the warm-up, or, for schedules with names of classes, over the whole run.
enum class LrDecay {
  cosine,
  linear,
  constant,
  wsd,               ///< warm-up, stable, decay: constant until the last lr_schedule.decay_steps (Hu et al., 2024)
  polynomial,        ///< transformers' get_polynomial_decay_schedule_with_warmup
  inverse_sqrt,      ///< transformers' get_inverse_sqrt_schedule
  one_cycle_lr,      ///< torch.optim.lr_scheduler.OneCycleLR
  one_cycle,         ///< DeepSpeed's OneCycle
  lr_range_test,     ///< DeepSpeed's LRRangeTest
  warmup_lr,         ///< DeepSpeed's WarmupLR
  warmup_decay_lr,   ///< DeepSpeed's WarmupDecayLR
  warmup_cosine_lr,  ///< DeepSpeed's WarmupCosineLR
};
std::span<const config::Choice<LrDecay>> choices_of(LrDecay);

/// The shape of a rise or of a descent. With x from 0 to 1, a rise is at:
enum class LrShape {
  linear,          ///< x
  cosine,          ///< (1 - cos pi x) / 2
  one_minus_sqrt,  ///< 1 - sqrt(1 - x); a descent is at 1 - sqrt(x), not at the rise turned round
  log,             ///< a rise only: the logarithm of the step over that of the last step of the rise
  exponential,     ///< a descent only: 2 * 0.5^x - 1
};
std::span<const config::Choice<LrShape>> choices_of(LrShape);

struct LrScheduleSettings {
  int64_t first_step = 1;
  double warmup_from = 0;
  std::optional<LrShape> warmup_shape, decay_shape;
  std::optional<int64_t> decay_steps, timescale;
  std::optional<double> power, pct_start, div_factor, final_div_factor;
  std::optional<bool> three_phase, staircase;
  std::optional<double> cycle_min_lr, decay_lr_rate, step_rate;
  std::optional<int64_t> step_size, second_step_size, first_stair_count, second_stair_count, decay_step_size;
  bool operator==(const LrScheduleSettings&) const = default;
};
config::Section section(LrScheduleSettings& settings);

/// Refuses settings that `decay` does not read, and shapes that it does not have.
void check_schedule(LrDecay decay, const LrScheduleSettings& settings, config::Problems& problems);

/// What train.lr_warmup_steps and train.min_lr mean if they are not given. `peak` is the highest rate.
int64_t default_warmup_steps(LrDecay decay);
double default_min_lr(LrDecay decay, double peak);

/// Whether lr_schedule.first_step counts: DeepSpeed's schedules and OneCycleLR count their steps in one way only.
bool reads_first_step(LrDecay decay);
/// Whether the schedule begins with a warm-up. The others rise by themselves.
bool warms_up(LrDecay decay);
/// Whether train.min_lr is the rate at which the schedule ends.
bool ends_at_min_lr(LrDecay decay);
/// Whether the schedule reads the number of the run's last step.
bool needs_end(LrDecay decay);

}  // namespace trireme::optim
