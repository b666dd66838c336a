// What TRL's keys of batches, lengths, adapters, evaluations, saves and its sampler mean together. Source: TRL 1.16,
// trl/trainer/grpo_config.py; transformers 5.23, training_args.py.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "trireme/base/text.h"
#include "trireme/dialects/batch.h"
#include "trireme/dialects/trl_rules.h"

namespace trireme::dialects {

using config::Given;

// A batch is answers: a step's are m x ranks x g of them, and a rollout's as many for each of its steps.
void trl_batches(Reading& r) {
  const Given *m = r.find("per_device_train_batch_size"), *g = r.find("gradient_accumulation_steps"),
              *whole = r.find("generation_batch_size"), *steps = r.find("steps_per_generation"),
              *group = r.find("num_generations");
  const auto one_of = [&] {
    for (const Given* entry : {m, g, whole, steps, group})
      if (entry != nullptr) return entry;
    return static_cast<const Given*>(nullptr);
  }();
  for (const Given* entry : {m, g, whole, steps, group})
    if (entry != nullptr && !r.count(entry->key)) return;  // refused already
  const int64_t ranks = r.data_ranks(), size = m != nullptr ? r.count(m->key).value_or(1) : 8,
                accumulation = g != nullptr ? r.count(g->key).value_or(1) : 1,
                answers = group != nullptr ? r.count(group->key).value_or(1) : 8,
                rounds = steps != nullptr ? r.count(steps->key).value_or(1) : accumulation;
  constexpr int64_t kMost = int64_t{1} << 20;
  for (const int64_t number : {size, accumulation, answers, rounds})
    if (number < 1 || number > kMost)
      return r.refuse(*one_of, fmt::format("batches are at least 1 and at most {}, not {}", kMost, number), "");
  const int64_t step = size * accumulation * ranks,
                rollout = whole != nullptr ? r.count(whole->key).value_or(1) : size * rounds * ranks;
  if (one_of == nullptr) {
    r.suggest("grpo.batch_size", std::to_string(std::max<int64_t>(1, rollout / answers)));
    return r.suggest("train.micro_batch_size", std::to_string(size));
  }
  for (const int64_t number : {step, rollout})
    if (number < 1 || number % answers != 0)
      return r.refuse(*one_of,
                      fmt::format("{} on {} cannot be divided into groups of {}", base::plural(number, "answer"),
                                  base::plural(ranks, "rank"), answers),
                      std::string("per_device_train_batch_size x gradient_accumulation_steps x ranks is a multiple of "
                                  "num_generations") +
                          (ranks == 1 && !r.is_given("devices") ? "; --devices says how many ranks there are" : ""));
  if (rollout % step != 0)
    return r.refuse(*one_of, fmt::format("a rollout of {} answers is no whole number of steps of {}", rollout, step),
                    "generation_batch_size is a multiple of the answers of a step");
  r.set("grpo.batch_size", std::to_string(rollout / answers), *one_of);
  r.set("grpo.mini_batch_size", std::to_string(step / answers), *one_of);
  if (m != nullptr) r.set("train.micro_batch_size", std::to_string(size), *m);
  for (const Given* entry : {g, whole, steps})
    if (entry != nullptr && entry != one_of) r.tell(*entry, "grpo.batch_size, grpo.mini_batch_size");
}

void trl_length(Reading& r) {
  const Given *steps = r.find("max_steps"), *epochs = r.find("num_train_epochs");
  const double number = r.number("max_steps").value_or(-1);
  if (number >= 9e18)
    return r.refuse(*steps, fmt::format("max_steps {} is too large", steps->text), "give num_train_epochs");
  const auto given = static_cast<int64_t>(number);
  if (given > 0) r.set("train.max_steps", std::to_string(given), *steps);
  if (steps != nullptr && given <= 0) r.ignore(*steps, "num_train_epochs counts");
  if (epochs != nullptr) {
    if (given > 0) return r.ignore(*epochs, "max_steps counts");
    const double rounds = r.number(epochs->key).value_or(0);
    if (!(rounds >= 1 && rounds < 9e18) || rounds != std::floor(rounds))
      return r.refuse(*epochs, fmt::format("num_train_epochs {} is no whole number", epochs->text), "give max_steps");
    r.set("train.epochs", std::to_string(static_cast<int64_t>(rounds)), *epochs);
  } else if (given <= 0) {
    r.suggest("train.epochs", "3");
  }
}

void trl_adapters(Reading& r) {
  const bool on = r.flag("use_peft");
  const auto put = [&](std::string_view theirs, std::string_view ours, std::string_view otherwise) {
    const Given* entry = r.find(theirs);
    if (entry == nullptr) return on && !otherwise.empty() ? r.suggest(ours, otherwise) : void();
    on ? r.set(ours, entry->text, *entry) : r.ignore(*entry, "use_peft is off");
  };
  if (const Given* entry = r.find("use_peft")) on ? r.tell(*entry, "lora.r") : r.ignore(*entry, "it is off");
  put("lora_r", "lora.r", "16");
  put("lora_alpha", "lora.alpha", "32");
  put("lora_dropout", "lora.dropout", "");
  put("lora_target_modules", "lora.target_modules", "");
  put("lora_modules_to_save", "lora.modules_to_save", "");
  put("use_rslora", "lora.rslora", "");
  put("use_dora", "lora.dora", "");
}

// By default transformers does not evaluate during a run.
void trl_evaluations(Reading& r) {
  constexpr std::string_view kNever = "1000000000000000";  // beyond every run
  const Given *when = r.find("eval_strategy"), *steps = r.find("eval_steps");
  const std::string strategy = lower(r.text("eval_strategy", "no"));
  if (steps != nullptr && r.is_settled(*steps)) return;  // refused
  if (strategy == "steps") {
    steps != nullptr ? r.tell(*when, "eval.interval") : r.set("eval.interval", r.text("logging_steps", "10"), *when);
    if (steps != nullptr) r.set("eval.interval", steps->text, *steps);
    return;
  }
  if (steps != nullptr) r.ignore(*steps, "eval_strategy is not steps");
  if (strategy != "no" && strategy != "false")
    return r.refuse(*when, fmt::format("evaluations come after so many steps, not by {}", when->text),
                    "say eval_strategy: steps, and eval_steps");
  if (when == nullptr) return r.suggest("eval.interval", kNever);
  r.set("eval.interval", kNever, *when);
  r.tell(*when, "so that one evaluation ends the run");
}

void trl_saves(Reading& r) {
  const Given* entry = r.find("save_strategy");
  const std::string when = lower(r.text("save_strategy", "steps"));
  if (when == "steps") {
    r.suggest("train.save_interval", "500");
    return entry != nullptr ? r.tell(*entry, "train.save_interval") : void();
  }
  if (when == "no" || when == "false") return r.set("train.save_interval", "0", *entry);
  r.refuse(*entry, fmt::format("checkpoints come after so many steps, not by {}", entry->text),
           "say save_strategy: steps, and save_steps");
}

// What corrects for a sampler with probabilities of its own. TRL looks at it with vLLM only.
void trl_sampler(Reading& r) {
  const bool sampler = r.flag("use_vllm"), corrects = r.flag("vllm_importance_sampling_correction", true);
  const auto takes = [&](const Given* entry) {
    if (entry == nullptr) return false;
    if (!sampler) r.ignore(*entry, "use_vllm is off");
    if (sampler && !corrects) r.ignore(*entry, "vllm_importance_sampling_correction is off");
    return sampler && corrects;
  };
  const Given *whether = r.find("vllm_importance_sampling_correction"), *mode = r.find("vllm_importance_sampling_mode"),
              *cap = r.find("vllm_importance_sampling_cap"), *most = r.find("vllm_importance_sampling_clip_max"),
              *least = r.find("vllm_importance_sampling_clip_min");
  if (takes(mode)) r.set("grpo.sampler_is", mode->text, *mode);
  if (takes(cap)) r.set("grpo.sampler_is_threshold", cap->text, *cap);
  if (takes(most))
    cap != nullptr ? r.ignore(*most, "vllm_importance_sampling_cap counts")
                   : r.set("grpo.sampler_is_threshold", most->text, *most);
  if (takes(least)) r.set("grpo.sampler_is_min", least->text, *least);
  r.suggest("grpo.sampler_is_threshold", "3.0");
  if (whether == nullptr) return;
  if (!sampler) return r.ignore(*whether, "use_vllm is off");
  if (!corrects) return r.set("grpo.sampler_is", "none", *whether);
  mode != nullptr ? r.tell(*whether, "grpo.sampler_is") : r.set("grpo.sampler_is", "sequence_mask", *whether);
}

}  // namespace trireme::dialects
