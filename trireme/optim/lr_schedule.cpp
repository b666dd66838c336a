#include "trireme/optim/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numbers>

namespace trireme::optim {
namespace {

using S = LrSchedule;

/// The share of a rise that is done, `x` of its way from 0 to 1. The logarithm is of steps: see deepspeeds_rise.
double risen(LrShape shape, double x) {
  switch (shape) {
    case LrShape::cosine:
      return 0.5 * (1 - std::cos(std::numbers::pi * x));
    case LrShape::one_minus_sqrt:
      return 1 - std::sqrt(1 - x);
    default:
      return x;
  }
}

/// The share of a descent that is left.
double left_of(LrShape shape, double x) {
  switch (shape) {
    case LrShape::cosine:
      return 0.5 * (1 + std::cos(std::numbers::pi * x));
    case LrShape::one_minus_sqrt:
      return 1 - std::sqrt(x);
    case LrShape::exponential:
      return 2 * std::pow(0.5, x) - 1;
    default:
      return 1 - x;
  }
}

/// DeepSpeed's `gamma` of iteration k < the steps of the warm-up.
double deepspeeds_rise(LrShape shape, double k, double steps) {
  return shape == LrShape::log ? std::log(k + 1) / std::log(steps) : k / steps;
}

double warm_up(const S& s, int64_t step) {
  const LrShape shape = s.settings.warmup_shape.value_or(LrShape::linear);
  const auto k = static_cast<double>(std::max<int64_t>(step, 0)), steps = static_cast<double>(s.warmup_steps);
  const double share = shape == LrShape::log ? std::log(k + 1) / std::log(steps + 1) : risen(shape, k / steps);
  return s.settings.warmup_from + (s.peak - s.settings.warmup_from) * share;
}

// Each formula is of step numbers after the warm-up. `left` goes from 1 to 0, so the rate goes from `peak` to `min`.

double descend(const S& s, int64_t step, LrShape shape) {
  if (step >= s.max_steps) return s.min;
  const double progress =
      static_cast<double>(step - s.warmup_steps) / static_cast<double>(s.max_steps - s.warmup_steps);
  const double left = left_of(shape, progress);
  return s.min + (s.peak - s.min) * left;
}
double cosine(const S& s, int64_t step) { return descend(s, step, LrShape::cosine); }
double linear(const S& s, int64_t step) { return descend(s, step, LrShape::linear); }
double constant(const S& s, int64_t) { return s.peak; }

double wsd(const S& s, int64_t step) {
  const int64_t steps = s.settings.decay_steps.value_or(std::max<int64_t>(1, s.max_steps / 10));
  const int64_t begin = std::max(s.warmup_steps, s.max_steps - steps);
  if (step <= begin) return s.peak;
  if (step >= s.max_steps) return s.min;
  const double x = static_cast<double>(step - begin) / static_cast<double>(s.max_steps - begin);
  return s.min + (s.peak - s.min) * left_of(s.settings.decay_shape.value_or(LrShape::cosine), x);
}

double polynomial(const S& s, int64_t step) {
  if (step >= s.max_steps) return s.min;
  const double progress =
      static_cast<double>(step - s.warmup_steps) / static_cast<double>(s.max_steps - s.warmup_steps);
  return s.min + (s.peak - s.min) * std::pow(1 - progress, s.settings.power.value_or(1));
}

double inverse_sqrt(const S& s, int64_t step) {
  const int64_t scale = s.settings.timescale.value_or(s.warmup_steps > 0 ? s.warmup_steps : 10'000);
  return s.peak / std::sqrt(static_cast<double>(step + scale - s.warmup_steps) / static_cast<double>(scale));
}

// The formulas below are of whole runs. Their iteration k is that of their sources.

/// torch.optim.lr_scheduler.OneCycleLR: k counts from 0.
double one_cycle_lr(const S& s, int64_t step) {
  const LrScheduleSettings& o = s.settings;
  const double k = std::min(static_cast<double>(step - 1), static_cast<double>(s.max_steps - 1));
  const double first = s.peak / o.div_factor.value_or(25), last = first / o.final_div_factor.value_or(1e4);
  const double rise = o.pct_start.value_or(0.3) * static_cast<double>(s.max_steps) - 1;
  const double end = static_cast<double>(s.max_steps - 1);
  const auto between = [&](double from, double to, double begin, double until) {
    const double x = until > begin ? (k - begin) / (until - begin) : 1;  // a run may have one step
    return to + (from - to) * left_of(o.decay_shape.value_or(LrShape::cosine), x);
  };
  if (k <= rise) return between(first, s.peak, 0, rise);
  if (!o.three_phase.value_or(false)) return between(s.peak, last, rise, end);
  if (k <= 2 * rise) return between(s.peak, first, rise, 2 * rise);
  return between(first, last, 2 * rise, end);
}

/// DeepSpeed's OneCycle: k counts from 0. Its stairs are those of the next release, which reaches the peak.
double one_cycle(const S& s, int64_t step) {
  const LrScheduleSettings& o = s.settings;
  const auto k = static_cast<double>(step - 1);
  const auto first = static_cast<double>(o.step_size.value_or(2000)),
             second = static_cast<double>(o.second_step_size.value_or(o.step_size.value_or(2000)));
  const double low = o.cycle_min_lr.value_or(s.peak / 10), total = first + second;
  if (k - 1 < total) {
    const double x = std::fmod(k, total);
    const bool rises = x <= first;
    const double share = rises ? x / first : (total - x) / second;
    const int64_t stairs =
        rises ? o.first_stair_count.value_or(0) : o.second_stair_count.value_or(o.first_stair_count.value_or(0));
    const auto count = static_cast<double>(stairs);
    return low + (s.peak - low) * (stairs > 0 ? std::floor(share * count) / count : share);
  }
  const auto size = static_cast<double>(o.decay_step_size.value_or(0));
  return size > 0 ? low / (1 + o.decay_lr_rate.value_or(0) * (k - total) / size) : low;
}

/// DeepSpeed's LRRangeTest; optimizer.lr is its lr_range_test_min_lr.
double lr_range_test(const S& s, int64_t step) {
  const double intervals = static_cast<double>(step - 1) / static_cast<double>(s.settings.step_size.value_or(2000));
  return s.peak * (1 + s.settings.step_rate.value_or(1) *
                           (s.settings.staircase.value_or(false) ? std::floor(intervals) : intervals));
}

/// DeepSpeed's warm-ups begin with two steps at their lowest rate: one before the schedule has started, one at k = 0.
double deepspeeds_warmup(const S& s, int64_t step, double after, double (*ends)(const S&, double k, double steps)) {
  const auto k = static_cast<double>(std::max<int64_t>(step - 2, 0)),
             steps = static_cast<double>(std::max<int64_t>(s.warmup_steps, 2));
  const double from = s.settings.warmup_from;
  if (k < steps)
    return from + (s.peak - from) * deepspeeds_rise(s.settings.warmup_shape.value_or(LrShape::log), k, steps);
  return after + (s.peak - after) * ends(s, k, steps);
}

double warmup_lr(const S& s, int64_t step) {
  return deepspeeds_warmup(s, step, 0, [](const S&, double, double) { return 1.0; });
}

double warmup_decay_lr(const S& s, int64_t step) {
  return deepspeeds_warmup(s, step, s.settings.warmup_from, [](const S& s, double k, double steps) {
    const auto total = static_cast<double>(s.max_steps);
    return std::max(0.0, (total - k) / std::max(1.0, total - steps));
  });
}

// Its first step, before the schedule has started, has rate 0.
double warmup_cosine_lr(const S& s, int64_t step) {
  if (step < 2) return 0;
  return deepspeeds_warmup(s, step, s.min, [](const S& s, double k, double steps) {
    const double progress = (k - steps + 1) / std::max(1.0, static_cast<double>(s.max_steps) - steps);
    return left_of(LrShape::cosine, std::min(1.0, progress));
  });
}

struct Row {
  LrDecay decay;
  double (*rate)(const S&, int64_t step);
  bool after_warmup;  ///< the formula is of the steps after a warm-up, which all such schedules share
};

constexpr Row kRows[] = {
    {LrDecay::cosine, cosine, true},
    {LrDecay::linear, linear, true},
    {LrDecay::constant, constant, true},
    {LrDecay::wsd, wsd, true},
    {LrDecay::polynomial, polynomial, true},
    {LrDecay::inverse_sqrt, inverse_sqrt, true},
    {LrDecay::one_cycle_lr, one_cycle_lr, false},
    {LrDecay::one_cycle, one_cycle, false},
    {LrDecay::lr_range_test, lr_range_test, false},
    {LrDecay::warmup_lr, warmup_lr, false},
    {LrDecay::warmup_decay_lr, warmup_decay_lr, false},
    {LrDecay::warmup_cosine_lr, warmup_cosine_lr, false},
};

constexpr bool rows_stand_in_order() {
  for (size_t i = 0; i < std::size(kRows); ++i)
    if (static_cast<size_t>(kRows[i].decay) != i) return false;
  return kRows[std::size(kRows) - 1].decay == LrDecay::warmup_cosine_lr;
}
static_assert(rows_stand_in_order(), "one row for each LrDecay, in the order of the enumerators");

}  // namespace

double LrSchedule::at(int64_t step) const {
  const Row& row = kRows[static_cast<size_t>(decay)];
  if (!row.after_warmup && (max_steps > 0 || !needs_end(decay))) return row.rate(*this, step);
  const int64_t number = step - 1 + settings.first_step;
  if (number <= warmup_steps && warmup_steps > 0) return warm_up(*this, number);
  return needs_end(decay) && max_steps == 0 ? peak : row.rate(*this, number);
}

}  // namespace trireme::optim
