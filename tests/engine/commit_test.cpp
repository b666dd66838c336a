// A step is taken whole or not at all: what ranks agree on before the first update holds for all of them.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "support.h"
#include "trireme/comm/factory.h"

namespace trireme::engine {
namespace {

struct Taken {
  bool committed;
  std::vector<at::Tensor> masters;
};

Taken take_step(bool stop_is_heard_after_the_commit) {
  at::set_num_threads(1);
  const model::ModelConfig config = small_llama();
  const model::Precision precision{at::kFloat, at::kFloat};
  const model::Model model = model::build_model(config, precision);
  const plan::StepPlan plan =
      plan::make_step_plan(model, {.precision = precision, .shape = {2, 16}, .num_micro_batches = 1});
  Engine engine(model, plan, connect(plan, {.name = ""}));
  engine.initialize(1);
  StepInputs inputs;
  inputs.supervised_tokens = 32;
  inputs.optimizer = {.lr = 1e-2, .step = 1};
  inputs.load_batch = [&](int mb, const BatchTensors& to) {
    fill_micro_batch(1, mb, config.vocab_size, to.inputs, to.targets);
  };
  bool agreed = false;
  inputs.commit = [&](bool gave_up) {
    agreed = true;
    return !gave_up;
  };
  inputs.give_up = [&] { return stop_is_heard_after_the_commit && agreed; };
  Taken taken{engine.train_step(inputs).committed, {}};
  for (const GroupState& group : engine.state()) taken.masters.push_back(group.master.clone());
  return taken;
}

TEST(Commit, AStopThatIsHeardBetweenTwoUpdatesLeavesNoneOut) {
  const Taken want = take_step(false), got = take_step(true);
  ASSERT_GT(want.masters.size(), 1U) << "there is something between two updates";
  EXPECT_TRUE(want.committed);
  EXPECT_TRUE(got.committed);
  for (size_t g = 0; g < want.masters.size(); ++g)
    EXPECT_TRUE(at::equal(want.masters[g], got.masters[g])) << "group " << g;
}

}  // namespace
}  // namespace trireme::engine
