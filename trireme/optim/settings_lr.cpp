#include "trireme/optim/settings_lr.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "trireme/base/text.h"
#include "trireme/config/problems.h"

namespace trireme::optim {

using D = LrDecay;

std::span<const config::Choice<LrDecay>> choices_of(LrDecay) {
  static const std::vector<config::Choice<LrDecay>> kTable = {
      {D::cosine, "cosine", {"cosine_with_min_lr"}},
      {D::linear, "linear", {}},
      {D::constant, "constant", {"none", "constant_with_warmup"}},
      {D::wsd, "wsd", {"warmup_stable_decay"}},
      {D::polynomial, "polynomial", {}},
      {D::inverse_sqrt, "inverse_sqrt", {"inverse-square-root"}},
      {D::one_cycle_lr, "OneCycleLR", {}},
      {D::one_cycle, "OneCycle", {}},
      {D::lr_range_test, "LRRangeTest", {}},
      {D::warmup_lr, "WarmupLR", {}},
      {D::warmup_decay_lr, "WarmupDecayLR", {}},
      {D::warmup_cosine_lr, "WarmupCosineLR", {}}};
  return kTable;
}

std::span<const config::Choice<LrShape>> choices_of(LrShape) {
  static const std::vector<config::Choice<LrShape>> kTable = {{LrShape::linear, "linear", {}},
                                                              {LrShape::cosine, "cosine", {"cos"}},
                                                              {LrShape::one_minus_sqrt, "1-sqrt", {"minus_sqrt"}},
                                                              {LrShape::log, "log", {}},
                                                              {LrShape::exponential, "exponential", {}}};
  return kTable;
}

namespace {

bool is_deepspeeds_warmup(D d) { return d == D::warmup_lr || d == D::warmup_decay_lr || d == D::warmup_cosine_lr; }

void check_shape(const char* key, const std::optional<LrShape>& given, std::vector<LrShape> allowed, D decay,
                 config::Problems& problems) {
  if (!given || std::ranges::find(allowed, *given) != allowed.end()) return;
  std::vector<std::string> names;
  for (const LrShape shape : allowed) names.emplace_back(config::name_of(shape));
  problems.add(fmt::format("{} has no {} of shape {}", config::name_of(decay), key, config::name_of(*given)), {},
               fmt::format("with train.lr_decay {}, lr_schedule.{}_shape is one of {}", config::name_of(decay), key,
                           base::join(names, ", ")));
}

}  // namespace

int64_t default_warmup_steps(LrDecay decay) { return is_deepspeeds_warmup(decay) ? 1000 : 100; }

double default_min_lr(LrDecay decay, double peak) {
  constexpr double kMost = 6e-5;
  switch (decay) {
    case D::wsd:
      return 0;
    case D::polynomial:
      return 1e-7;
    case D::warmup_cosine_lr:
      return 1e-4 * peak;
    default:
      return std::min(kMost, peak / 10);
  }
}

bool ends_at_min_lr(LrDecay decay) {
  return decay == D::cosine || decay == D::linear || decay == D::wsd || decay == D::polynomial ||
         decay == D::warmup_cosine_lr;
}

bool reads_first_step(LrDecay decay) {
  return decay == D::cosine || decay == D::linear || decay == D::constant || decay == D::wsd ||
         decay == D::polynomial || decay == D::inverse_sqrt;
}

bool warms_up(LrDecay decay) { return decay != D::one_cycle_lr && decay != D::one_cycle && decay != D::lr_range_test; }

bool needs_end(LrDecay decay) {
  return ends_at_min_lr(decay) || decay == D::one_cycle_lr || decay == D::warmup_decay_lr;
}

void check_schedule(LrDecay decay, const LrScheduleSettings& s, config::Problems& problems) {
  const std::vector<D> warm = {D::cosine,    D::linear,          D::constant,
                               D::wsd,       D::polynomial,      D::inverse_sqrt,
                               D::warmup_lr, D::warmup_decay_lr, D::warmup_cosine_lr};
  std::vector<D> numbered;
  for (const config::Choice<D>& choice : choices_of(decay))
    if (reads_first_step(choice.value)) numbered.push_back(choice.value);
  const struct {
    bool given;
    const char* key;
    std::vector<D> readers;
  } rows[] = {
      {s.first_step != 1, "first_step", numbered},
      {s.warmup_from != 0, "warmup_from", warm},
      {s.warmup_shape.has_value(), "warmup_shape", warm},
      {s.decay_shape.has_value(), "decay_shape", {D::wsd, D::one_cycle_lr}},
      {s.decay_steps.has_value(), "decay_steps", {D::wsd}},
      {s.timescale.has_value(), "timescale", {D::inverse_sqrt}},
      {s.power.has_value(), "power", {D::polynomial}},
      {s.pct_start.has_value(), "pct_start", {D::one_cycle_lr}},
      {s.div_factor.has_value(), "div_factor", {D::one_cycle_lr}},
      {s.final_div_factor.has_value(), "final_div_factor", {D::one_cycle_lr}},
      {s.three_phase.has_value(), "three_phase", {D::one_cycle_lr}},
      {s.cycle_min_lr.has_value(), "cycle_min_lr", {D::one_cycle}},
      {s.second_step_size.has_value(), "second_step_size", {D::one_cycle}},
      {s.first_stair_count.has_value(), "first_stair_count", {D::one_cycle}},
      {s.second_stair_count.has_value(), "second_stair_count", {D::one_cycle}},
      {s.decay_step_size.has_value(), "decay_step_size", {D::one_cycle}},
      {s.decay_lr_rate.has_value(), "decay_lr_rate", {D::one_cycle}},
      {s.step_size.has_value(), "step_size", {D::one_cycle, D::lr_range_test}},
      {s.step_rate.has_value(), "step_rate", {D::lr_range_test}},
      {s.staircase.has_value(), "staircase", {D::lr_range_test}},
  };
  for (const auto& row : rows) {
    if (!row.given || std::ranges::find(row.readers, decay) != row.readers.end()) continue;
    std::vector<std::string> readers;
    for (const D reader : row.readers) readers.emplace_back(config::name_of(reader));
    problems.add(
        fmt::format("the schedule {} has no {}", config::name_of(decay), row.key), {},
        fmt::format("lr_schedule.{} belongs to train.lr_decay {}; leave it out", row.key, base::join(readers, ", ")));
  }
  using S = LrShape;
  check_shape("warmup", s.warmup_shape,
              is_deepspeeds_warmup(decay) ? std::vector{S::log, S::linear}
                                          : std::vector{S::linear, S::cosine, S::one_minus_sqrt, S::log},
              decay, problems);
  check_shape("decay", s.decay_shape,
              decay == D::one_cycle_lr ? std::vector{S::cosine, S::linear}
                                       : std::vector{S::cosine, S::linear, S::one_minus_sqrt, S::exponential},
              decay, problems);
}

config::Section section(LrScheduleSettings& s) {
  using config::Rules;
  const auto steps = [](std::string_view when_absent, std::string_view example, double at_least = 1) {
    return Rules{
        .unit = "steps", .at_least = at_least, .absent = "auto", .when_absent = when_absent, .example = example};
  };
  return {
      .name = "lr_schedule",
      .title = "what some learning-rate schedules know (train.lr_decay chooses one)",
      .resumed = config::Resumed::learned,
      .rows =
          {
              {"lr_schedule.first_step",
               &s.first_step,
               "number of the run's first step in the schedule's formula; 0 as in PyTorch and transformers, where that "
               "step of a warm-up has rate 0",
               {.at_least = 0, .at_most = 1}},
              {"lr_schedule.warmup_from",
               &s.warmup_from,
               "learning rate at which the warm-up begins; WarmupDecayLR also ends there",
               {.at_least = 0}},
              {"lr_schedule.warmup_shape",
               &s.warmup_shape,
               "how the learning rate rises",
               {.absent = "auto", .when_absent = "linear; log for WarmupLR, WarmupDecayLR, WarmupCosineLR"}},
              {"lr_schedule.decay_shape",
               &s.decay_shape,
               "how the learning rate falls (wsd, OneCycleLR)",
               {.absent = "auto", .when_absent = "cosine"}},
              {"lr_schedule.decay_steps", &s.decay_steps, "steps of the descent at the end (wsd)",
               steps("a tenth of the run", "500")},
              {"lr_schedule.power",
               &s.power,
               "power of the share that remains (polynomial)",
               {.above = 0, .absent = "auto", .when_absent = "1", .example = "2"}},
              {"lr_schedule.timescale", &s.timescale, "steps that count as one (inverse_sqrt)",
               steps("train.lr_warmup_steps, or 10000 without a warm-up", "1000")},
              {"lr_schedule.pct_start",
               &s.pct_start,
               "share of the run in which the learning rate rises (OneCycleLR)",
               {.above = 0, .below = 1, .absent = "auto", .when_absent = "0.3", .example = "0.3"}},
              {"lr_schedule.div_factor",
               &s.div_factor,
               "the run begins with optimizer.lr divided by this (OneCycleLR)",
               {.above = 0, .absent = "auto", .when_absent = "25", .example = "25"}},
              {"lr_schedule.final_div_factor",
               &s.final_div_factor,
               "the run ends with its first learning rate divided by this (OneCycleLR)",
               {.above = 0, .absent = "auto", .when_absent = "1e4", .example = "1e4"}},
              {"lr_schedule.three_phase",
               &s.three_phase,
               "fall back to the first learning rate at the speed of the rise, and then to the last (OneCycleLR)",
               {.absent = "auto", .when_absent = "false"}},
              {"lr_schedule.cycle_min_lr",
               &s.cycle_min_lr,
               "learning rate at both ends of the cycle, whose middle has optimizer.lr (OneCycle)",
               {.at_least = 0, .absent = "auto", .when_absent = "a tenth of optimizer.lr", .example = "1e-4"}},
              {"lr_schedule.step_size", &s.step_size,
               "steps of the cycle's first half (OneCycle), or of one step_rate (LRRangeTest)", steps("2000", "2000")},
              {"lr_schedule.second_step_size", &s.second_step_size, "steps of the cycle's second half (OneCycle)",
               steps("lr_schedule.step_size", "2000")},
              {"lr_schedule.first_stair_count",
               &s.first_stair_count,
               "stairs of the cycle's first half (OneCycle)",
               {.at_least = 0, .absent = "auto", .when_absent = "0, without stairs", .example = "10"}},
              {"lr_schedule.second_stair_count",
               &s.second_stair_count,
               "stairs of the cycle's second half (OneCycle)",
               {.at_least = 0, .absent = "auto", .when_absent = "lr_schedule.first_stair_count", .example = "10"}},
              {"lr_schedule.decay_step_size", &s.decay_step_size,
               "steps after the cycle over which the learning rate's divisor grows by decay_lr_rate (OneCycle)",
               steps("0: the learning rate stays", "1000", 0)},
              {"lr_schedule.decay_lr_rate",
               &s.decay_lr_rate,
               "growth of the learning rate's divisor after the cycle (OneCycle)",
               {.at_least = 0, .absent = "auto", .when_absent = "0: the learning rate stays", .example = "0.5"}},
              {"lr_schedule.step_rate",
               &s.step_rate,
               "growth of the learning rate, in parts of optimizer.lr, over lr_schedule.step_size steps (LRRangeTest)",
               {.above = 0, .absent = "auto", .when_absent = "1", .example = "5"}},
              {"lr_schedule.staircase",
               &s.staircase,
               "grow in stairs (LRRangeTest)",
               {.absent = "auto", .when_absent = "false"}},
          },
      .others = {{{"cycle_momentum", "cycle_min_mom", "cycle_max_mom", "base_momentum", "max_momentum"},
                  "a schedule here leaves the optimizer's betas as they are; leave it out",
                  true},
                 {{"num_decay_steps", "wsd_decay_steps", "lr_wsd_decay_iters"},
                  "the steps of the last descent are lr_schedule.decay_steps"},
                 {{"warmup_min_lr", "lr_warmup_init"},
                  "the first learning rate of the warm-up is "
                  "lr_schedule.warmup_from"},
                 {{"start_factor"},
                  "the first learning rate of the warm-up is lr_schedule.warmup_from, and no share of optimizer.lr"},
                 {{"warmup_type"}, "the shape of the warm-up is lr_schedule.warmup_shape"},
                 {{"decay_type", "anneal_strategy"}, "the shape of the descent is lr_schedule.decay_shape"},
                 {{"num_stable_steps"}, "the learning rate stays until the last lr_schedule.decay_steps"},
                 {{"step_size_up"}, "the steps of the cycle's first half are lr_schedule.step_size"},
                 {{"step_size_down"}, "the steps of the cycle's second half are lr_schedule.second_step_size"},
                 {{"T_0", "T_mult", "milestones", "lr_lambda", "scale_fn", "scale_mode", "schedulers",
                   "lr_scheduler.mode", "lr_scheduler.factor", "lr_scheduler.gamma", "lr_scheduler.patience",
                   "lr_scheduler.threshold", "threshold_mode", "lr_scheduler.cooldown"},
                  "such a schedule is not built yet; train.lr_decay names those that are",
                  true},
                 {{"cycle_max_lr", "warmup_max_lr"}, "the highest learning rate is optimizer.lr"}},
  };
}

}  // namespace trireme::optim
