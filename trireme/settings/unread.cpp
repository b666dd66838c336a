#include "trireme/settings/unread.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <string_view>

#include "trireme/base/error.h"
#include "trireme/config/value.h"
#include "trireme/optim/settings_lr.h"
#include "trireme/settings/derived.h"

namespace trireme {
namespace {

using train::Learning;

using Words = std::initializer_list<std::string_view>;

bool names_any(const std::vector<std::string>& given, Words wanted) {
  return std::ranges::any_of(wanted, [&](std::string_view name) { return std::ranges::count(given, name) > 0; });
}

bool uses_reward(const Settings& s, Words functions) {
  return s.reward.functions && names_any(*s.reward.functions, functions);
}

bool uses_loss(const Settings& s, Words losses) { return names_any(s.dpo.loss_type, losses); }

bool has_reference_loss(const Settings& s) {
  constexpr std::string_view kWithout[] = {"sft", "orpo", "simpo"};
  return std::ranges::any_of(s.dpo.loss_type, [&](const std::string& loss) {
    return std::ranges::find(kWithout, loss) == std::end(kWithout);
  });
}

bool divides_advantages(const Settings& s) {
  return s.grpo.advantage_estimator == train::AdvantageEstimator::grpo &&
         s.grpo.scale_rewards != train::ScaleRewards::none;
}

bool corrects_for_sampling(const Settings& s) { return s.grpo.correction() != train::SamplerCorrection::none; }

bool has_no_rate_of_its_own(const Settings& s) { return !s.optimizer.relative_step.value_or(false); }

// No steps ask for nothing.
bool warms_up_or_has_no_steps(const Settings& s) {
  return s.train.lr_warmup_steps == 0 || optim::warms_up(s.train.lr_decay);
}

// A rate that stays has no end to tell, and 0 asks for nothing.
bool ends_at_or_needs_no_min_lr(const Settings& s) {
  return optim::ends_at_min_lr(s.train.lr_decay) || s.train.lr_decay == optim::LrDecay::constant ||
         s.train.min_lr.value_or(0) == 0;
}

// DeepSpeed's schedules warm up over two steps at least. Those that rise by themselves refuse the setting.
bool warms_up_from_somewhere(const Settings& s) {
  using optim::LrDecay;
  const LrDecay decay = s.train.lr_decay;
  return s.train.lr_warmup_steps != 0 || !optim::warms_up(decay) || decay == LrDecay::warmup_lr ||
         decay == LrDecay::warmup_decay_lr || decay == LrDecay::warmup_cosine_lr;
}

// Two numbers say how OneCycle goes on after the cycle. Other schedules refuse both.
bool lowers_after_cycle(const Settings& s) {
  const optim::LrScheduleSettings& o = s.lr_schedule;
  return s.train.lr_decay != optim::LrDecay::one_cycle ||
         (o.decay_step_size.value_or(0) > 0) == (o.decay_lr_rate.value_or(0) > 0);
}

bool has_stages(const Settings& s) { return s.mesh.pp.value_or(1) > 1; }

bool prints_for_k8s(const Settings& s) { return s.launch.print == launch::JobKind::k8s; }

struct ReadBy {
  std::string_view key;  ///< with a * at its end: all that begin so
  std::optional<Learning> task;  ///< absent: every one
  bool (*is_read)(const Settings&);  ///< or asks for nothing
  std::string_view because, way_out;
};

constexpr std::string_view kNothingHeldOut = "nothing is held out", kNoScale = "advantages are not divided",
                           kNoDistance = "grpo.beta is 0, so there is no reference",
                           kGiveBeta = "give a grpo.beta above 0",
                           kNoCorrection = "answers are not weighed for how they were drawn",
                           kGiveCorrection = "give grpo.sampler_is, for instance token_truncate";

constexpr std::string_view kOwnRate = "Adafactor's relative steps have a rate of their own",
                           kNoRelative = "set optimizer.relative_step false",
                           kOneScale = "precision.loss_scale keeps one scale for the whole run",
                           kUnscaled = "this precision scales no loss", kScaled = "take precision 16-mixed or 16-true",
                           kNoFixedScale = "set precision.loss_scale null";

constexpr std::string_view kNamesModules = "lora.target_modules says which modules have adapters",
                           kNoTargets = "name its modules there";

bool names_no_targets(const Settings& s) { return !s.lora.target_modules; }

constexpr std::string_view kNoWarmup = "the learning rate has no warm-up",
                           kGiveWarmup = "give train.lr_warmup_steps above 0", kNoPipeline = "there is no pipeline",
                           kGivePipeline = "give mesh.pp above 1", kNotMeasured = "nothing is measured",
                           kMeasure = "give --profile true", kNoPods = "only launch.print k8s reads it",
                           kPrint = "give launch.print k8s",
                           kNoNewTokens = "only trireme generate chooses codes of tokens",
                           kGenerate = "give it to trireme generate";

const ReadBy kReadBy[] = {
    {"optimizer.lr", {}, has_no_rate_of_its_own, kOwnRate, kNoRelative},
    {"optimizer.lr_scaling",
     {},
     [](const Settings& s) { return has_no_rate_of_its_own(s) || s.optimizer.lr_scaling == optim::LrScaling::none; },
     kOwnRate,
     kNoRelative},
    {"train.lr_decay", {}, has_no_rate_of_its_own, kOwnRate, kNoRelative},
    {"train.lr_warmup_steps",
     {},
     [](const Settings& s) { return has_no_rate_of_its_own(s) || s.train.lr_warmup_steps == 0; },
     kOwnRate,
     "take optimizer.warmup_init true"},
    {"train.lr_warmup_steps",
     {},
     warms_up_or_has_no_steps,
     "this train.lr_decay rises by itself",
     "say how with lr_schedule.pct_start (OneCycleLR) or lr_schedule.step_size"},
    {"train.min_lr",
     {},
     [](const Settings& s) { return has_no_rate_of_its_own(s) || s.train.min_lr.value_or(0) == 0; },
     kOwnRate,
     kNoRelative},
    {"train.min_lr",
     {},
     ends_at_or_needs_no_min_lr,
     "this train.lr_decay does not end at it",
     "take cosine, linear, polynomial, wsd or WarmupCosineLR, or with OneCycleLR give lr_schedule.final_div_factor"},
    {"lr_schedule.*", {}, has_no_rate_of_its_own, kOwnRate, kNoRelative},
    {"lr_schedule.warmup_from",
     {},
     [](const Settings& s) { return warms_up_from_somewhere(s) || s.lr_schedule.warmup_from == 0; },
     kNoWarmup,
     kGiveWarmup},
    {"lr_schedule.warmup_shape", {}, warms_up_from_somewhere, kNoWarmup, kGiveWarmup},
    {"lr_schedule.decay_step_size",
     {},
     [](const Settings& s) { return lowers_after_cycle(s) || s.lr_schedule.decay_step_size.value_or(0) == 0; },
     "the learning rate stays after the cycle",
     "give lr_schedule.decay_lr_rate"},
    {"lr_schedule.decay_lr_rate",
     {},
     [](const Settings& s) { return lowers_after_cycle(s) || s.lr_schedule.decay_lr_rate.value_or(0) == 0; },
     "the learning rate stays after the cycle",
     "give lr_schedule.decay_step_size"},
    {"optimizer.base_batch_size",
     {},
     [](const Settings& s) { return s.optimizer.lr_scaling != optim::LrScaling::none; },
     "the learning rate does not follow the batch",
     "give optimizer.lr_scaling linear or sqrt"},
    {"precision.loss_scale",
     {},
     [](const Settings& s) { return scales_loss(s) || !s.precision.loss_scale; },
     kUnscaled,
     kScaled},
    {"precision.initial_loss_scale", {}, scales_loss, kUnscaled, kScaled},
    {"precision.loss_scale_window", {}, scales_loss, kUnscaled, kScaled},
    {"precision.min_loss_scale", {}, scales_loss, kUnscaled, kScaled},
    {"precision.initial_loss_scale",
     {},
     [](const Settings& s) { return !s.precision.loss_scale; },
     kOneScale,
     kNoFixedScale},
    {"precision.loss_scale_window",
     {},
     [](const Settings& s) { return !s.precision.loss_scale; },
     kOneScale,
     kNoFixedScale},
    {"precision.min_loss_scale",
     {},
     [](const Settings& s) { return !s.precision.loss_scale; },
     kOneScale,
     kNoFixedScale},
    {"precision.loss_scale_hysteresis", {}, scales_loss, kUnscaled, kScaled},
    {"precision.loss_scale_hysteresis",
     {},
     [](const Settings& s) { return !s.precision.loss_scale; },
     kOneScale,
     kNoFixedScale},
    {"precision.consecutive_hysteresis",
     {},
     [](const Settings& s) { return scales_loss(s) || !s.precision.consecutive_hysteresis; },
     kUnscaled,
     kScaled},
    {"precision.consecutive_hysteresis",
     {},
     [](const Settings& s) { return !s.precision.loss_scale || !s.precision.consecutive_hysteresis; },
     kOneScale,
     kNoFixedScale},
    // Where a run goes on, it also says whether the learning rate waits for the steps that were skipped.
    {"precision.scale_rule",
     {},
     [](const Settings& s) {
       return scales_loss(s) || s.resume.from != train::Resume::From::nothing ||
              s.precision.scale_rule == model::ScaleRule::torch;
     },
     kUnscaled,
     kScaled},
    {"recompute.every",
     {},
     [](const Settings& s) { return s.recompute.mode != schedule::Recompute::none || s.recompute.every == 1; },
     "nothing is computed again",
     "take recompute full or selective"},
    {"pipeline.schedule",
     {},
     [](const Settings& s) { return has_stages(s) || s.pipeline.schedule == schedule::PipelineSettings{}.schedule; },
     kNoPipeline,
     kGivePipeline},
    {"pipeline.chunks",
     {},
     [](const Settings& s) { return has_stages(s) || s.pipeline.chunks <= 1; },
     kNoPipeline,
     kGivePipeline},
    {"pipeline.split", {}, has_stages, kNoPipeline, kGivePipeline},
    {"mesh.context",
     {},
     [](const Settings& s) { return s.mesh.cp.value_or(1) > 1 || s.mesh.context == plan::MeshSettings{}.context; },
     "each rank has whole sequences",
     "give mesh.cp above 1"},
    {"profile.steps", {}, [](const Settings& s) { return s.profile.measure; }, kNotMeasured, kMeasure},
    {"profile.price", {}, [](const Settings& s) { return s.profile.measure; }, kNotMeasured, kMeasure},
    {"train.prometheus_address",
     {},
     [](const Settings& s) { return s.train.prometheus_port.has_value(); },
     "no port is opened",
     "give train.prometheus_port"},
    {"launch.notice_interval",
     {},
     [](const Settings& s) { return s.launch.notice_file || s.launch.notice_url; },
     "no notice is looked for",
     "give launch.notice_file or launch.notice_url"},
    {"launch.image", {}, prints_for_k8s, kNoPods, kPrint},
    {"launch.volume", {}, prints_for_k8s, kNoPods, kPrint},
    {"free.latent", {}, [](const Settings&) { return false; }, kNoNewTokens, kGenerate},
    {"free.latent_seed", {}, [](const Settings&) { return false; }, kNoNewTokens, kGenerate},
    {"data.val_split_fraction",
     {},
     [](const Settings& s) { return !s.data.val_data_path; },
     "data.val_data_path is what is held out",
     "set data.val_data_path null"},
    {"eval.evaluate_example",
     {},
     [](const Settings& s) {
       return s.eval.max_new_tokens.has_value() || s.eval.evaluate_example == train::EvalSettings{}.evaluate_example;
     },
     "no sample reply is written",
     "give eval.max_new_tokens"},
    {"lora.query", {}, names_no_targets, kNamesModules, kNoTargets},
    {"lora.key", {}, [](const Settings& s) { return names_no_targets(s) || !s.lora.key; }, kNamesModules, kNoTargets},
    {"lora.value", {}, names_no_targets, kNamesModules, kNoTargets},
    {"lora.projection",
     {},
     [](const Settings& s) { return names_no_targets(s) || !s.lora.projection; },
     kNamesModules,
     kNoTargets},
    {"lora.mlp", {}, [](const Settings& s) { return names_no_targets(s) || !s.lora.mlp; }, kNamesModules, kNoTargets},
    {"lora.head", {}, [](const Settings& s) { return names_no_targets(s) || !s.lora.head; }, kNamesModules, kNoTargets},
    {"grpo.eval_samples", Learning::rewards,
     [](const Settings& s) { return s.grpo.eval_samples == 0 || s.grpo.val_prompts.has_value(); }, kNothingHeldOut,
     "name a file of prompts with grpo.val_prompts"},
    {"grpo.scale_rewards", Learning::rewards,
     [](const Settings& s) { return divides_advantages(s) || s.grpo.scale_rewards == train::ScaleRewards::none; },
     "grpo.advantage_estimator does not divide advantages", "take the estimator grpo"},
    {"grpo.advantage_epsilon", Learning::rewards, divides_advantages, kNoScale,
     "take grpo.advantage_estimator grpo and a grpo.scale_rewards other than none"},
    {"grpo.max_resampling", Learning::rewards,
     [](const Settings& s) { return s.grpo.dynamic_sampling == train::DynamicSampling::refill; },
     "no group is replaced by another", "give grpo.dynamic_sampling refill"},
    {"grpo.overlong_penalty", Learning::rewards, [](const Settings& s) { return s.grpo.overlong_buffer.has_value(); },
     "no tokens of an answer cost", "give grpo.overlong_buffer, the last tokens that do"},
    {"grpo.masked_completions_count", Learning::rewards,
     [](const Settings& s) { return s.grpo.mask_truncated_completions || !s.grpo.masked_completions_count; },
     "no answer is masked", "give grpo.mask_truncated_completions true"},
    {"grpo.sampler_is_threshold", Learning::rewards, corrects_for_sampling, kNoCorrection, kGiveCorrection},
    {"grpo.sampler_is_min", Learning::rewards, corrects_for_sampling, kNoCorrection, kGiveCorrection},
    {"grpo.kl_loss_mode", Learning::rewards, [](const Settings& s) { return s.grpo.beta > 0; }, kNoDistance, kGiveBeta},
    {"grpo.use_bias_correction_kl", Learning::rewards,
     [](const Settings& s) { return s.grpo.beta > 0 || !s.grpo.use_bias_correction_kl; }, kNoDistance, kGiveBeta},
    {"grpo.reference", Learning::rewards, [](const Settings& s) { return s.grpo.beta > 0 || !s.grpo.reference; },
     kNoDistance, kGiveBeta},
    {"reward.answer_key", Learning::rewards,
     [](const Settings& s) {
       return s.reward.functions && std::ranges::any_of(*s.reward.functions, rewards::reads_answer);
     },
     "no reward reads the right answer", "name one in reward.functions, for instance [exact]"},
    {"reward.tolerance", Learning::rewards,
     [](const Settings& s) { return s.reward.tolerance == 0 || uses_reward(s, {"number"}); },
     "only the reward number reads it", "name number in reward.functions"},
    {"reward.pattern", Learning::rewards,
     [](const Settings& s) { return !s.reward.pattern || uses_reward(s, {"format"}); },
     "only the reward format reads it", "name format in reward.functions"},
    {"reward.length", Learning::rewards,
     [](const Settings& s) { return !s.reward.length || uses_reward(s, {"length"}); },
     "only the reward length reads it", "name length in reward.functions"},
    {"reward.command", Learning::rewards,
     [](const Settings& s) { return !s.reward.command || uses_reward(s, {"command"}); },
     "no answer is given to the program", "name command in reward.functions"},
    {"reward.command_timeout", Learning::rewards, [](const Settings& s) { return uses_reward(s, {"command"}); },
     "no program judges answers", "name command in reward.functions"},
    {"reward.command_memory", Learning::rewards,
     [](const Settings& s) { return !s.reward.command_memory || uses_reward(s, {"command"}); },
     "no program judges answers", "name command in reward.functions"},
    {"dpo.label_smoothing", Learning::preferences,
     [](const Settings& s) { return s.dpo.label_smoothing == 0 || uses_loss(s, {"robust", "exo_pair", "simpo"}); },
     "only the losses robust, exo_pair and simpo read it, as in TRL", "name one of them in dpo.loss_type"},
    {"dpo.simpo_gamma", Learning::preferences, [](const Settings& s) { return uses_loss(s, {"simpo"}); },
     "only the loss simpo reads it", "name simpo in dpo.loss_type"},
    {"dpo.discopop_tau", Learning::preferences, [](const Settings& s) { return uses_loss(s, {"discopop"}); },
     "only the loss discopop reads it", "name discopop in dpo.loss_type"},
    {"dpo.reference", Learning::preferences,
     [](const Settings& s) { return !s.dpo.reference || has_reference_loss(s); },
     "the losses sft, orpo and simpo compare with no reference", "name another loss in dpo.loss_type"}};

}  // namespace

void refuse_without_effect(const ParsedSettings& parsed) {
  Settings copy = parsed.settings;
  const config::Table table = declare(copy);
  const auto check = [&](const ReadBy& rule, const config::Setting& setting) {
    if (config::is_absent(setting)) return;  // null or auto, which asks for nothing
    const auto source = parsed.provenance.find(std::string(setting.key));
    if (source == parsed.provenance.end() || source->second.kind != config::Source::Kind::command_line) return;
    if (parsed.settings.task == rule.task.value_or(parsed.settings.task) && !rule.is_read(parsed.settings))
      throw UsageError(
          fmt::format("{} has no effect: {}; {}, or leave it out", setting.key, rule.because, rule.way_out));
  };
  for (const ReadBy& rule : kReadBy) {
    if (!rule.key.ends_with('*')) {
      check(rule, *table.find(rule.key));
      continue;
    }
    table.for_each([&](const config::Section&, const config::Setting& setting) {
      if (setting.key.starts_with(rule.key.substr(0, rule.key.size() - 1))) check(rule, setting);
    });
  }
}

}  // namespace trireme
