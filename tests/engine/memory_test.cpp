// The plan is what is allocated, and nothing outlives its planned life.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "support.h"
#include "trireme/comm/factory.h"
#include "trireme/ops/products/products.h"

namespace trireme::engine {
namespace {

TEST(Memory, NaNAtTheEndOfEveryLifeAndGuardsBetweenValuesChangeNoResult) {
  using Mode = schedule::Recompute;
  for (plan::Strategy strategy : {plan::Strategy::no_shard, plan::Strategy::shard_grad_op, plan::Strategy::full_shard})
    for (Mode recompute : {Mode::none, Mode::selective, Mode::full}) {
      Job job{.model = small_llama(),
              .precision = {at::kBFloat16, at::kFloat},
              .mesh = {.shard = 2},
              .strategy = strategy,
              .steps = 2,
              .recompute = {.mode = recompute}};
      const Outcome plain = run(job);
      job.poison = true;
      const Outcome poisoned = run(job);
      EXPECT_EQ(plain.losses, poisoned.losses);
      EXPECT_TRUE(at::equal(plain.parameters, poisoned.parameters));
    }
}

// Requests to LibTorch's allocator in some steps, after three to warm up.
int64_t requests_in_steps(int steps, const model::Precision& precision, const model::Objective& objective = {}) {
  model::ModelConfig config = small_llama();
  config.vocab_size = 64;  // products over an odd number are LibTorch's in bfloat16
  const model::Model model = model::build_model(config, precision, {}, {}, {}, objective);
  const plan::StepRequest request{.precision = precision,
                                  .shape = {2, 16},
                                  .documents = {.attention = objective.is_pairs()},
                                  .num_micro_batches = 2};
  const plan::StepPlan plan = plan::make_step_plan(model, request);
  Engine engine(model, plan, connect(plan, {.name = ""}));
  engine.initialize(1);
  const at::Tensor starts = pair_starts(request.shape, 0);
  StepInputs inputs;
  inputs.max_norm = 1.0;
  inputs.supervised_tokens = 64;
  inputs.load_batch = [&](int mb, const BatchTensors& to) {
    fill_micro_batch(1, mb, config.vocab_size, to.inputs, to.targets);
    if (!objective.is_pairs()) return;
    fill_pairs(starts, to.targets);
    load_documents(to, request, starts);
  };
  int64_t before = 0;
  for (int step = 1; step <= 3 + steps; ++step) {
    inputs.optimizer = {.lr = 1e-3, .step = step};
    if (step == 4) before = allocator_requests();
    engine.train_step(inputs);
  }
  return allocator_requests() - before;
}

TEST(Memory, AStepAllocatesNoTensorAfterTheThird) {
  at::set_num_threads(1);
  EXPECT_EQ(requests_in_steps(3, {at::kFloat, at::kFloat}), 0);
  // Where LibTorch makes the products of bfloat16, oneDNN takes scratch of its own.
  if (ops::product_kernel_name(at::kBFloat16) == std::string("LibTorch")) return;
  EXPECT_EQ(requests_in_steps(3, {at::kBFloat16, at::kFloat}), 0);
  EXPECT_EQ(requests_in_steps(3, kFloat8Mixed), 0);
}

TEST(Memory, ThreeHundredStepsOnPairsOfRepliesAllocateNoTensor) {
  at::set_num_threads(1);
  model::Objective objective;
  objective.pairs = {{.loss = model::PairLoss::sigmoid}, {.loss = model::PairLoss::sft, .weight = 0.5}};
  EXPECT_EQ(requests_in_steps(300, kFloat32, objective), 0);
}

// Sampling and training on answers that grow from one token to the longest that was planned.
TEST(Memory, ThreeHundredStepsWhoseAnswersGrowAllocateNoTensor) {
  at::set_num_threads(1);
  constexpr int64_t kAnswers = 4, kLongest = 96, kWarmUp = 3, kSteps = 300;
  model::ModelConfig config = small_llama();
  config.vocab_size = 64;
  config.max_position_embeddings = kLongest;
  model::Objective objective;
  objective.policy.emplace();
  const model::Model model = model::build_model(config, kFloat32, {}, {}, {}, objective);
  const plan::StepRequest request{.precision = kFloat32,
                                  .shape = {2, kLongest},
                                  .generation = {.rows = kAnswers, .logit_rows = kAnswers, .pages = kAnswers + 1},
                                  .documents = {.attention = true, .positions = true},
                                  .num_micro_batches = 2};
  const plan::StepPlan plan = plan::make_step_plan(model, request);
  Engine engine(model, plan, connect(plan, {.name = ""}));
  EXPECT_EQ(engine.allocated_bytes(), plan.arena.total());
  engine.initialize(1);
  const std::vector<int32_t> pages = {0, 1, 2, 3};
  model::NewTokens tokens;
  tokens.places = at::empty({kAnswers}, at::kLong);
  tokens.logit_rows = at::arange(kAnswers, at::kLong);
  for (int64_t i = 0; i < kAnswers; ++i)
    tokens.sequences.push_back({.first_row = i, .tokens = 1, .pages = &pages[static_cast<size_t>(i)]});
  const at::Tensor starts = at::zeros({2 * kLongest}, at::kLong);
  std::vector<int64_t> ids(kAnswers, 5), positions(kAnswers);
  int64_t length = 1, before = 0;
  StepInputs inputs;
  inputs.max_norm = 1.0;
  inputs.load_batch = [&](int mb, const BatchTensors& to) {
    fill_micro_batch(1, mb, config.vocab_size, to.inputs, to.targets);
    auto* target = to.targets.data_ptr<int64_t>();
    auto* said = reinterpret_cast<double*>(target);
    for (int64_t t = 0; t < 2 * kLongest; ++t) {
      if (t % kLongest >= length) target[t] = -100;
      const auto say = [&](model::PolicyInput::Row row, double value) { said[row * 2 * kLongest + t] = value; };
      say(model::PolicyInput::weight, 1);
      say(model::PolicyInput::advantage, t < kLongest ? 1 : -1);
      say(model::PolicyInput::old, -4);
      say(model::PolicyInput::reference, 0);
    }
    load_documents(to, request, starts);
  };
  for (int64_t step = 1; step <= kWarmUp + kSteps; ++step) {
    if (step == kWarmUp + 1) before = allocator_requests();
    length = 1 + (kLongest - 1) * step / (kWarmUp + kSteps);
    for (int64_t i = 0; i < kAnswers; ++i) {
      tokens.sequences[static_cast<size_t>(i)].length = length;
      positions[static_cast<size_t>(i)] = length - 1;
      tokens.places.data_ptr<int64_t>()[i] = i * ops::kAttentionPage + length - 1;
    }
    ASSERT_TRUE(engine.generate(ids, positions, tokens).defined());
    inputs.optimizer = {.lr = 1e-4, .step = step};
    inputs.supervised_tokens = 4 * length;
    engine.train_step(inputs);
  }
  EXPECT_EQ(length, kLongest);
  EXPECT_EQ(allocator_requests() - before, 0);
}

TEST(Memory, TheEngineAllocatesThePlannedBytesExactly) {
  const model::Precision precision{at::kFloat, at::kFloat};
  const model::Model model = model::build_model(small_llama(), precision);
  const plan::StepPlan plan =
      plan::make_step_plan(model, {.precision = precision, .shape = {2, 16}, .num_micro_batches = 2});
  const plan::MemoryReport report = plan::memory_report(plan);
  int64_t sum = 0;
  for (const plan::MemoryRow& row : report.rows) sum += row.bytes;
  EXPECT_EQ(sum, report.total_bytes);
  const Engine engine(model, plan, connect(plan, {.name = ""}));
  EXPECT_EQ(engine.allocated_bytes(), report.total_bytes);
  EXPECT_LE(double(report.total_bytes), 1.01 * double(report.lower_bound_bytes));
}

}  // namespace
}  // namespace trireme::engine
