#include "trireme/dialects/deepspeed_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "trireme/base/text.h"
#include "trireme/base/units.h"

namespace trireme::dialects::ds {

using config::Given;

namespace {

constexpr std::string_view kStages[] = {"no_shard", "zero1", "shard_grad_op", "full_shard"};

std::string part(const Given& entry) { return entry.key.substr(entry.key.rfind('.') + 1); }

int64_t stage_of(const Reading& r) {
  if (r.flag("zero_optimization")) return 1;
  return r.count("zero_optimization.stage").value_or(0);
}

// Ranks of a copy of the weights, if the file asks for several copies.
const Given* copies(const Reading& r) {
  for (const std::string_view key : {"zero_optimization.mics_shard_size", "zero_optimization.zero_hpz_partition_size"})
    if (r.count(key).value_or(1) > 1) return r.find(key);
  return nullptr;
}

void set_strategy(Reading& r, const Given& entry, int64_t stage) {
  if (stage < 0 || stage > 3)
    return r.refuse(entry, fmt::format("{} {} is not a stage", entry.key, entry.text), "stages are 0, 1, 2 and 3");
  const Given* group = copies(r);
  if (group == nullptr) return r.set("strategy", kStages[stage], entry);
  if (stage != 3)
    return r.refuse_both(entry, *group,
                         fmt::format("{} divides weights, and stage {} keeps them whole", group->key, stage),
                         "it needs stage 3");
  const int64_t size = *r.count(group->key);
  if (size >= r.data_ranks()) {
    r.set("strategy", "full_shard", entry);
    return r.ignore(*group, "one copy takes all ranks");
  }
  r.set("strategy", "hybrid_shard", entry);
  r.set("mesh.shard", std::to_string(size), *group);
}

}  // namespace

void stage(Reading& r, const Given& entry) { set_strategy(r, entry, base::parse_count(entry.text).value_or(-1)); }

// "zero_optimization": true is stage 1.
void flag_stage(Reading& r, const Given& entry) { set_strategy(r, entry, r.flag(entry.key) ? 1 : 0); }

void bucket(Reading& r, const Given& entry) {
  const int64_t stage = stage_of(r);
  if (stage == 1 || stage == 2) return r.set("wrap.min_num_params", std::to_string(*r.count(entry.key)), entry);
  r.ignore(entry,
           stage == 0 ? "stage 0 does not read it" : "with stage 3 each block is gathered and reduced by itself");
}

void prefetch_bucket(Reading& r, const Given& entry) {
  if (stage_of(r) != 3) return r.ignore(entry, "only stage 3 reads it");
  if (*r.count(entry.key) == 0) return r.set("schedule.prefetch", "0", entry);
  r.set("schedule.prefetch", "1", entry);
}

void overlap(Reading& r, const Given& entry) { r.set("schedule.reduce_lag", r.flag(entry.key) ? "1" : "0", entry); }

void part_of_offload(Reading& r, const Given& entry) {
  r.ignore(entry, "it belongs to an offload, which is off or refused");
}

void mixed(Reading& r, const Given& entry) {
  if (!r.flag(entry.key)) return r.ignore(entry, "it is off");
  const bool half = entry.key.starts_with("fp16");
  if (const Given* other = r.find(half ? "bf16.enabled" : "fp16.enabled"); other != nullptr && r.flag(other->key)) {
    if (half) r.refuse_both(entry, *other, "fp16 and bf16 are both enabled", "keep one of them");
    return;
  }
  const std::string_view format = half ? "16-mixed" : "bf16-mixed";
  if (!r.can("precision", format))
    return r.refuse_open(entry, "precision 16-mixed; take bf16, or leave both out for fp32");
  r.set("precision", format, entry);
}

void loss_scale(Reading& r, const Given& entry) {
  if (!r.flag("fp16.enabled")) return r.ignore(entry, "fp16 is off");
  const std::string name = part(entry);
  if (name == "auto_cast") return r.ignore(entry, "batches are tokens, which are not cast");
  if (name == "loss_scale" && r.number(entry.key) == 0.0) return r.ignore(entry, "0 means a dynamic loss scale");
  if (name == "initial_scale_power") {
    const int64_t power = r.count(entry.key).value_or(16);
    if (power < 0 || power > 60)
      return r.refuse(entry, fmt::format("fp16.initial_scale_power {} is not from 0 to 60", power),
                      "16 is the default");
    return r.set("precision.initial_loss_scale", std::to_string(int64_t{1} << power), entry);
  }
  r.set(name == "hysteresis" ? "precision.loss_scale_hysteresis" : "precision." + name, entry.text, entry);
}

void clip(Reading& r, const Given& entry) {
  const double norm = r.number(entry.key).value_or(0);
  if (norm < 0) return r.refuse(entry, fmt::format("{} {} is negative", entry.key, entry.text), "0 does not clip");
  r.set("train.max_norm", norm == 0 ? "null" : entry.text, entry);
}

void autocast(Reading& r, const Given& entry) {
  if (!r.flag(entry.key)) return r.ignore(entry, "it is off");
  const std::string type = lower(r.text("torch_autocast.dtype", "bfloat16"));
  const std::string_view format = type == "float16" || type == "fp16" ? "16-mixed" : "bf16-mixed";
  if (!r.can("precision", format)) return r.refuse_open(entry, "precision 16-mixed; dtype bfloat16 can be had");
  r.set("precision", format, entry);
}

void ulysses(Reading& r, const Given& entry) {
  r.set("mesh.cp", entry.text, entry);
  if (r.count(entry.key).value_or(1) > 1) r.set("mesh.context", "ulysses", entry);
}

void tensor_parallel(Reading& r, const Given& entry) {
  const int64_t size = r.count(entry.key).value_or(0);
  size <= 1 ? r.ignore(entry, "it is off") : r.set("mesh.tp", std::to_string(size), entry);
}

void recompute(Reading& r, const Given& entry) {
  const bool is_asked = r.flag(entry.key) || r.count(entry.key).value_or(0) > 0;
  is_asked ? r.set("recompute", "full", entry) : r.ignore(entry, "it is off");
}

void stages(Reading& r, const Given& entry) { r.set("mesh.pp", entry.text, entry); }

void optimizer(Reading& r, const Given& entry) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 7> kNames = {{{"adam", "Adam"},
                                                                                    {"adamw", "AdamW"},
                                                                                    {"sgd", "SGD"},
                                                                                    {"lion", "Lion"},
                                                                                    {"adagrad", "Adagrad"},
                                                                                    {"lamb", "LAMB"},
                                                                                    {"muon", "Muon"}}};
  const std::string type = lower(entry.text);
  for (const auto& [theirs, ours] : kNames) {
    if (type != theirs) continue;
    const bool is_adamw = type == "adam" && r.flag("optimizer.params.adam_w_mode", true);
    const std::string_view name = is_adamw ? "AdamW" : ours;
    if (!r.can("optimizer", name)) return r.refuse_open(entry, fmt::format("the optimizer {}", name));
    return r.set("optimizer", name, entry);
  }
  constexpr std::string_view kCompressed[] = {"onebitadam", "zerooneadam", "onebitlamb"};
  r.refuse(entry, fmt::format("there is no optimizer {}", entry.text),
           std::ranges::find(kCompressed, type) != std::end(kCompressed)
               ? "momentum is not compressed here: take Adam, or Lamb for OneBitLamb"
               : "there are Adam, AdamW, SGD, Lion, Adagrad, Lamb and Muon");
}

void of_optimizer(Reading& r, const Given& entry) {
  const std::string name = part(entry);
  if (name == "adam_w_mode")
    return r.flag(entry.key) ? r.ignore(entry, "true makes Adam AdamW")
                             : r.ignore(entry, "false makes Adam add its decay to the gradient");
  if (name == "max_grad_norm") return r.ignore(entry, "gradient_clipping counts");
  r.ignore(entry, "the kernel of an optimizer is not chosen here");
}

void set_batch(Reading& r, std::string_view batch, std::string_view micro, std::string_view accumulation) {
  const auto entry = [&](std::string_view key) { return key.empty() ? nullptr : r.find(key); };
  const Given *b = entry(batch), *m = entry(micro), *g = entry(accumulation);
  for (const Given* one : {b, m, g})
    if (one != nullptr && base::parse_count(one->text).value_or(0) < 1) {
      if (base::parse_count(one->text))
        r.refuse(*one, fmt::format("{} must be at least 1, not {}", one->key, one->text), "");
      return;
    }
  const auto value = [](const Given* one) { return one == nullptr ? int64_t{0} : *base::parse_count(one->text); };
  const int64_t ranks = r.data_ranks();
  constexpr int64_t kMost = int64_t{1} << 40;  // so that products fit
  if (value(b) > kMost || value(m) > kMost / ranks || value(g) > kMost / ranks / std::max<int64_t>(value(m), 1))
    return r.refuse(*(b != nullptr ? b : m != nullptr ? m : g), "a batch of more than 2^40 sequences is too large", "");
  const std::string ranks_text = fmt::format("{} data-parallel rank{}", ranks, ranks == 1 ? "" : "s");
  if (b != nullptr) {
    const int64_t global = value(b), steps = std::max<int64_t>(value(g), m == nullptr ? 1 : 0);
    r.set("train.global_batch_size", std::to_string(global), *b);
    if (m != nullptr) {
      r.set("train.micro_batch_size", std::to_string(value(m)), *m);
      const int64_t whole = value(m) * ranks;
      if (g != nullptr && global != whole * value(g)) {
        return r.refuse_both(*b, *g,
                             fmt::format("{} {} is not {} {} x {} {} x {}", batch, global, micro, value(m),
                                         accumulation, value(g), ranks_text),
                             "give two of the three, or another number of --devices");
      }
      if (global % whole != 0)
        return r.refuse_both(
            *b, *m, fmt::format("{} {} cannot be divided into {} {} x {}", batch, global, micro, value(m), ranks_text),
            fmt::format("{} {} fits, or another number of --devices", batch, base::near_multiples(global, whole)));
      if (g != nullptr) r.ignore(*g, fmt::format("it follows from the batches and {}", ranks_text));
      return;
    }
    if (global % (steps * ranks) != 0)
      return r.refuse(
          *b,
          fmt::format("{} {} cannot be divided into {} micro-batches on each of {}", batch, global, steps, ranks_text),
          fmt::format("{} {} fits, or another number of --devices", batch,
                      base::near_multiples(global, steps * ranks)));
    r.set("train.micro_batch_size", std::to_string(global / (steps * ranks)), g != nullptr ? *g : *b);
    return;
  }
  if (m != nullptr) r.set("train.micro_batch_size", std::to_string(value(m)), *m);
  if (m == nullptr && g == nullptr) return;
  const int64_t size = m != nullptr ? value(m) : r.known_count("train.micro_batch_size").value_or(1);
  const int64_t steps = g != nullptr ? value(g) : 1;
  if (size > kMost / ranks / steps) return r.refuse(*g, "a batch of more than 2^40 sequences is too large", "");
  r.set("train.global_batch_size", std::to_string(size * steps * ranks), g != nullptr ? *g : *m);
}

namespace {

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
      if (at == std::end(kScheduled))
        r.refuse(*entry, fmt::format("{} is not a parameter of {} here", name, type),
                 name.starts_with("cycle_") ? "momentum does not cycle here: cycle_momentum false" : "leave it out");
      else
        r.set(at->setting, entry->text, *entry);
    }
  }
}

void scheduler(Reading& r) {
  const Given* type = r.find("scheduler.type");
  if (type == nullptr) {
    scheduler_parameters(r, "", true);
    if (r.find("optimizer.type") == nullptr) return;  // both come from the program in DeepSpeed, from settings here
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
  if (known->starts_with("Warmup") && *known != "WarmupCosineLR") r.suggest("optimizer.lr", "0.001");
  if (*known == "OneCycle" && r.flag("scheduler.params.cycle_momentum", true))
    r.refuse(*type, "momentum does not cycle here, and OneCycle's default is that it does",
             "say \"cycle_momentum\": false in scheduler.params");
}

}  // namespace

namespace {

// Lamb's bounds of the ratio of norms, which stand in two keys.
void trust_bounds(Reading& r) {
  const Given *least = r.find("optimizer.params.min_coeff"), *most = r.find("optimizer.params.max_coeff");
  const bool is_lamb = lower(r.text("optimizer.type")) == "lamb";
  if (is_lamb && (least != nullptr || most != nullptr))
    r.set("optimizer.trust_bounds",
          fmt::format("[{}, {}]", r.text("optimizer.params.min_coeff", "0.01"),
                      r.text("optimizer.params.max_coeff", "10")),
          least != nullptr ? *least : *most);
  for (const Given* one : {least, most})
    if (one != nullptr && !r.is_settled(*one))
      is_lamb ? r.tell(*one, "optimizer.trust_bounds") : r.ignore(*one, "only Lamb reads it");
}

}  // namespace

void finish(Reading& r) {
  trust_bounds(r);
  if (r.flag("fp16.enabled")) {
    r.suggest("precision.scale_rule", "deepspeed");
    r.suggest("precision.initial_loss_scale", "65536");
    r.suggest("precision.loss_scale_window", "1000");
    r.suggest("precision.loss_scale_hysteresis", "2");
    r.suggest("precision.min_loss_scale", "1");
  }
  set_batch(r, "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps");
  scheduler(r);
  for (const std::string_view key : {"zero_optimization.mics_shard_size", "zero_optimization.zero_hpz_partition_size"})
    if (const Given* entry = r.find(key); entry != nullptr && !r.is_settled(*entry))
      r.ignore(*entry, r.count(key).value_or(1) > 1 ? "only stage 3 reads it" : "it is off");
  r.suggest("strategy", "no_shard");
  r.suggest("train.max_norm", "1.0");
  if (r.find("optimizer.type") != nullptr) r.suggest("optimizer.weight_decay", "0");
  const auto decided = [&](std::string_view key) {  // "auto" and null leave the precision to the settings
    return r.find(key) != nullptr;
  };
  if (decided("fp16.enabled") || decided("bf16.enabled")) r.suggest("precision", "32-true");
}

}  // namespace trireme::dialects::ds
