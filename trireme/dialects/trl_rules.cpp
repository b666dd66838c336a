// TRL's optimizers and schedules are those of transformers. Source: transformers 5.23, trainer_optimizer.py,
// optimization.py.
#include "trireme/dialects/trl_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "trireme/base/units.h"
#include "trireme/dialects/batch.h"

namespace trireme::dialects {

using config::Given;

void trl_optimizer(Reading& r, const Given& entry) {
  constexpr std::pair<std::string_view, std::string_view> kOptimizers[] = {{"adamw_torch", "AdamW"},
                                                                           {"adamw_torch_fused", "AdamW"},
                                                                           {"adamw_torch_xla", "AdamW"},
                                                                           {"adamw_torch_npu_fused", "AdamW"},
                                                                           {"paged_adamw_32bit", "AdamW"},
                                                                           {"adamw_8bit", "AdamW8bit"},
                                                                           {"adamw_bnb_8bit", "AdamW8bit"},
                                                                           {"adamw_torch_8bit", "AdamW8bit"},
                                                                           {"paged_adamw_8bit", "AdamW8bit"},
                                                                           {"lion_32bit", "Lion"},
                                                                           {"paged_lion_32bit", "Lion"},
                                                                           {"adafactor", "Adafactor"},
                                                                           {"adagrad", "Adagrad"},
                                                                           {"sgd", "SGD"}};
  const std::string name = lower(entry.text);
  for (const auto& [theirs, ours] : kOptimizers)
    if (name == theirs) return r.set("optimizer", ours, entry);
  r.refuse(entry, fmt::format("there is no optimizer {}", entry.text),
           "there are adamw_torch, adamw_torch_fused, adamw_8bit, paged_adamw_32bit, lion_32bit, adafactor, adagrad "
           "and sgd");
}

void trl_moments(Reading& r) {
  const std::string rule = lower(r.known("optimizer").value_or("adamw"));
  const bool has_moments = rule != "sgd" && rule != "adafactor" && rule != "adagrad" && rule != "lars";
  const Given *one = r.find("adam_beta1"), *two = r.find("adam_beta2"), *eps = r.find("adam_epsilon");
  if (eps != nullptr && !r.is_settled(*eps))
    has_moments&& rule != "lion" ? r.set("optimizer.eps", eps->text, *eps) : r.ignore(*eps, "only AdamW reads it");
  if (!has_moments) {
    for (const Given* beta : {one, two})
      if (beta != nullptr) r.ignore(*beta, "only AdamW and Lion read it");
    return;
  }
  const std::string both = fmt::format("[{}, {}]", r.text("adam_beta1", "0.9"), r.text("adam_beta2", "0.999"));
  if (one == nullptr && two == nullptr) return r.suggest("optimizer.betas", both);
  r.set("optimizer.betas", both, one != nullptr ? *one : *two);
  if (one != nullptr && two != nullptr) r.tell(*two, "optimizer.betas " + both);
}

namespace {

constexpr std::pair<std::string_view, std::string_view> kTrlSchedules[] = {{"linear", "linear"},
                                                                           {"cosine", "cosine"},
                                                                           {"constant", "constant"},
                                                                           {"constant_with_warmup", "constant"},
                                                                           {"polynomial", "polynomial"},
                                                                           {"cosine_with_min_lr", "cosine"},
                                                                           {"inverse_sqrt", "inverse_sqrt"}};

struct TrlOption {
  std::string_view schedule, key, setting;
};

constexpr TrlOption kTrlOptions[] = {
    {"cosine_with_min_lr", "lr_scheduler_kwargs.min_lr", "train.min_lr"},
    {"cosine_with_min_lr", "lr_scheduler_kwargs.min_lr_rate", "train.min_lr"},
    {"polynomial", "lr_scheduler_kwargs.lr_end", "train.min_lr"},
    {"polynomial", "lr_scheduler_kwargs.power", "lr_schedule.power"},
    {"inverse_sqrt", "lr_scheduler_kwargs.timescale", "lr_schedule.timescale"},
};

// transformers refuses an option that the schedule lacks.
void trl_options(Reading& r, std::string_view name) {
  for (const auto& [schedule, key, setting] : kTrlOptions) {
    const Given* entry = r.find(key);
    if (entry == nullptr || r.is_settled(*entry)) continue;
    const double rate = base::parse_number(r.known("optimizer.lr").value_or("1e-6")).value_or(1e-6);
    if (schedule != name)
      r.refuse(*entry, fmt::format("the schedule {} has no {}", name, key.substr(key.find('.') + 1)),
               fmt::format("it belongs to lr_scheduler_type: {}; leave it out", schedule));
    else if (key.ends_with("min_lr_rate"))
      r.set(setting, fmt::format("{}", rate * r.number(key).value_or(0)), *entry);
    else
      r.set(setting, entry->text, *entry);
  }
}

}  // namespace

void trl_schedule(Reading& r) {
  const Given *type = r.find("lr_scheduler_type"), *least = r.find("lr_scheduler_kwargs.min_lr"),
              *share = r.find("lr_scheduler_kwargs.min_lr_rate");
  if (type != nullptr && r.is_settled(*type)) return;  // refused
  const std::string name = lower(r.text("lr_scheduler_type", "linear"));
  const auto* found =
      std::ranges::find(kTrlSchedules, std::string_view(name), [](const auto& row) { return row.first; });
  if (found == std::end(kTrlSchedules))
    return r.refuse(*type, fmt::format("there is no schedule {}", type->text),
                    "there are linear, cosine, cosine_with_min_lr, polynomial, inverse_sqrt and constant");
  type != nullptr ? r.set("train.lr_decay", found->second, *type) : r.suggest("train.lr_decay", found->second);
  if (name == "cosine_with_min_lr" && least == nullptr && share == nullptr)
    r.refuse(*type, "cosine_with_min_lr ends at a rate that is not given",
             "say min_lr or min_lr_rate in lr_scheduler_kwargs");
  if (least != nullptr && share != nullptr)
    r.refuse_both(*least, *share, "min_lr and min_lr_rate both say where the rate ends", "keep one of them");
  trl_options(r, name);
  r.suggest("train.min_lr", name == "polynomial" ? "1e-7" : "0");
}

// A number below 1 is a share of the run. The schedule constant has no warm-up, and constant_with_warmup has one.
void trl_warmup(Reading& r) {
  const Given *steps = r.find("warmup_steps"), *share = r.find("warmup_ratio");
  const double number = std::trunc(r.number("warmup_steps").value_or(0));
  const bool is_share = r.number("warmup_steps").value_or(0) > 0 && number < 1;
  if (lower(r.text("lr_scheduler_type")) == "constant") {
    for (const Given* entry : {steps, share})
      if (entry != nullptr) r.ignore(*entry, "lr_scheduler_type constant has no warm-up; constant_with_warmup has one");
  } else {
    const bool counts = is_share || number > 0;
    if (steps != nullptr && !counts && share != nullptr) r.ignore(*steps, "warmup_ratio counts");
    if (steps != nullptr && (counts || share == nullptr))
      is_share ? set_warmup_share(r, *steps, "max_steps, or warmup_steps of at least 1", PartOfStep::a_step)
               : r.set("train.lr_warmup_steps", fmt::format("{:.0f}", number), *steps);
    if (share != nullptr)
      counts ? r.ignore(*share, "warmup_steps counts")
             : set_warmup_share(r, *share, "max_steps, or warmup_steps", PartOfStep::a_step);
  }
  r.suggest("train.lr_warmup_steps", "0");
}

}  // namespace trireme::dialects
