#include "trireme/settings/unread.h"

#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "settings_test.h"
#include "trireme/base/error.h"

namespace trireme {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

std::string unread(const std::string& task, std::vector<std::string> words) {
  words.insert(words.begin(), {"llama-5m", "--task", task});
  try {
    refuse_without_effect(parse_settings(words));
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

using Words = std::vector<std::string>;

// A typed setting, and what has to stand beside it.
TEST(Unread, ATypedSettingThatNothingReadsIsRefused) {
  struct Row {
    const char* task;
    Words typed, beside;
  };
  const std::vector<Row> rows = {
      {"rewards", {"--grpo.eval_samples", "4"}, {"--grpo.val_prompts", "held.jsonl"}},
      {"rewards", {"--grpo.overlong_penalty", "2"}, {"--grpo.overlong_buffer", "8"}},
      {"rewards", {"--grpo.max_resampling", "3"}, {"--grpo.dynamic_sampling", "refill"}},
      {"rewards", {"--grpo.masked_completions_count", "true"}, {"--grpo.mask_truncated_completions", "true"}},
      {"rewards", {"--grpo.sampler_is_threshold", "3"}, {"--grpo.sampler_is", "token_mask"}},
      {"rewards", {"--grpo.sampler_is_min", "0.5"}, {"--grpo.rollout_quantize", "bnb.nf4"}},
      {"rewards", {"--reward.pattern", "a+"}, {"--reward.functions", "[format]"}},
      {"rewards", {"--reward.tolerance", "0.1"}, {"--reward.functions", "[exact, number]"}},
      {"rewards", {"--reward.length", "9"}, {"--reward.functions", "[length]"}},
      {"rewards", {"--reward.answer_key", "gold"}, {"--reward.functions", "[check_answer]"}},
      {"rewards", {"--reward.command", "[judge]"}, {"--reward.functions", "[command]"}},
      {"rewards",
       {"--reward.command_timeout", "9s"},
       {"--reward.functions", "[command]", "--reward.command", "[judge]"}},
      {"preferences", {"--dpo.label_smoothing", "0.1"}, {"--dpo.loss_type", "[sigmoid, robust]"}},
      {"preferences", {"--dpo.simpo_gamma", "1"}, {"--dpo.loss_type", "[simpo]"}},
      {"preferences", {"--dpo.discopop_tau", "0.1"}, {"--dpo.loss_type", "[discopop]"}}};
  for (const Row& row : rows) {
    const std::string key = row.typed[0].substr(2), text = unread(row.task, row.typed);
    EXPECT_THAT(text, AllOf(StartsWith(key + " has no effect: "), HasSubstr(", or leave it out"))) << key;
    Words both = row.typed;
    both.insert(both.end(), row.beside.begin(), row.beside.end());
    EXPECT_EQ(unread(row.task, both), "") << key;
    EXPECT_EQ(unread("language", row.typed), "") << key;  // whose refusal is another one
  }
}

TEST(Unread, SettingsOfEveryTaskAreRefusedWhereNothingReadsThem) {
  struct Row {
    Words typed, turns_off;
    const char* way_out;
  };
  const Words relative = {"--optimizer", "Adafactor", "--optimizer.relative_step", "true"};
  const Words one_cycle = {"--train.lr_decay", "OneCycleLR"},
              fixed = {"--precision", "16-mixed", "--precision.loss_scale", "1024"},
              unscaled = {"--precision", "bf16-mixed"};
  const std::vector<Row> rows = {
      {{"--optimizer.lr", "1e-3"}, relative, "set optimizer.relative_step false"},
      {{"--optimizer.lr_scaling", "sqrt"}, relative, "set optimizer.relative_step false"},
      {{"--train.lr_decay", "linear"}, relative, "set optimizer.relative_step false"},
      {{"--train.lr_warmup_steps", "10"}, relative, "optimizer.warmup_init true"},
      {{"--train.min_lr", "1e-5"}, relative, "set optimizer.relative_step false"},
      {{"--train.lr_warmup_steps", "10"}, one_cycle, "lr_schedule.pct_start"},
      {{"--train.lr_warmup_steps", "10"}, {"--train.lr_decay", "LRRangeTest"}, "lr_schedule.step_size"},
      {{"--train.min_lr", "1e-5"}, one_cycle, "lr_schedule.final_div_factor"},
      {{"--train.min_lr", "1e-5"}, {"--train.lr_decay", "inverse_sqrt"}, "cosine"},
      {{"--precision.loss_scale", "1024"}, unscaled, "take precision 16-mixed"},
      {{"--precision.min_loss_scale", "2"}, unscaled, "take precision 16-mixed"},
      {{"--precision.initial_loss_scale", "2"}, fixed, "set precision.loss_scale null"},
      {{"--precision.loss_scale_window", "5"}, fixed, "set precision.loss_scale null"},
      {{"--precision.min_loss_scale", "2"}, fixed, "set precision.loss_scale null"},
      {{"--precision.loss_scale_hysteresis", "1"}, unscaled, "take precision 16-mixed"},
      {{"--precision.loss_scale_hysteresis", "1"}, fixed, "set precision.loss_scale null"},
      {{"--precision.consecutive_hysteresis", "true"}, unscaled, "take precision 16-mixed"},
      {{"--precision.consecutive_hysteresis", "true"}, fixed, "set precision.loss_scale null"},
      {{"--precision.scale_rule", "deepspeed"}, unscaled, "take precision 16-mixed"},
      {{"--lr_schedule.warmup_from", "1e-4"}, {"--train.lr_warmup_steps", "0"}, "give train.lr_warmup_steps above 0"},
      {{"--lr_schedule.warmup_shape", "cosine"}, {"--train.lr_warmup_steps", "0"}, "train.lr_warmup_steps above 0"},
      {{"--lr_schedule.warmup_from", "1e-4"}, relative, "set optimizer.relative_step false"},
      {{"--lr_schedule.first_step", "0"}, relative, "set optimizer.relative_step false"},
      {{"--data.val_split_fraction", "0.3"}, {"--data.val_data_path", "held.txt"}, "set data.val_data_path null"}};
  for (const Row& row : rows) {
    Words alone = row.typed;
    if (row.typed[0].starts_with("--precision.")) alone.insert(alone.end(), {"--precision", "16-mixed"});
    EXPECT_EQ(unread("language", alone), "") << row.typed[0];
    Words both = row.typed;
    both.insert(both.end(), row.turns_off.begin(), row.turns_off.end());
    EXPECT_THAT(unread("language", both), AllOf(HasSubstr(" has no effect: "), HasSubstr(row.way_out)))
        << row.typed[0] << " with " << row.turns_off[1];
  }
  EXPECT_THAT(unread("language", {"--optimizer.base_batch_size", "8"}), HasSubstr("give optimizer.lr_scaling"));
  EXPECT_EQ(unread("language", {"--optimizer.base_batch_size", "8", "--optimizer.lr_scaling", "linear"}), "");
  EXPECT_THAT(unread("language", {"--eval.evaluate_example", "random"}), HasSubstr("give eval.max_new_tokens"));
  EXPECT_EQ(unread("language", {"--train.lr_decay", "constant", "--train.min_lr", "0"}), "");
  EXPECT_EQ(unread("language", {"--train.lr_decay", "OneCycleLR", "--train.lr_warmup_steps", "0"}), "");
  EXPECT_EQ(unread("language", {"--eval.evaluate_example", "first"}), "");
  // The defaults of a setting without a value ask for nothing.
  EXPECT_EQ(unread("language", {"--train.lr_decay", "OneCycleLR", "--train.lr_warmup_steps", "auto"}), "");
  EXPECT_EQ(unread("language", {"--optimizer", "Adafactor", "--optimizer.relative_step", "true",
                                "--train.lr_warmup_steps", "auto"}),
            "");
}

TEST(Unread, NamedModulesLeaveNothingToTheFlags) {
  const Words named = {"--lora.r", "8", "--lora.target_modules", "[q_proj]"};
  for (const char* flag : {"query", "key", "value", "projection", "mlp", "head"}) {
    const Words typed = {std::string("--lora.") + flag, "true"};
    Words both = named;
    both.insert(both.end(), typed.begin(), typed.end());
    EXPECT_THAT(unread("language", both),
                StartsWith(std::string("lora.") + flag + " has no effect: lora.target_modules"));
    EXPECT_EQ(unread("language", {"--lora.r", "8", typed[0], typed[1]}), "");
  }
  EXPECT_EQ(unread("language", named), "");
}

TEST(Unread, WhatNeedsAnotherSettingIsRefusedWithoutIt) {
  const struct {
    Words typed, beside;
  } rows[] = {
      {{"--lr_schedule.decay_step_size", "100", "--train.lr_decay", "OneCycle"}, {"--lr_schedule.decay_lr_rate", "1"}},
      {{"--lr_schedule.decay_lr_rate", "1", "--train.lr_decay", "OneCycle"}, {"--lr_schedule.decay_step_size", "9"}},
      {{"--recompute.every", "2"}, {"--recompute", "full"}},
      {{"--pipeline.schedule", "zb_v"}, {"--mesh.pp", "2"}},
      {{"--pipeline.chunks", "2"}, {"--mesh.pp", "2"}},
      {{"--pipeline.split", "[4, 4]"}, {"--mesh.pp", "2"}},
      {{"--mesh.context", "ulysses"}, {"--mesh.cp", "2"}},
      {{"--profile.steps", "5"}, {"--profile", "true"}},
      {{"--profile.price", "2.5"}, {"--profile", "true"}},
      {{"--train.prometheus_address", "0.0.0.0"}, {"--train.prometheus_port", "9100"}},
      {{"--launch.notice_interval", "1s"}, {"--launch.notice_file", "stop"}},
      {{"--launch.image", "trireme:1"}, {"--launch.print", "k8s"}},
      {{"--launch.volume", "claim:/data"}, {"--launch.print", "k8s"}},
      {{"--precision.scale_rule", "deepspeed", "--precision", "32-true"}, {"--resume", "out/saved"}}};
  for (const auto& row : rows) {
    EXPECT_THAT(unread("language", row.typed),
                AllOf(StartsWith(row.typed[0].substr(2) + " has no effect: "), HasSubstr(", or leave it out")));
    Words both = row.typed;
    both.insert(both.end(), row.beside.begin(), row.beside.end());
    EXPECT_EQ(unread("language", both), "") << row.typed[0];
  }
  EXPECT_THAT(unread("language", {"--free.latent", "5"}), HasSubstr("give it to trireme generate"));
  EXPECT_THAT(unread("language", {"--free.latent_seed", "5"}), HasSubstr("give it to trireme generate"));
  // What stands for the default asks for nothing, and DeepSpeed's schedules always warm up.
  for (const Words& typed :
       {Words{"--pipeline.schedule", "1f1b"},
        {"--mesh.context", "ring"},
        {"--recompute.every", "1"},
        {"--precision.scale_rule", "torch", "--precision", "32-true"},
        {"--lr_schedule.warmup_from", "0", "--train.lr_warmup_steps", "0"},
        {"--lr_schedule.warmup_from", "1e-4", "--train.lr_warmup_steps", "0", "--train.lr_decay", "WarmupLR"}})
    EXPECT_EQ(unread("language", typed), "") << typed[0];
}

TEST(Unread, WhatAnotherSettingTurnsOffIsRefused) {
  EXPECT_THAT(unread("rewards", {"--grpo.scale_rewards", "batch", "--grpo.advantage_estimator", "rloo"}),
              HasSubstr("take the estimator grpo"));
  EXPECT_EQ(unread("rewards", {"--grpo.scale_rewards", "none", "--grpo.advantage_estimator", "rloo"}), "");
  EXPECT_THAT(unread("rewards", {"--grpo.advantage_epsilon", "0.1", "--grpo.scale_rewards", "none"}),
              HasSubstr("advantages are not divided"));
  for (const Words& typed : {Words{"--grpo.kl_loss_mode", "k3"}, {"--grpo.reference", "base"}}) {
    EXPECT_EQ(unread("rewards", typed), "");
    EXPECT_THAT(unread("rewards", {typed[0], typed[1], "--grpo.beta", "0"}), HasSubstr("give a grpo.beta above 0"));
  }
  EXPECT_THAT(unread("preferences", {"--dpo.reference", "base", "--dpo.loss_type", "[orpo, sft]"}),
              HasSubstr("compare with no reference"));
}

TEST(Unread, AFileMayHoldWhatAnotherRunReads) {
  const YamlFile file("reward: {pattern: a+, functions: [exact]}\n");
  EXPECT_EQ(unread("rewards", {"--config", file.path()}), "");
}

}  // namespace
}  // namespace trireme
