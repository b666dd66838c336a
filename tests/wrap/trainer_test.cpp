// What a Trainer refuses before its first step, and where its checkpoints go on.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <limits>

#include "support.h"
#include "trireme/base/error.h"
#include "trireme/train/trainer_checkpoint.h"

namespace trireme::engine {
namespace {

using testing::HasSubstr;

std::string refusal_of(const TrainerOptions& options) {
  return message_of<UsageError>([&] { Trainer(build_model(two_layers(), kExample, options.precision), options); });
}

TEST(Trainer, RefusesNumbersThatSettingsRefuse) {
  const double none = std::numeric_limits<double>::quiet_NaN();
  for (const double max_norm : {-1.0, 0.0, none})
    EXPECT_EQ(refusal_of({.max_norm = max_norm}),
              fmt::format("[trainer] max_norm must be above 0, not {}; leave it out for no clipping", max_norm));
  const std::vector<std::pair<optim::OptimizerOptions, const char*>> optimizers = {
      {{.lr = 0, .beta1 = 1, .step = 0}, "optimizer.beta1 must be at least 0 and below 1, not 1"},
      {{.lr = 0, .beta2 = -0.5, .step = 0}, "optimizer.beta2 must be at least 0 and below 1, not -0.5"},
      {{.lr = 0, .eps = -1, .step = 0}, "optimizer.eps must be above 0, not -1"},
      {{.lr = 0, .weight_decay = none, .step = 0}, "optimizer.weight_decay must be at least 0, not nan"},
      {{.lr = 0, .momentum = 1, .step = 0}, "optimizer.momentum must be at least 0 and below 1, not 1"},
      {{.lr = 0, .trust_bounds = {2, 1}, .step = 0}, "the lower bound 2 above the upper one, 1"},
      {{.rule = optim::Rule::sgd, .lr = 0, .nesterov = true, .step = 0}, "set it above 0, for instance 0.9"},
      {{.rule = optim::Rule::adafactor, .lr = 0, .warmup_init = true, .step = 0}, "set optimizer.relative_step too"}};
  for (const auto& [optimizer, expected] : optimizers)
    EXPECT_THAT(refusal_of({.optimizer = optimizer}), HasSubstr(expected));
  for (const optim::Rule rule : {optim::Rule::adamw, optim::Rule::adam, optim::Rule::sgd, optim::Rule::lion,
                                 optim::Rule::adagrad, optim::Rule::lars, optim::Rule::lamb, optim::Rule::adafactor})
    EXPECT_EQ(refusal_of({.optimizer = optim::options_of(rule)}), "nothing was thrown") << static_cast<int>(rule);
  using model::ScaleRule;
  const std::vector<std::pair<optim::LossScaleOptions, const char*>> scales = {
      {{.initial = -2}, "loss_scale.initial=-2 must be a power of two"},
      {{.initial = 1000}, "loss_scale.initial=1000 must be a power of two"},
      {{.initial = 1, .minimum = 2}, "loss_scale.minimum=2 is above loss_scale.initial=1"},
      {{.rule = ScaleRule::deepspeed, .window = 0}, "loss_scale.window must be at least 1, not 0"},
      {{.rule = ScaleRule::deepspeed, .hysteresis = 0}, "loss_scale.hysteresis must be at least 1, not 0"},
      {{.hysteresis = 2}, "set loss_scale.rule to deepspeed"}};
  for (const auto& [scale, expected] : scales) EXPECT_THAT(refusal_of({.loss_scale = scale}), HasSubstr(expected));
  EXPECT_THAT(refusal_of({.recompute = {.mode = schedule::Recompute::full, .every = 0}}),
              HasSubstr("[trainer] recompute.every must be at least 1, not 0"));
  EXPECT_THAT(refusal_of({.offload = {.optimizer = schedule::Tier::cpu, .ratio = -1}}),
              HasSubstr("[trainer] offload.ratio must be above 0 and at most 1, not -1"));
  EXPECT_THAT(refusal_of({.precision = {.rounding = model::Rounding::kahan}}), HasSubstr("precision.narrow_weights"));
}

TEST(Trainer, RefusesPrecisionsThatCannotWork) {
  const std::vector<std::pair<model::Precision, const char*>> pairs = {
      {{at::kDouble, at::kFloat}, "gradients in Double cannot be summed in Float; set Precision::state to Double"},
      {{at::kFloat, at::kDouble}, "gradients in Float cannot be summed in Double; set Precision::state to Float"},
      {{at::kBFloat16, at::kBFloat16}, "set Precision::state to Float"},
      {{at::kHalf, at::kDouble}, "set Precision::state to Float"},
      {{at::kLong, at::kLong}, "[wrap] modules cannot be trained in Long; set Precision::compute to"},
      {{.float8 = true}, "[wrap] Precision::float8 is for the products of built-in blocks"},
      {{.on_gpu = true}, "[wrap] wrapped modules compute on the processor"}};
  for (const auto& [precision, expected] : pairs)
    EXPECT_THAT(refusal_of({.precision = precision}), HasSubstr(expected));
  for (const model::Precision& precision : {model::Precision{.float8 = true}, model::Precision{.on_gpu = true}})
    EXPECT_THAT(message_of<UsageError>([&] { Trainer(build_model(two_layers(), kExample), {.precision = precision}); }),
                HasSubstr("leave Precision::float8 and on_gpu out"));
}

TEST(Trainer, RanksOfAPipelineHaveExamplesOfOneShape) {
  const auto make = [](const comm::MeshSizes& mesh, int rank, const comm::GroupOptions& ranks) {
    const model::Example other{torch::ones({5, 3}), torch::zeros({5, 3})};
    Trainer(build_model(two_layers(), rank == 0 ? kExample : other), {.ranks = ranks, .mesh = mesh});
  };
  EXPECT_THAT(message_of<UsageError>([&] {
                on_threads(
                    2, [&](int rank, const comm::GroupOptions& ranks) { make({.pp = 2, .shard = 1}, rank, ranks); });
              }),
              HasSubstr("ranks 0 and 1 differ in the shape of the example (here"));
  on_threads(2, [&](int rank, const comm::GroupOptions& ranks) { make({.shard = 2}, rank, ranks); });  // of data alone
}

TEST(Trainer, TargetsWithoutADimensionNeedACount) {
  const model::Example example{torch::ones({4, 3}), torch::tensor(0.5)};
  const auto make = [&](const TrainerOptions& options) { return Trainer(build_model(two_layers(), example), options); };
  EXPECT_THAT(message_of<UsageError>([&] { make({}); }), HasSubstr("targets of the example have no dimension"));
  Trainer trainer = make({.count = [](const at::Tensor&) { return 1; }});
  trainer.backward(example.inputs, example.targets);
  EXPECT_GT(trainer.step(1e-3).loss, 0);
}

TEST(Trainer, SparseGradientsTrainAsDenseOnes) {
  const model::Example ids{torch::tensor({0, 2, 2, 4}), torch::tensor({1, 1, 0, 3})};
  std::vector<at::Tensor> tables;
  for (const bool sparse : {false, true}) {
    torch::manual_seed(6);
    torch::nn::Embedding table(torch::nn::EmbeddingOptions(5, 5).sparse(sparse));
    Trainer trainer(build_model({wrap("table", table), wrap_loss(own_model::cross_entropy)}, ids), {});
    for (int step = 0; step < 2; ++step) {
      trainer.backward(ids.inputs, ids.targets);
      trainer.step(1e-2);
    }
    tables.push_back(trainer.parameters()[0].tensor.clone());
  }
  EXPECT_LE((tables[0] - tables[1]).abs().max().item<double>(), 1e-6);  // rows that occur twice are added in any order
}

TEST(Trainer, MuonTrainsAModelWhoseMatricesLieApart) {
  const TrainerOptions options{.optimizer = optim::options_of(optim::Rule::muon)};
  const auto build = [](const model::Grouping& grouping) {
    std::vector<Wrapped> parts = two_layers();
    parts.insert(parts.begin() + 1, wrap("middle", torch::nn::Linear(5, 5)));
    return build_model(std::move(parts), kExample, {}, {}, grouping);
  };
  EXPECT_THAT(message_of<UsageError>([&] { Trainer(build({}), options); }), HasSubstr("Grouping::matrices_apart"));
  Trainer trainer(build({.matrices_apart = true}), options);
  std::vector<double> losses;
  for (int step = 0; step < 2; ++step) {
    trainer.backward(kExample.inputs, kExample.targets);
    losses.push_back(trainer.step(1e-2).loss);
  }
  EXPECT_LT(losses[1], losses[0]);
}

TEST(Trainer, SaysThatAPipelineHasMoreStagesThanThereAreParts) {
  EXPECT_THAT(refusal_of({.ranks = {.backend = "dry_run", .size = 3}, .mesh = {.pp = 3, .shard = 1}}),
              HasSubstr("3 pipeline stages for 2 units (embedding, blocks and head, or wrapped parts)"));
}

TEST(Trainer, RefusesALearningRateThatIsNoneAndKeepsItsMicroBatches) {
  Trainer trainer(build_model(two_layers(), kExample), TrainerOptions{});
  trainer.backward(kExample.inputs, kExample.targets);
  for (const double lr : {-1e-2, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()})
    EXPECT_EQ(message_of<UsageError>([&] { trainer.step(lr); }),
              fmt::format("[trainer] step: the learning rate must be {}, not {}",
                          std::isinf(lr) ? "finite" : "at least 0", lr));
  EXPECT_GT(trainer.step(1e-2).loss, 0);
}

TEST(Trainer, RefusesABuiltInModelWhoseWeightsNobodySets) {
  model::ModelConfig config;
  config.vocab_size = 64, config.hidden_size = 32, config.intermediate_size = 48, config.num_hidden_layers = 1;
  config.num_attention_heads = 4, config.num_key_value_heads = 2, config.head_dim = 8,
  config.max_position_embeddings = 16;
  EXPECT_THAT(message_of<UsageError>([&] { Trainer(model::build_model(config, {}), TrainerOptions{}); }),
              HasSubstr("write a task for it (docs/adding-a-task.md), or use Engine::initialize and train_step"));
}

TEST(Trainer, GoesOnWithTheRunThatWentBackToAnEarlierCheckpoint) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("trainer_went_back_" + std::to_string(getpid()));
  std::filesystem::remove_all(folder);
  const auto trainer = [] { return Trainer(build_model(two_layers(), kExample), TrainerOptions{}); };
  const auto step = [](Trainer& t) {
    t.backward(kExample.inputs, kExample.targets);
    t.step(1e-3);
  };
  Trainer first = trainer();
  for (int i = 1; i <= 6; ++i) {
    step(first);
    if (i % 2 == 0) train::save_trainer(first, folder);
  }
  Trainer back = trainer();
  EXPECT_EQ(train::load_trainer(back, folder / "step-00000002"), folder / "step-00000002");
  step(back);
  train::save_trainer(back, folder);
  Trainer third = trainer();
  EXPECT_EQ(train::load_trainer(third, folder), folder / "step-00000003");
  EXPECT_EQ(train::load_trainer(third, folder / "step-00000006"), folder / "step-00000006") << "it stays, by its name";
  std::filesystem::remove_all(folder);
}

TEST(Trainer, RefusesACheckpointThatIsNotThereAndAFileInPlaceOfAFolder) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("trainer_slips_" + std::to_string(getpid()));
  std::filesystem::remove_all(folder);
  Trainer trainer(build_model(two_layers(), kExample), TrainerOptions{});
  EXPECT_FALSE(train::load_trainer(trainer, folder)) << "a run that begins";
  EXPECT_THAT(message_of<CheckpointError>([&] { train::load_trainer(trainer, folder / "step-00000001"); }),
              HasSubstr("step-00000001; name a checkpoint's folder"));
  train::save_trainer(trainer, folder);
  EXPECT_THAT(message_of<CheckpointError>([&] { train::load_trainer(trainer, folder / "stp-00000000"); }),
              HasSubstr("load_trainer: there is no folder"));
  std::filesystem::create_directory(folder / "second run");
  EXPECT_FALSE(train::load_trainer(trainer, folder / "second run"));
  std::filesystem::create_directory(folder / "step-00000009");
  EXPECT_ANY_THROW(train::load_trainer(trainer, folder / "step-00000009")) << "a checkpoint without its files";
  const std::filesystem::path file = folder / "step-00000000" / "trireme_state.json";
  ASSERT_TRUE(std::filesystem::is_regular_file(file));
  EXPECT_THAT(message_of<CheckpointError>([&] { train::load_trainer(trainer, file); }),
              HasSubstr("is a file, and checkpoints lie in a folder; name a folder"));
  EXPECT_THAT(message_of<CheckpointError>([&] { train::save_trainer(trainer, file); }),
              HasSubstr("is a file, and checkpoints lie in a folder; name a folder"));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace trireme::engine
