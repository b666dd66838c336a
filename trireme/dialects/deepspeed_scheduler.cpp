// DeepSpeed's scheduler: the keys, and what they mean here. Source: DeepSpeed 0.19 (deepspeed/runtime/lr_schedules.py).
#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/units.h"
#include "trireme/dialects/deepspeed_parts.h"

namespace trireme::dialects::ds {

using config::Given;

namespace {

constexpr std::string_view kSchedule = "the schedule's settings: train.lr_decay, train.lr_warmup_steps, lr_schedule.*";

struct Scheduled {
  std::string_view type, key, setting;
};

// train.lr_decay has DeepSpeed's own names for its schedules.
constexpr Scheduled kScheduled[] = {
    {"WarmupLR", "warmup_min_lr", "lr_schedule.warmup_from"},
    {"WarmupLR", "warmup_max_lr", "optimizer.lr"},
    {"WarmupLR", "warmup_num_steps", "train.lr_warmup_steps"},
    {"WarmupLR", "warmup_type", "lr_schedule.warmup_shape"},
    {"WarmupDecayLR", "warmup_min_lr", "lr_schedule.warmup_from"},
    {"WarmupDecayLR", "warmup_max_lr", "optimizer.lr"},
    {"WarmupDecayLR", "warmup_num_steps", "train.lr_warmup_steps"},
    {"WarmupDecayLR", "warmup_type", "lr_schedule.warmup_shape"},
    {"WarmupDecayLR", "total_num_steps", "train.max_steps"},
    {"WarmupCosineLR", "warmup_num_steps", "train.lr_warmup_steps"},
    {"WarmupCosineLR", "warmup_type", "lr_schedule.warmup_shape"},
    {"WarmupCosineLR", "total_num_steps", "train.max_steps"},
    {"LRRangeTest", "lr_range_test_min_lr", "optimizer.lr"},
    {"LRRangeTest", "lr_range_test_step_size", "lr_schedule.step_size"},
    {"LRRangeTest", "lr_range_test_step_rate", "lr_schedule.step_rate"},
    {"LRRangeTest", "lr_range_test_staircase", "lr_schedule.staircase"},
    {"OneCycle", "cycle_min_lr", "lr_schedule.cycle_min_lr"},
    {"OneCycle", "cycle_max_lr", "optimizer.lr"},
    {"OneCycle", "decay_lr_rate", "lr_schedule.decay_lr_rate"},
    {"OneCycle", "cycle_first_step_size", "lr_schedule.step_size"},
    {"OneCycle", "cycle_second_step_size", "lr_schedule.second_step_size"},
    {"OneCycle", "cycle_first_stair_count", "lr_schedule.first_stair_count"},
    {"OneCycle", "cycle_second_stair_count", "lr_schedule.second_stair_count"},
    {"OneCycle", "decay_step_size", "lr_schedule.decay_step_size"},
};

constexpr std::string_view kSchedulers[] = {"WarmupLR", "WarmupDecayLR", "WarmupCosineLR", "LRRangeTest", "OneCycle"};

bool has_another_length(const Reading& r, const Given& total) {
  const auto steps = r.known_count("train.max_steps");
  if (steps) return *steps != base::parse_count(total.text);
  return r.known("train.epochs") || r.known("train.max_tokens");
}

// Parameters in this order account for themselves; others are refused where another scheduler has them.
void scheduler_parameters(Reading& r, std::string_view type, bool is_refused) {
  constexpr std::string_view kHead = "scheduler.params.";
  for (const Row& row : r.dialect().rows) {
    if (!row.key.starts_with(kHead)) continue;
    const Given* entry = r.find(row.key);
    if (entry == nullptr) continue;
    const std::string_view name = row.key.substr(kHead.size());
    if (is_refused) {
      r.ignore(*entry, "it belongs to the scheduler");
      continue;
    }
    if (name == "last_batch_iteration") {
      r.ignore(*entry, "a resumed run's checkpoint says where it stands");
    } else if (name == "cycle_momentum" && !r.flag(row.key)) {
      r.ignore(*entry, "it is off");
    } else if (type == "WarmupCosineLR" && (name == "warmup_min_ratio" || name == "cos_min_ratio")) {
      const double lr = base::parse_number(r.known("optimizer.lr").value_or("0.001")).value_or(0.001);
      r.set(name == "cos_min_ratio" ? "train.min_lr" : "lr_schedule.warmup_from",
            fmt::format("{}", lr * r.number(row.key).value_or(0)), *entry);
    } else {
      const auto* at =
          std::ranges::find_if(kScheduled, [&](const Scheduled& s) { return s.type == type && s.key == name; });
      if (at != std::end(kScheduled) && at->setting == "train.max_steps" && has_another_length(r, *entry))
        r.ignore(*entry, "the run's own length counts, and the schedule ends with the run");
      else if (at == std::end(kScheduled))
        r.refuse(*entry, fmt::format("{} is not a parameter of {} here", name, type),
                 name.starts_with("cycle_") ? "momentum does not cycle here: cycle_momentum false" : "leave it out");
      else
        r.set(at->setting, entry->text, *entry);
    }
  }
}

// The rate after a warm-up is warmup_max_lr, and that at which a range test begins lr_range_test_min_lr. Without these
// keys WarmupLR rises to the optimizer's rate; the others have 0.001, also if the optimizer has another rate.
void default_rate(Reading& r, const Given& type) {
  constexpr std::string_view kRates[] = {"optimizer.params.lr", "optimizer.params.muon_lr"};
  const bool tests = type.text == "LRRangeTest";
  const std::string_view name = tests ? "lr_range_test_min_lr" : "warmup_max_lr";
  const std::string key = fmt::format("scheduler.params.{}", name);
  if (r.is_left(key) || (r.is_left(kRates[0]) && !tests)) return;  // the run's own rate, as in transformers
  const bool has_default = sets_all_rates(r) && r.find(key) == nullptr;
  for (const std::string_view rate : kRates)
    if (const Given* lr = r.find(rate); lr != nullptr && has_default) {
      r.tell(*lr, fmt::format("but {} has {}, by default 0.001", type.text, name));
      r.set("optimizer.lr", "0.001", type);
    }
  // WarmupLR rises to the optimizer's rate, which is the program's own where the file has no optimizer.
  if (r.find("optimizer.type") != nullptr || has_default) r.suggest("optimizer.lr", "0.001");
}

void scheduler(Reading& r) {
  const Given* type = r.find("scheduler.type");
  if (type == nullptr) {
    scheduler_parameters(r, "", true);
    // Without an optimizer both come from the program in DeepSpeed, from settings here. A rate of "auto" is read by
    // transformers alone, which makes the run's own schedule.
    if (r.find("optimizer.type") == nullptr || r.is_left("optimizer.params.lr")) return;
    r.suggest("train.lr_warmup_steps", "0");
    r.suggest("train.lr_decay", "constant");
    return;
  }
  const auto* known = std::ranges::find(kSchedulers, std::string_view(type->text));
  if (known == std::end(kSchedulers))
    r.refuse(*type, fmt::format("DeepSpeed has no scheduler {}", type->text),
             fmt::format("its schedulers are {}", fmt::join(kSchedulers, ", ")));
  else if (!r.can("train.lr_decay", *known))
    r.refuse_open(*type, fmt::format("the schedule {}; train.lr_decay has cosine, linear and constant", *known));
  else
    r.set("train.lr_decay", *known, *type);
  const bool is_refused = known == std::end(kSchedulers) || !r.can("train.lr_decay", *known);
  scheduler_parameters(r, type->text, is_refused);
  if (is_refused) return;
  if (*known == "WarmupLR" || *known == "WarmupDecayLR" || *known == "LRRangeTest") default_rate(r, *type);
  if (const Given* adam = r.find("optimizer.params.adam_lr"); adam != nullptr && sets_all_rates(r)) {
    r.take_back(*adam, "optimizer.adam_lr");
    r.ignore(*adam, fmt::format("{} gives all parameters its own rate", *known));
  }
  // The run's own warm-up; a run of transformers has none by default, and DeepSpeed's 1000 steps are not meant.
  if (r.is_left("scheduler.params.warmup_num_steps") && !r.known("train.lr_warmup_steps"))
    r.suggest("train.lr_warmup_steps", "0");
  if (*known == "OneCycle" && r.flag("scheduler.params.cycle_momentum", true))
    r.refuse(*type, "momentum does not cycle here, and OneCycle's default is that it does",
             "say \"cycle_momentum\": false in scheduler.params");
}

}  // namespace

std::vector<Row> scheduler_rows() {
  using enum Takes;
  return {
      {.key = "scheduler.type", .takes = text, .becomes = "train.lr_decay, if it has that schedule"},
      {.key = "scheduler.params.warmup_min_lr", .takes = number, .becomes = kSchedule, .automatic = "0"},
      {.key = "scheduler.params.warmup_max_lr",
       .takes = number,
       .becomes = "optimizer.lr",
       .automatic = "optimizer.lr is left"},
      {.key = "scheduler.params.warmup_num_steps",
       .takes = count,
       .becomes = "train.lr_warmup_steps",
       .automatic = "train.lr_warmup_steps is left; without it there is no warm-up"},
      {.key = "scheduler.params.total_num_steps",
       .takes = count,
       .becomes = "train.max_steps",
       .automatic = "the run's length is left to train.max_steps, max_tokens or epochs"},
      {.key = "scheduler.params.warmup_type", .takes = text, .becomes = kSchedule},
      {.key = "scheduler.params.last_batch_iteration", .takes = count, .becomes = "nothing: a checkpoint says it"},
      {.key = "scheduler.params.warmup_min_ratio", .takes = number, .becomes = kSchedule},
      {.key = "scheduler.params.cos_min_ratio", .takes = number, .becomes = "train.min_lr"},
      {.key = "scheduler.params.lr_range_test_min_lr", .takes = number, .becomes = "optimizer.lr"},
      {.key = "scheduler.params.lr_range_test_step_size", .takes = count, .becomes = kSchedule},
      {.key = "scheduler.params.lr_range_test_step_rate", .takes = number, .becomes = kSchedule},
      {.key = "scheduler.params.lr_range_test_staircase", .takes = flag, .becomes = kSchedule},
      {.key = "scheduler.params.cycle_min_lr", .takes = number, .becomes = kSchedule},
      {.key = "scheduler.params.cycle_max_lr", .takes = number, .becomes = "optimizer.lr"},
      {.key = "scheduler.params.decay_lr_rate", .takes = number, .becomes = kSchedule},
      {.key = "scheduler.params.cycle_first_step_size", .takes = count, .becomes = kSchedule},
      {.key = "scheduler.params.cycle_second_step_size", .takes = count, .becomes = kSchedule},
      {.key = "scheduler.params.cycle_first_stair_count", .takes = count, .becomes = kSchedule},
      {.key = "scheduler.params.cycle_second_stair_count", .takes = count, .becomes = kSchedule},
      {.key = "scheduler.params.decay_step_size", .takes = count, .becomes = kSchedule},
      {.key = "scheduler.params.cycle_momentum", .takes = flag, .becomes = "nothing: refused unless false"},
      {.key = "scheduler.params.cycle_min_mom", .takes = number, .becomes = "nothing: momentum does not cycle"},
      {.key = "scheduler.params.cycle_max_mom", .takes = number, .becomes = "nothing: momentum does not cycle"},
      {.key = "scheduler.params.decay_mom_rate", .takes = number, .becomes = "nothing: momentum does not cycle"},
  };
}

void finish_scheduler(Reading& r) { scheduler(r); }

bool sets_all_rates(const Reading& r) {
  constexpr std::string_view kPeak = "scheduler.params.warmup_max_lr";
  const std::string type = r.text("scheduler.type");
  if (type == "WarmupLR") return r.find(kPeak) != nullptr || r.is_left(kPeak);
  return type == "WarmupDecayLR" || type == "LRRangeTest" || type == "OneCycle";
}

}  // namespace trireme::dialects::ds
