// The optimizer inside the backward pass: the bits of a step that has it at its end, in less memory.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "support.h"
#include "trireme/base/error.h"
#include "trireme/comm/factory.h"
#include "trireme/model/tensor_names.h"

namespace trireme::engine {
namespace {

using schedule::ActionKind;

void expect_the_bits(const Outcome& early, const Outcome& late) {
  EXPECT_EQ(early.losses, late.losses);
  EXPECT_EQ(early.norms, late.norms);
  EXPECT_EQ(early.evaluation, late.evaluation);
  EXPECT_TRUE(at::equal(early.parameters, late.parameters)) << relative_distance(early.parameters, late.parameters);
  EXPECT_EQ(early.allocated, early.planned);
}

// Returns what the step with the optimizer at its end gave.
Outcome judge_early(Job job) {
  job.max_norm.reset();
  const Outcome late = run(job);
  job.steps_in_backward = true;
  const Outcome early = run(job);
  expect_the_bits(early, late);
  for (size_t r = 0; r < late.planned.size(); ++r) EXPECT_LE(early.planned[r], late.planned[r]) << "rank " << r;
  return late;
}

struct Division {
  plan::Strategy strategy;
  comm::MeshSizes mesh;
};

std::vector<Division> divisions() {
  std::vector<Division> all = {{plan::Strategy::no_shard, {.shard = 1}}};
  for (const int ranks : {2, 4})
    for (const plan::Strategy strategy :
         {plan::Strategy::no_shard, plan::Strategy::zero1, plan::Strategy::shard_grad_op, plan::Strategy::full_shard})
      all.push_back({strategy, {.shard = ranks}});
  for (const plan::Strategy strategy : {plan::Strategy::shard_grad_op, plan::Strategy::full_shard})
    all.push_back({strategy, {.replicate = 2, .shard = 2}});
  return all;
}

TEST(StepInBackward, EveryStrategyGivesTheBitsOfStepsAtTheEnd) {
  for (const Division& d : divisions())
    for (const int accumulation : {1, 3})
      for (const bool ordered : {true, false}) {
        if (!ordered && d.mesh.replicate == 1) continue;
        Job job{.model = small_llama(), .precision = accumulation == 1 ? kMixed : kFloat32};
        job.strategy = d.strategy;
        job.mesh = d.mesh;
        job.ordered = ordered;
        job.global_micro_batches = accumulation * d.mesh.replicate * d.mesh.shard;
        SCOPED_TRACE(fmt::format("strategy {} on {} x {}, {} micro-batches, ordered {}", int(d.strategy),
                                 d.mesh.replicate, d.mesh.shard, accumulation, ordered));
        judge_early(job);
      }
}

TEST(StepInBackward, PipelinesAndTiedWeightsGiveTheBitsOfStepsAtTheEnd) {
  for (const char* family : {"llama", "gpt2"})
    for (const char* schedule : {"1f1b", "zb_h1", "zb_v"})
      for (const plan::Strategy strategy : {plan::Strategy::zero1, plan::Strategy::full_shard}) {
        SCOPED_TRACE(fmt::format("{}, {}, strategy {}", family, schedule, int(strategy)));
        Job job{.model = small_model(family), .precision = kMixed};
        job.strategy = strategy;
        job.mesh = {.pp = 2, .shard = 2};
        job.pipeline.schedule = schedule;
        judge_early(job);
      }
  Job tied{.model = small_gpt2(), .precision = bfloat16_alone(model::Rounding::kahan)};
  tied.recompute.mode = schedule::Recompute::full;
  judge_early(tied);
}

TEST(StepInBackward, LocalAccumulationGivesTheBitsOfStepsAtTheEnd) {
  for (const plan::Strategy strategy : {plan::Strategy::no_shard, plan::Strategy::full_shard})
    for (const int ranks : {1, 2}) {
      Job job{.model = small_llama(), .precision = kMixed};
      job.strategy = strategy;
      job.mesh = {.shard = ranks};
      job.ordered = false;
      job.local_accumulation = true;
      judge_early(job);
    }
}

TEST(StepInBackward, AdaptersAndOptimizersThatMeetInTheirStepGiveTheBitsOfStepsAtTheEnd) {
  Job job{.model = small_llama(), .precision = kMixed};
  job.strategy = plan::Strategy::full_shard;
  job.mesh = {.shard = 2};
  const model::TensorNames& names = model::tensor_names(job.model.architecture);
  for (int64_t layer = 0; layer < job.model.num_hidden_layers; ++layer)
    job.adapters.modules[names.block.prefix + std::to_string(layer) + "." + names.block.q] = {.rank = 4, .scale = 2};
  judge_early(job);
  job.adapters = {};
  job.mesh = {.shard = 2, .tp = 2};
  for (const optim::Rule rule : {optim::Rule::adafactor, optim::Rule::lamb, optim::Rule::muon}) {
    SCOPED_TRACE(int(rule));
    job.optimizer.rule = rule;
    job.grouping.matrices_apart = rule == optim::Rule::muon;
    judge_early(job);
  }
}

TEST(StepInBackward, WhatRestsElsewhereGivesTheBitsOfStepsAtTheEnd) {
  using schedule::Tier;
  for (const int ranks : {1, 2})
    for (const int accumulation : {1, 3}) {
      Job job{.model = small_llama(), .precision = kMixed};
      job.strategy = ranks == 1 ? plan::Strategy::no_shard : plan::Strategy::full_shard;
      job.mesh = {.shard = ranks};
      job.global_micro_batches = accumulation * ranks;
      job.model.vocab_size = 25000;  // an embedding that is updated in tiles
      job.shape = {1, 8};
      const Outcome late = judge_early(job);
      job.max_norm.reset();
      job.steps_in_backward = true;
      for (const schedule::OffloadSettings& offload :
           std::vector<schedule::OffloadSettings>{{.optimizer = Tier::disk},
                                                  {.optimizer = Tier::cpu, .gradients = Tier::disk},
                                                  {Tier::disk, Tier::cpu, Tier::disk, Tier::cpu, Tier::cpu},
                                                  {.optimizer = Tier::cpu, .master = Tier::disk, .ratio = 0.5}}) {
        SCOPED_TRACE(fmt::format("{} ranks, {} micro-batches, optimizer {} master {} gradients {}", ranks, accumulation,
                                 int(offload.optimizer), int(offload.master), int(offload.gradients)));
        job.offload = offload;
        expect_the_bits(run(job), late);
      }
    }
}

TEST(StepInBackward, GradientsThatEndWithTheirStepAreNotReadAfterIt) {
  for (const Division& d : divisions()) {
    SCOPED_TRACE(fmt::format("strategy {} on {} x {}", int(d.strategy), d.mesh.replicate, d.mesh.shard));
    Job job{.model = small_llama(), .precision = kMixed, .steps = 2};
    job.strategy = d.strategy;
    job.mesh = d.mesh;
    job.max_norm.reset();
    const Outcome late = run(job);
    job.steps_in_backward = job.poison = true;
    expect_the_bits(run(job), late);
  }
}

plan::StepPlan plan_of(const model::Model& model, bool steps_in_backward, int micro_batches) {
  return plan::make_step_plan(model, {.precision = kFloat32,
                                      .shape = {1, 16},
                                      .num_micro_batches = micro_batches,
                                      .steps_in_backward = steps_in_backward});
}

// Twelve blocks of which one or two have a gradient at a time, instead of all.
TEST(StepInBackward, WithOneMicroBatchGradientsTakeTheMemoryOfTwoGroups) {
  model::ModelConfig config = small_llama();
  config.num_hidden_layers = 12;
  const model::Model model = model::build_model(config, kFloat32);
  const plan::StepPlan late = plan_of(model, false, 1), early = plan_of(model, true, 1);
  int64_t gradients = 0, largest = 0;
  for (const shard::FlatLayout& layout : late.layouts) {
    gradients += layout.numel() * 4;
    largest = std::max(largest, layout.numel() * 4);
  }
  EXPECT_GT(late.arena.total() - early.arena.total(), gradients - 3 * largest);
  // A sum over micro-batches is there until the last of them.
  EXPECT_LE(plan_of(model, true, 3).arena.total(), plan_of(model, false, 3).arena.total());
  const auto& actions = early.train().actions;
  const auto is = [](ActionKind kind) { return [kind](const schedule::Action& a) { return a.kind == kind; }; };
  const auto step = std::ranges::find_if(actions, is(ActionKind::step));
  EXPECT_NE(std::find_if(step, actions.end(), is(ActionKind::backward)), actions.end());
  EXPECT_TRUE(std::ranges::none_of(actions, is(ActionKind::clip)));
}

StepInputs inputs_of(const model::ModelConfig& config) {
  StepInputs inputs;
  inputs.supervised_tokens = 16;
  inputs.optimizer = {.lr = 1e-2, .step = 1};
  inputs.load_batch = [&config](int mb, const BatchTensors& to) {
    fill_micro_batch(1, mb, config.vocab_size, to.inputs, to.targets);
  };
  return inputs;
}

TEST(StepInBackward, ItIsNotGivenUpAndCommittedAtItsEnd) {
  at::set_num_threads(1);
  const model::ModelConfig config = small_llama();
  const model::Model model = model::build_model(config, kFloat32);
  const plan::StepPlan plan = plan_of(model, true, 1);
  Engine engine(model, plan, connect(plan, {.name = ""}));
  engine.initialize(1);
  StepInputs inputs = inputs_of(config);
  int commits = 0;
  inputs.give_up = [] { return true; };
  inputs.commit = [&](bool gave_up) {
    EXPECT_FALSE(gave_up);
    ++commits;
    return !gave_up;
  };
  const at::Tensor before = engine.state().front().master.clone();
  EXPECT_TRUE(engine.train_step(inputs).committed);
  EXPECT_EQ(commits, 1);
  EXPECT_FALSE(at::equal(engine.state().front().master, before));
  EXPECT_FALSE(engine.state().front().gradient.defined());
}

TEST(StepInBackward, WhatWaitsForAllGradientsIsRefused) {
  const model::ModelConfig config = small_llama();
  const model::Model model = model::build_model(config, kFloat32);
  const plan::StepPlan plan = plan_of(model, true, 1);
  Engine engine(model, plan, connect(plan, {.name = ""}));
  engine.initialize(1);
  StepInputs inputs = inputs_of(config);
  inputs.max_norm = 1;
  EXPECT_THROW(engine.train_step(inputs), InternalError);
  inputs.max_norm.reset();
  inputs.loss_scale = 1024;
  EXPECT_THROW(engine.train_step(inputs), InternalError);
}

}  // namespace
}  // namespace trireme::engine
