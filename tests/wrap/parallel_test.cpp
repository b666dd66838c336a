// Parallel layers inside wrapped modules: mesh.tp equals one rank, with and without sequence parallelism, beside every
// other axis; checkpoints hold whole tensors.
#include <gtest/gtest.h>

#include <filesystem>

#include "examples/transformer_layer/model.h"
#include "examples/vit/images.h"
#include "support.h"
#include "trireme/model/wrapped_unit.h"
#include "trireme/train/trainer_checkpoint.h"

namespace trireme::engine {
namespace {

model::Example images(int64_t number) { return parallel_example::image_batch(number, 2); }
model::Example letters(int64_t number) { return parallel_example::backwards_batch(number, 2); }

// A vision transformer (its embedding and its head are whole on every rank), and a model whose vocabulary is divided.
WrapJob job_of(bool vision) {
  WrapJob job{.task = {vision ? "vit" : "backwards", nullptr, vision ? images : letters}};
  job.parallel_parts = vision ? [](const TensorRanksPtr& ranks) { return parallel_example::Vit(ranks).parts(); }
                              : [](const TensorRanksPtr& ranks) { return parallel_example::Backwards(ranks).parts(); };
  job.steps = 10;
  return job;
}

class ParallelLayers : public testing::TestWithParam<bool> {
 protected:
  WrapJob job = job_of(GetParam());
  WrapOutcome plain = train_plainly(job);
  void expect_plain(const comm::MeshSizes& mesh, plan::Strategy strategy) {
    job.mesh = mesh;
    job.strategy = strategy;
    for (const bool sequence : {false, true}) {
      job.sequence_parallel = sequence;
      EXPECT_LE(distance(train(job), plain), kTolerance) << (sequence ? "with" : "without") << " sequence parallelism";
    }
  }
};

TEST_P(ParallelLayers, TenPlainStepsChangeTheModel) {
  EXPECT_GT(std::abs(plain.losses[9] - plain.losses[0]), 1e-2);  // or the tests below would compare nothing
  EXPECT_GT(plain.norms[0], kMaxNorm);  // clipping takes part
}

TEST_P(ParallelLayers, TwoTensorRanks) { expect_plain({.shard = 1, .tp = 2}, plan::Strategy::no_shard); }
TEST_P(ParallelLayers, FourTensorRanks) { expect_plain({.shard = 1, .tp = 4}, plan::Strategy::no_shard); }
TEST_P(ParallelLayers, TwoShardsOfTwoTensorRanks) { expect_plain({.shard = 2, .tp = 2}, plan::Strategy::full_shard); }
TEST_P(ParallelLayers, TwoReplicasOfTwoTensorRanks) {
  expect_plain({.replicate = 2, .shard = 1, .tp = 2}, plan::Strategy::no_shard);
}

TEST_P(ParallelLayers, PipelineStagesOfTensorRanks) {
  job.steps = 3;
  plain = train_plainly(job);
  for (const char* schedule : {"1f1b", "zb_h1"}) {
    SCOPED_TRACE(schedule);
    job.pipeline.schedule = schedule;
    expect_plain({.pp = 2, .shard = 1, .tp = 2}, plan::Strategy::no_shard);
  }
}

TEST_P(ParallelLayers, AnOptimizerThatNeedsWholeTensorsGivesWhatOneRankGives) {
  job.optimizer = "LAMB";
  plain = train(job);
  expect_plain({.shard = 2, .tp = 2}, plan::Strategy::full_shard);
}

TEST_P(ParallelLayers, RecomputationAndGradientsThatAreAddedUpOnTheirRank) {
  job.steps = 3;
  plain = train_plainly(job);
  job.recompute = {.mode = schedule::Recompute::full};
  expect_plain({.shard = 1, .tp = 2}, plan::Strategy::no_shard);
  job.local_accumulation = true;
  expect_plain({.shard = 2, .tp = 2}, plan::Strategy::full_shard);
}

TEST_P(ParallelLayers, LowerPrecisionIsNearDoublePrecision) {
  job.steps = 3;
  job.mesh = {.shard = 2, .tp = 2};
  job.strategy = plan::Strategy::full_shard;
  for (const at::ScalarType compute : {at::kFloat, at::kBFloat16, at::kHalf}) {
    job.precision = {compute, at::kFloat};
    for (const bool sequence : {false, true}) {
      job.sequence_parallel = sequence;
      const WrapOutcome found = train(job);
      // As for one rank (parity_test.cpp).
      for (size_t i = 0; i < 3; ++i)
        EXPECT_NEAR(found.losses[i], plain.losses[i], compute == at::kFloat ? 1e-4 : 0.1) << c10::toString(compute);
    }
  }
}

TEST_P(ParallelLayers, TheAllowanceForAutogradCountsWhatRanksGather) {
  job.sequence_parallel = true;
  job.mesh = {.shard = 1, .tp = 2};
  on_threads(job.ranks(), [&](int, const comm::GroupOptions& ranks) {
    const TrainerOptions options = trainer_options(job, ranks);
    Trainer trainer(make_model(job, options), options);
    store_batches(trainer, job, 0);
    const model::AllocationWatch watch;
    trainer.step(kLearningRate);
    const int64_t allowance = autograd_allowance(trainer.engine().plan());
    EXPECT_LE(watch.peak(), allowance);
    EXPECT_GE(watch.peak(), allowance / 2);
  });
}

using Parameters = std::map<std::string, at::Tensor>;

// Every rank's trainer, and then the whole weights, which the last rank gives.
Parameters on_mesh(WrapJob job, const comm::MeshSizes& mesh, const std::function<void(Trainer&, int rank)>& on_rank) {
  Parameters found;
  job.mesh = mesh;
  job.strategy = plan::Strategy::full_shard;
  on_threads(job.ranks(), [&](int rank, const comm::GroupOptions& ranks) {
    const TrainerOptions options = trainer_options(job, ranks);
    Trainer trainer(make_model(job, options), options);
    on_rank(trainer, rank);
    const auto parameters = trainer.parameters();
    if (rank < job.ranks() - 1) return;
    for (const model::NamedTensor& p : parameters) found[p.name] = p.tensor;
  });
  return found;
}

void expect_equal(const Parameters& a, const Parameters& b) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, whole] : a) EXPECT_TRUE(at::equal(whole, b.at(name))) << name;
}

constexpr comm::MeshSizes kOne{.shard = 1}, kFour{.shard = 2, .tp = 2};

TEST_P(ParallelLayers, FromOneSeedAllMeshesStartFromTheSameBits) {
  expect_equal(on_mesh(job, kOne, [](Trainer&, int) {}), on_mesh(job, kFour, [](Trainer&, int) {}));
}

TEST_P(ParallelLayers, ACheckpointHoldsWholeTensorsAndContinuesOnAnotherMesh) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("parallel_layers_" + std::to_string(getpid()));
  job.sequence_parallel = true;
  for (const auto& [first, then] : {std::pair(kFour, kOne), std::pair(kOne, kFour)}) {
    std::filesystem::remove_all(folder);
    const auto trained = on_mesh(job, first, [&](Trainer& trainer, int) {
      EXPECT_FALSE(train::load_trainer(trainer, folder));  // nothing is saved yet
      for (int step = 0; step < 3; ++step) {
        store_batches(trainer, job, step);
        EXPECT_NEAR(trainer.step(kLearningRate).loss, plain.losses[static_cast<size_t>(step)], kTolerance);
      }
      EXPECT_EQ(train::save_trainer(trainer, folder), folder / "step-00000003");
    });
    const auto loaded = on_mesh(job, then, [&](Trainer& trainer, int) {
      EXPECT_EQ(train::load_trainer(trainer, folder), folder / "step-00000003");
    });
    expect_equal(trained, loaded);
    // A wrong number of steps changes AdamW's bias correction, and so the weights from the first resumed step on.
    const auto resumed = on_mesh(job, then, [&](Trainer& trainer, int) {
      EXPECT_TRUE(train::load_trainer(trainer, folder / "step-00000003"));
      EXPECT_EQ(trainer.steps(), 3);
      for (int64_t step = trainer.steps(); step < job.steps; ++step) {
        store_batches(trainer, job, static_cast<int>(step));
        const StepResult result = trainer.step(kLearningRate);
        EXPECT_NEAR(result.loss, plain.losses[static_cast<size_t>(step)], kTolerance) << step;
        EXPECT_NEAR(result.gradient_norm, plain.norms[static_cast<size_t>(step)], kTolerance) << step;
      }
    });
    ASSERT_EQ(resumed.size(), plain.parameters.size());
    for (const auto& [name, whole] : resumed)
      EXPECT_LE((whole - plain.parameters.at(name)).abs().max().item<double>(), kTolerance) << name;
  }
  std::filesystem::remove_all(folder);
}

INSTANTIATE_TEST_SUITE_P(Models, ParallelLayers, testing::Bool(),
                         [](const auto& info) { return std::string(info.param ? "VisionTransformer" : "Vocabulary"); });

}  // namespace
}  // namespace trireme::engine
