// What the recorder notes of a step is what the engine runs: the same operations, of the same shapes, as often.
#include "trireme/costs/recorded_work.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>

#include "support.h"

namespace trireme::costs {
namespace {

using engine::Job;

using Counts = std::map<std::string, int>;

std::string text_of(const ops::Operation& o) {
  return fmt::format("{} {} {}x{}x{} {:.0f} flops", o.name, c10::toString(o.dtype), o.m, o.n, o.k, o.flops);
}

class Counter final : public ops::Listener {
 public:
  bool begins(const ops::Operation& o) override {
    // The optimizer's are no unit's.
    if (o.name != std::string("optimizer_step") && o.name != std::string("norm_partials")) ++counts[text_of(o)];
    return true;
  }
  void ends() override {}
  Counts counts;
};

Counts recorded(const Job& job) {
  const plan::StepRequest r = engine::request_of(job, 0);
  const model::Model model =
      model::build_model(job.model, r.precision, r.parallel(), job.grouping, job.adapters, job.objective);
  const plan::StepPlan plan = plan::make_step_plan(model, r);
  WorkRecorder recorder(plan);
  Counts counts;
  for (const schedule::Action& a : plan.train().actions)
    if (schedule::is_computation(a.kind))
      for (const ops::Operation& o : recorder.of(schedule::List::train, plan.train(), a).operations)
        ++counts[text_of(o)];
  return counts;
}

void expect_the_same(Job job, const std::string& what) {
  Counter counter;
  job.steps = 1;
  job.listener = &counter;
  engine::run(job);
  EXPECT_FALSE(counter.counts.empty()) << what;
  EXPECT_EQ(recorded(job), counter.counts) << what;
}

TEST(RecordedWork, OfEveryFamilyIsWhatRuns) {
  for (const char* family : {"llama", "gpt2", "qwen3", "gemma3"})
    for (const model::Precision& precision : {engine::kFloat32, engine::kMixed})
      expect_the_same({.model = engine::small_model(family), .precision = precision}, family);
  expect_the_same({.model = engine::small_free(3, model::Injection::table), .precision = engine::kFloat32}, "free");
  expect_the_same(
      {.model = engine::small_model("labels bert"), .precision = engine::kFloat32, .documents = {.attention = true}},
      "labels");
}

TEST(RecordedWork, OfDividedUnitsIsWhatRuns) {
  const model::ModelConfig llama = engine::small_llama();
  expect_the_same({.model = llama, .precision = engine::kMixed, .mesh = {.shard = 1, .tp = 2}}, "tp");
  expect_the_same(
      {.model = llama, .precision = engine::kMixed, .mesh = {.shard = 1, .tp = 2}, .sequence_parallel = true},
      "sequence parallel");
  expect_the_same({.model = llama, .precision = engine::kMixed, .mesh = {.shard = 1, .cp = 2}}, "ring");
  expect_the_same(
      {.model = llama, .precision = engine::kMixed, .mesh = {.shard = 1, .cp = 2}, .context = model::Context::ulysses},
      "ulysses");
  expect_the_same(
      {.model = llama, .precision = engine::kMixed, .mesh = {.pp = 2, .shard = 1}, .pipeline = {.schedule = "zb_h1"}},
      "two halves of backward");
}

TEST(RecordedWork, OfRecomputationAndAdaptersIsWhatRuns) {
  const model::ModelConfig llama = engine::small_llama();
  for (const auto mode : {schedule::Recompute::full, schedule::Recompute::selective})
    expect_the_same({.model = llama, .precision = engine::kMixed, .recompute = {.mode = mode}}, "recomputation");
  Job adapted{.model = llama, .precision = engine::kMixed};
  for (const char* name : {"model.layers.0.self_attn.q_proj", "model.layers.1.mlp.down_proj"})
    adapted.adapters.modules[name] = {.rank = 4};
  expect_the_same(adapted, "adapters");
}

// A model of 8 billion parameters is recorded in memory that nobody has.
TEST(RecordedWork, NeedsNoMemoryOfTheModelsSize) {
  const model::Precision precision = engine::kMixed;
  const model::Model model = model::build_model(model::catalogue_config("llama-3-8b"), precision);
  const plan::StepPlan plan = plan::make_step_plan(model, {.precision = precision, .shape = {1, 4096}});
  WorkRecorder recorder(plan);
  double flops = 0, again = 0;
  for (const schedule::Action& a : plan.train().actions)
    if (schedule::is_computation(a.kind)) {
      const Work& work = recorder.of(schedule::List::train, plan.train(), a);
      flops += work.flops(), again += work.recomputed_flops();
    }
  const double tokens = 4096;
  const double products = 6 * (8.03e9 - 128256.0 * 4096) * tokens;
  const double attention =
      14.0 / 12 * 12 * 32 * 32 * 128 * (tokens + 1) / 2 * tokens;  // causal; backward computes scores again
  EXPECT_NEAR(flops / (products + attention), 1, 0.002);
  EXPECT_NEAR(again / (attention / 7), 1, 1e-6);  // without it, as a run counts: 12 H d K (observe/peak.h)
}

}  // namespace
}  // namespace trireme::costs
