#include "trireme/settings/validate.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "settings_test.h"
#include "trireme/settings/derived.h"

namespace trireme {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(Validate, DefaultsWorkOnOneRankAndOnPowersOfTwo) {
  for (const int64_t ranks : {1, 2, 4, 8, 16}) EXPECT_EQ(verdict(Settings{}, ranks), "") << ranks;
}

TEST(Validate, ARankMayHaveOneMicroBatchLess) {
  EXPECT_EQ(verdict(Settings{}, 3), "");
  EXPECT_EQ(accumulation(Settings{}, 3), 6);  // 16 micro-batches: 6, 5 and 5
  EXPECT_EQ(describe_accumulation(Settings{}, 3), "at most 6 micro-batches");
  EXPECT_EQ(accumulation(Settings{}, 4), 4);
  EXPECT_EQ(describe_accumulation(Settings{}, 4), "4 micro-batches");
  EXPECT_EQ(verdict(Settings{}, 20), "");
  EXPECT_EQ(accumulation(Settings{}, 20), 1);
}

TEST(Validate, RanksOfPpCpAndTpShareMicroBatches) {
  Settings settings;
  settings.mesh.pp = settings.mesh.cp = settings.mesh.tp = 2;
  EXPECT_EQ(accumulation(settings, 8), 16);
  EXPECT_EQ(accumulation(settings, 16), 8);
}

TEST(Validate, MicroBatchesMustDivideTheGlobalBatch) {
  Settings settings;
  settings.train.micro_batch_size = 5;
  EXPECT_THAT(verdict(settings, 2), HasSubstr("a global batch of 64 cannot be divided into micro-batches of 5"));
  EXPECT_THAT(verdict(settings, 2), HasSubstr("60 or 65 fits"));
  settings.train.micro_batch_size = 128;
  EXPECT_THAT(verdict(settings, 1), HasSubstr(": 128 fits"));
}

TEST(Validate, StepsInsideTheBackwardPassCannotWaitForAllGradients) {
  Settings settings;
  settings.optimizer.in_backward = true;
  EXPECT_THAT(verdict(settings, 1), HasSubstr("train.max_norm 1 clips gradients to that norm"));
  EXPECT_THAT(verdict(settings, 1), HasSubstr("set train.max_norm null, or leave optimizer.in_backward out"));
  settings.train.max_norm.reset();
  EXPECT_EQ(verdict(settings, 1), "");
  settings.precision.format = model::NumberFormat::fp16_mixed;
  EXPECT_THAT(verdict(settings, 1), HasSubstr("take precision bf16-mixed or 32-true"));
  settings.precision.format = model::NumberFormat::fp16_true;
  settings.optimizer.eps = 1e-2;
  EXPECT_EQ(verdict(settings, 1), "");
  settings.precision.loss_scale = 1024;
  EXPECT_THAT(verdict(settings, 1), HasSubstr("a step with a scaled loss is skipped"));
}

TEST(Validate, HalvesNeedAnEpsThatNoVanishedMomentDividesBy) {
  Settings settings;
  settings.precision.format = model::NumberFormat::fp16_true;
  settings.optimizer.eps = 5.4e-3;
  EXPECT_THAT(verdict(settings, 1), HasSubstr("where those of gradients below 0.0055 vanish"));
  EXPECT_THAT(verdict(settings, 1), HasSubstr("set optimizer.eps to at least 0.0055, or take precision bf16-true"));
  settings.optimizer.eps = 0.0055;
  EXPECT_EQ(verdict(settings, 1), "");
  settings.optimizer.betas = {0.9, 0.95};
  settings.optimizer.eps = 7.7e-4;
  EXPECT_THAT(verdict(settings, 1), HasSubstr("set optimizer.eps to at least 0.00078"));
  settings.optimizer.name = optim::Rule::adam;
  EXPECT_THAT(verdict(settings, 1), HasSubstr("set optimizer.eps to at least 0.00078"));
  settings.optimizer.eps = 7.8e-4;
  EXPECT_EQ(verdict(settings, 1), "");
  settings.optimizer = {.name = optim::Rule::adagrad, .eps = 0.1};
  EXPECT_THAT(verdict(settings, 1), HasSubstr("keeps Adagrad's sums of squares in halves"));
  settings.optimizer = {.name = optim::Rule::sgd};
  EXPECT_EQ(verdict(settings, 1), "");
}

TEST(Validate, SeveralRulesBrokenAreAllNamed) {
  Settings settings;
  settings.train.min_lr = 1;
  settings.data.name = data::Corpus::text_files;
  settings.train.max_seq_length = 512;
  settings.model.max_position_embeddings = 256;
  settings.train.micro_batch_size = 5;
  const std::string text = verdict(settings, 3);
  EXPECT_THAT(text, HasSubstr("error: a global batch of 64 cannot be divided into micro-batches of 5"));
  EXPECT_THAT(text, HasSubstr("error: the learning rate cannot fall from 0.001 to 1"));
  EXPECT_THAT(text, HasSubstr("error: data TextFiles needs a path to read from"));
  EXPECT_THAT(text, HasSubstr("error: sequences of 512 tokens do not fit a model made for 256"));
}

TEST(Validate, CompressionNeedsABackendThatSends) {
  Settings settings;
  settings.comm.compression = Compression::bf16;
  for (const Backend backend : {Backend::automatic, Backend::gloo, Backend::dry_run}) {
    settings.comm.backend = backend;
    EXPECT_EQ(verdict(settings, 2), "");
  }
  settings.comm.backend = Backend::shm;
  EXPECT_THAT(verdict(settings, 2), HasSubstr("error: backend shm does not compress gradients"));
  EXPECT_THAT(verdict(settings, 2), HasSubstr("comm.compression bf16 needs comm.backend gloo"));
}

TEST(Validate, OnlyRanksThatThereAreAreShown) {
  Settings settings;
  const auto shown = [&](int64_t ranks) -> std::string {
    try {
      validate_shown_ranks(settings, ranks);
      return "";
    } catch (const UsageError& error) {
      return error.what();
    }
  };
  settings.launch.log_ranks = {1, 5};
  EXPECT_THAT(shown(1), HasSubstr("error: launch.log_ranks names rank 5, and there is rank 0 alone"));
  EXPECT_THAT(shown(4), HasSubstr("error: launch.log_ranks names rank 5, and there are ranks 0 to 3"));
  EXPECT_EQ(shown(8), "");
  EXPECT_EQ(verdict(settings, 4), "") << "a plan for other ranks";
  settings.launch.rdzv_endpoint = "node:1";  // other machines may join
  EXPECT_EQ(shown(4), "");
}

TEST(Validate, ARunMustKnowWhenToStop) {
  Settings settings;
  settings.model.name = "llama-5m";
  EXPECT_THROW(validate_run_length(settings), UsageError);
  settings.train.max_steps = 1;
  validate_run_length(settings);
}

TEST(Validate, ProtectionThatWouldBeNoneIsNotPromised) {
  Settings settings;
  EXPECT_EQ(settings.comm.tls, std::nullopt);  // between machines, where gloo talks
  settings.comm.backend = Backend::mpi;
  EXPECT_EQ(verdict(settings, 2), "");
  settings.comm.tls = true;
  for (const Backend backend : {Backend::automatic, Backend::gloo, Backend::shm}) {
    settings.comm.backend = backend;
    EXPECT_EQ(verdict(settings, 2), "");
  }
  settings.comm.backend = Backend::mpi;
  EXPECT_THAT(verdict(settings, 2), HasSubstr("backend mpi cannot encrypt what it sends"));
  settings.comm.backend = Backend::nccl;
  EXPECT_THAT(verdict(settings, 2), HasSubstr("comm.tls needs comm.backend gloo"));
}

TEST(Validate, AnOptimizerHasOnlyItsOwnSettings) {
  Settings settings;
  settings.optimizer = {.name = optim::Rule::sgd, .momentum = 0.9, .nesterov = true};
  EXPECT_EQ(verdict(settings, 1), "");
  settings.optimizer.betas = {0.9, 0.99};
  EXPECT_THAT(verdict(settings, 1), HasSubstr("SGD has no betas"));
  EXPECT_THAT(
      verdict(settings, 1),
      HasSubstr("optimizer.betas belongs to AdamW, Adam, Lion, LAMB, AdamW8bit, Muon; leave it out, or say auto"));
  settings.optimizer.name = optim::Rule::lion;
  EXPECT_THAT(verdict(settings, 1), HasSubstr("Lion has no momentum"));
  EXPECT_THAT(verdict(settings, 1), Not(HasSubstr("Lion has no betas")));
  settings.optimizer = {.name = optim::Rule::sgd, .nesterov = true};
  EXPECT_THAT(verdict(settings, 1), HasSubstr("optimizer.nesterov needs optimizer.momentum above 0"));
  settings.optimizer = {.name = optim::Rule::adam, .betas = {{0.9, 0.95}}, .eps = 1e-6, .weight_decay = 0.1};
  EXPECT_EQ(verdict(settings, 1), "");
}

TEST(Validate, MomentsOf8BitsNeedWeightsInFloat32) {
  Settings settings;
  settings.optimizer.name = optim::Rule::adamw8bit;
  EXPECT_EQ(verdict(settings, 1), "");
  settings.precision.format = model::NumberFormat::fp64_true;
  EXPECT_THAT(verdict(settings, 1), HasSubstr("AdamW8bit updates weights in float32"));
  settings.optimizer.name = optim::Rule::lamb;
  EXPECT_EQ(verdict(settings, 1), "");
  settings.precision.format = model::NumberFormat::bf16_true;
  EXPECT_THAT(verdict(settings, 1), HasSubstr("LAMB reads whole tensors"));
}

TEST(Validate, OptimizersThatOnlyProcessorsComputeAreRefusedOnGpus) {
  Settings settings;
  settings.accelerator = Accelerator::cuda;
  for (const auto& choice : optim::choices_of(optim::Rule{})) {
    settings.optimizer.name = choice.value;
    EXPECT_EQ(verdict(settings, 1).find("computes on processors only") == std::string::npos,
              optim::runs_on_gpu(choice.value))
        << choice.name;
  }
}

TEST(Validate, SampleRepliesAreRefusedOnGpus) {
  Settings settings;
  settings.eval.max_new_tokens = 20;
  EXPECT_EQ(verdict(settings, 1), "");
  settings.accelerator = Accelerator::cuda;
  EXPECT_THAT(verdict(settings, 1), HasSubstr("sample replies are written on processors only"));
}

TEST(Validate, GroupsOfParametersAreRead) {
  Settings settings;
  settings.optimizer.groups = {{"q_proj lr=0.5", "norm frozen"}};
  EXPECT_EQ(verdict(settings, 1), "");
  settings.optimizer.groups = {{"q_proj rate=0.5"}};
  EXPECT_THAT(verdict(settings, 1), HasSubstr("'rate=0.5' is none of lr=FACTOR, weight_decay=NUMBER and frozen"));
}

TEST(Validate, TheLearningRateIsJudgedAsItIsScaled) {
  Settings settings;
  settings.optimizer.lr = 1e-4;
  settings.train.min_lr = 6e-5;
  EXPECT_EQ(verdict(settings, 1), "");
  settings.optimizer.lr_scaling = LrScaling::linear;  // 64 of 256 sequences
  EXPECT_THAT(verdict(settings, 1), HasSubstr("the learning rate cannot fall from 2.5e-5 to 6e-5"));
}

TEST(Validate, NoScheduleBeginsAboveTheHighestRate) {
  Settings settings;
  settings.lr_schedule.warmup_from = 2e-3;
  EXPECT_THAT(verdict(settings, 1),
              HasSubstr("lr_schedule.warmup_from 0.002 is above the highest learning rate, 0.001"));
  settings.lr_schedule.warmup_from = 1e-3;
  EXPECT_EQ(verdict(settings, 1), "");
  settings.train.lr_decay = LrDecay::one_cycle;
  settings.lr_schedule = {.cycle_min_lr = 2e-3};
  EXPECT_THAT(verdict(settings, 1), HasSubstr("lr_schedule.cycle_min_lr must not exceed optimizer.lr"));
}

RC_GTEST_PROP(Validate, ItAcceptsExactlyTheBatchesThatAreProducts, ()) {
  Settings settings;
  settings.train.global_batch_size = *rc::gen::inRange<int64_t>(1, 200);
  settings.train.micro_batch_size = *rc::gen::inRange<int64_t>(1, 20);
  const auto ranks = *rc::gen::inRange<int64_t>(1, 20);
  bool is_product = false;
  for (int64_t steps = 1; steps <= 200; ++steps) {
    is_product |= steps * settings.train.micro_batch_size == settings.train.global_batch_size;
  }
  RC_ASSERT(verdict(settings, ranks).empty() == is_product);
  if (is_product) {  // the busiest rank's rounds hold all micro-batches, and one round fewer does not
    const int64_t round = ranks * settings.train.micro_batch_size;
    RC_ASSERT(accumulation(settings, ranks) * round >= settings.train.global_batch_size);
    RC_ASSERT((accumulation(settings, ranks) - 1) * round < settings.train.global_batch_size);
  }
}

}  // namespace
}  // namespace trireme
