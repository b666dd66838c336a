#include "settings_test.h"

namespace trireme {
namespace {

using testing::HasSubstr;

struct WarningCase {
  const char* arguments;
  int64_t ranks;
  const char* text;  // of the only warning; empty: there is none
};

TEST(Warnings, SayWhatWorksButWastesTimeOrHasNoEffect) {
  // 64 sequences in micro-batches of 4 are 16.
  const std::vector<WarningCase> cases = {
      {"", 4, ""},
      {"", 3,
       "2 of 3 data-parallel ranks idle in the last of 6 micro-batches a step: 16 micro-batches do not divide among "
       "them; train.global_batch_size 60 or 72 keeps all busy"},
      {"", 20, "4 of 20 data-parallel ranks idle in the last of 1 micro-batch a step: 16 micro-batches do not divide"},
      {"train.global_batch_size=4", 2,
       "1 of 2 data-parallel ranks idles in the last of 1 micro-batch a step: 1 micro-batch does not divide among "
       "them; train.global_batch_size 8 keeps all busy"},
      {"task=rewards grpo.prompts=p.jsonl reward.functions=[exact]", 3,
       "another grpo.mini_batch_size or a smaller train.micro_batch_size keeps all busy"},
      {"task=rewards grpo.prompts=p.jsonl reward.functions=[exact] train.micro_batch_size=1", 3,
       "; another grpo.mini_batch_size keeps all busy"},
      {"task=rewards grpo.prompts=p.jsonl reward.functions=[exact] mesh.pp=17", 17,
       "a larger grpo.mini_batch_size or a smaller train.micro_batch_size fills it"},
      {"mesh.pp=16", 16, ""},
      {"mesh.pp=17", 17,
       "a pipeline of 17 ranks (1f1b) fills with 17 micro-batches, and a step has 16: ranks wait for each other; "
       "train.global_batch_size 68 fills it"},
      {"mesh.pp=8 pipeline.schedule=zb_v", 8, ""},
      {"mesh.pp=9 pipeline.schedule=zb_v", 9, "a pipeline of 9 ranks (zb_v) fills with 17 micro-batches"},
      {"mesh.pp=8 mesh.shard=2 pipeline.schedule=zb_v", 16, "train.global_batch_size 120 fills it"},
      {"recompute=full recompute.values=mid", 1, "recompute.values is read by recompute selective only"},
      {"recompute=selective recompute.values=mid", 1, ""},
      {"recompute=full", 1, ""},
      {"train.max_time=2s train.lr_decay=linear", 1,
       "and train.lr_decay linear does not lower it; give train.max_steps"},
      {"train.max_time=2s train.max_steps=900 train.lr_decay=linear", 1, ""},
      {"train.max_steps=20", 1,
       "the warm-up of 100 steps is longer than the run of 20 steps, so the learning rate does not reach "
       "optimizer.lr; give a smaller train.lr_warmup_steps"},
      {"train.max_steps=100", 1, "the warm-up takes all 100 steps of the run, so the learning rate only rises"},
      {"train.max_steps=101", 1, ""},
      {"train.max_steps=20 train.lr_warmup_steps=2", 1, ""},
      {"train.max_steps=20 train.lr_decay=OneCycleLR", 1, ""},
      {"train.max_steps=500 train.lr_decay=WarmupLR", 1, "the warm-up of 1,000 steps is longer"},
      {"train.max_steps=20 optimizer=Adafactor optimizer.relative_step=true", 1, ""},
      {"train.max_time=2s train.lr_decay=constant", 1, ""},
      {"task=rewards", 1, ""},
      {"task=rewards grpo.kl_loss_mode=kl", 1,
       "grpo.kl_loss_mode kl measures the distance to the reference and does not pull, so grpo.beta 0.04 adds noise "
       "only; take low_var_kl, or grpo.use_bias_correction_kl true"},
      {"task=rewards grpo.kl_loss_mode=kl grpo.use_bias_correction_kl=true", 1, ""},
      {"task=rewards grpo.kl_loss_mode=kl grpo.beta=0", 1, ""},
      {"task=rewards grpo.kl_loss_mode=mse_kl", 1, ""},
      {"grpo.kl_loss_mode=kl", 1, ""},
  };
  for (const WarningCase& c : cases) {
    const Settings settings = settings_from(c.arguments);
    ASSERT_EQ(verdict(settings, c.ranks), "") << c.arguments;
    const std::vector<std::string> found = warnings(settings, c.ranks);
    ASSERT_EQ(found.size(), *c.text == 0 ? 0U : 1U) << c.arguments;
    for (const std::string& text : found) EXPECT_THAT(text, HasSubstr(c.text)) << c.arguments;
  }
}

TEST(Warnings, ARunMayKnowItsStepsByItself) {
  const Settings settings = settings_from("train.epochs=2");
  EXPECT_EQ(warnings(settings, 1).size(), 0U);
  EXPECT_EQ(warnings(settings, 1, 0).size(), 0U);
  EXPECT_EQ(warnings(settings, 1, 7).size(), 1U);
}

}  // namespace
}  // namespace trireme
