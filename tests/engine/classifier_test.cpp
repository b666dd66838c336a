// Models that classify texts: bits, memory and recomputation. matrix_test.cpp has them on every mesh.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include "support.h"
#include "trireme/base/error.h"
#include "trireme/comm/factory.h"

namespace trireme::engine {
namespace {

constexpr const char* kModels[] = {"bert", "roberta", "distilbert", "encoder", "encoder post", "llama"};

Job job_of_model(const std::string& name, const model::Precision& precision) {
  Job job{.model = small_classifier(name), .precision = precision, .steps = 3};
  job.documents.attention = true;
  job.poison = true;
  return job;
}

void expect_same_outcome(const Outcome& a, const Outcome& b) {
  EXPECT_EQ(a.losses, b.losses);
  EXPECT_EQ(a.norms, b.norms);
  EXPECT_EQ(a.measures, b.measures);
  EXPECT_TRUE(at::equal(a.parameters, b.parameters)) << relative_distance(a.parameters, b.parameters);
  EXPECT_EQ(a.planned, a.allocated);
}

TEST(Classifier, DataRanksAndRecomputationChangeNoBit) {
  for (const char* name : kModels)
    for (const model::Precision& precision : {kFloat32, kMixed}) {
      SCOPED_TRACE(std::string(name) + " " + c10::toString(precision.compute));
      Job job = job_of_model(name, precision);
      const Outcome one = run(job);
      EXPECT_EQ(one.planned, one.allocated);
      ASSERT_EQ(one.measures.front().size(), 1 + 3 * 3);
      job.recompute.mode = schedule::Recompute::full;
      expect_same_outcome(run(job), one);
      job.recompute = {.mode = schedule::Recompute::selective, .values = {"hidden", "attended", "mid"}};
      expect_same_outcome(run(job), one);
      job.recompute = {};
      for (const plan::Strategy strategy : {plan::Strategy::no_shard, plan::Strategy::full_shard}) {
        job.mesh = {.shard = 3};
        job.strategy = strategy;
        expect_same_outcome(run(job), one);
      }
    }
}

// Counts of right texts, and of those that have, get, and have and get each label.
TEST(Classifier, MeasuresCountTexts) {
  Job job = job_of_model("bert", kFloat64);
  job.ragged = true;
  const std::vector<double> m = run(job).measures.back();
  double have = 0, get = 0, right = 0;
  for (size_t label = 0; label < 3; ++label)
    have += m[1 + 3 * label], get += m[2 + 3 * label], right += m[3 + 3 * label];
  EXPECT_NEAR(have, 1, 1e-12);
  EXPECT_NEAR(get, 1, 1e-12);
  EXPECT_NEAR(right, m[0], 1e-12);
  EXPECT_GE(m[0], 0);
}

// They are documents of their own: nothing of them reaches the text, forward or backward.
TEST(Classifier, TokensBehindATextChangeNoBit) {
  for (const char* name : kModels)
    for (const model::Precision& precision : {kFloat32, kFloat64, kMixed}) {
      SCOPED_TRACE(std::string(name) + " " + c10::toString(precision.compute));
      Job job = job_of_model(name, precision);
      const Outcome one = run(job);
      job.behind = 17;
      expect_same_outcome(run(job), one);
    }
}

// The masks of a step are fixed, so its loss is a function of the weights.
TEST(Classifier, GradientsUnderDropoutEqualFiniteDifferences) {
  for (const char* name : {"bert", "encoder"}) {
    SCOPED_TRACE(name);
    model::ModelConfig config = small_classifier(name);
    config.dropout = {.attention = 0.2, .residual = 0.15, .mlp = 0.25, .embedding = 0.1};
    const model::Model model = model::build_model(config, kFloat64);
    const model::BatchShape shape{2, 16};
    const plan::StepPlan plan =
        plan::make_step_plan(model, {.precision = kFloat64, .shape = shape, .documents = {.attention = true}});
    Engine engine(model, plan, connect(plan, {.name = ""}));
    engine.initialize(3);
    const LoadBatch load = [&](int, const BatchTensors& to) {
      fill_micro_batch(1, 0, config.vocab_size, to.inputs, to.targets);
      at::Tensor(to.targets).fill_(-100);
      to.targets.data_ptr<int64_t>()[0] = 1;
      to.targets.data_ptr<int64_t>()[16] = 2;
      at::Tensor(to.document_starts).copy_(document_starts(shape, 0));
    };
    const StepInputs inputs{.load_batch = load,
                            .supervised_tokens = 2,
                            .optimizer = {.lr = 0, .weight_decay = 0, .step = 1},
                            .seed = 5};  // lr 0: the weights stay
    engine.train_step(inputs);
    std::vector<std::tuple<std::string, double*, double>> weights;
    for (GroupState& g : engine.state())
      for (const shard::FlatTensor& t : g.layout->tensors())
        weights.emplace_back(t.name, g.master.data_ptr<double>() + t.offset + t.numel / 2,
                             g.gradient.data_ptr<double>()[t.offset + t.numel / 2]);
    const auto loss = [&](double* weight, double value) {
      *weight = value;
      engine.refresh_weights();
      return engine.train_step(inputs).loss;
    };
    for (const auto& [tensor, weight, got] : weights) {
      const double kept = *weight, h = 1e-5, up = loss(weight, kept + h), down = loss(weight, kept - h);
      *weight = kept;
      EXPECT_NEAR(got, (up - down) / (2 * h), 2e-8 + 1e-6 * std::abs(got)) << tensor;  // as in unit_test.cpp
    }
    EXPECT_GT(weights.size(), 20);
  }
}

TEST(Classifier, WhatItIsNotBuiltForIsRefused) {
  const auto refusal = [](const model::ModelConfig& config, const model::Precision& precision,
                          const model::Parallel& parallel, const model::Adapters& adapters = {}) -> std::string {
    try {
      model::build_model(config, precision, parallel, {}, adapters);
    } catch (const UsageError& e) {
      return e.what();
    }
    return "accepted";
  };
  const model::ModelConfig bert = small_classifier("bert");
  EXPECT_EQ(refusal(bert, kFloat32, {}), "accepted");
  EXPECT_THAT(refusal(bert, kFloat32, {.cp_size = 2}), testing::HasSubstr("mesh.cp=2 divides sequences"));
  EXPECT_THAT(refusal(bert, kFloat32, {}, {.modules = {{"classifier", {}}}}), testing::HasSubstr("adapters (lora.*)"));
  model::Precision on_gpu = kFloat32;
  on_gpu.on_gpu = true;
  EXPECT_THAT(refusal(bert, on_gpu, {}), testing::HasSubstr("set accelerator cpu"));
  model::ModelConfig headless = bert;
  set_labels(headless, {});
  EXPECT_THAT(refusal(headless, kFloat32, {}), testing::HasSubstr("cannot learn to continue a text"));
  model::ModelConfig one = bert;
  set_labels(one, {"a"});
  EXPECT_THAT(refusal(one, kFloat32, {}), testing::HasSubstr("it must have 2 to 65536"));
  set_labels(one, {"a", "b", "a"});
  EXPECT_THAT(refusal(one, kFloat32, {}),
              testing::HasSubstr("two labels of the classification head have the name 'a'"));
}

}  // namespace
}  // namespace trireme::engine
