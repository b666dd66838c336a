// Units against finite differences: the gradient of the whole model in float64.
#include <cmath>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "support.h"
#include "trireme/comm/factory.h"

namespace trireme::engine {
namespace {

class UnitGradients : public testing::TestWithParam<const char*> {};

TEST_P(UnitGradients, OfTheWholeModelEqualFiniteDifferences) {
  const model::Precision precision{at::kDouble, at::kDouble};
  const model::ModelConfig config = small_model(GetParam());
  const model::Model model = model::build_model(config, precision);
  const plan::StepPlan plan = plan::make_step_plan(model, {.precision = precision, .shape = {2, 16}});
  Engine engine(model, plan, connect(plan, {.name = ""}));
  engine.initialize(3);
  const LoadBatch load = [&](int, const BatchTensors& to) {
    fill_micro_batch(1, 0, config.vocab_size, to.inputs, to.targets);
  };
  StepInputs inputs{.load_batch = load, .supervised_tokens = 32, .optimizer = {.lr = 0, .weight_decay = 0, .step = 1}};
  engine.train_step(inputs);  // lr 0: the weights stay
  int checked = 0;
  for (GroupState& g : engine.state())
    for (const shard::FlatTensor& t : g.layout->tensors())
      for (int64_t i : {int64_t(0), t.numel / 2, t.numel - 1}) {
        double& weight = g.master.data_ptr<double>()[t.offset + i];
        const double kept = weight, h = 1e-5;
        weight = kept + h;
        const double up = engine.evaluate(load, 32);
        weight = kept - h;
        const double down = engine.evaluate(load, 32);
        weight = kept;
        const double expected = (up - down) / (2 * h), got = g.gradient.data_ptr<double>()[t.offset + i];
        // Central differences: truncation h^2 = 1e-10 and rounding 1e-16 / h = 1e-11, times curvature of order 1.
        EXPECT_NEAR(got, expected, 2e-8 + 1e-6 * std::abs(expected)) << t.name << "[" << i << "]";
        ++checked;
      }
  EXPECT_GT(checked, 60);
}

INSTANTIATE_TEST_SUITE_P(All, UnitGradients, testing::Values("llama", "gpt2", "qwen3", "gemma3"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace trireme::engine
