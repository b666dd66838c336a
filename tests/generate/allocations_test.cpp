// Thousands of texts of random lengths: none is lost, and LibTorch's allocator is asked for nothing.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/generate/support.h"

namespace trireme::generate {
namespace {

class Allocations : public testing::TestWithParam<double> {};

TEST_P(Allocations, TwoThousandTextsTakeNoneAndNoneIsLost) {
  at::set_num_threads(1);
  const Room room{.texts = 16, .tokens = 64, .cache_tokens = 2048};
  model::ModelConfig config = config_of({});
  config.vocab_size = 64;
  const model::Model model = model::build_model(config, engine::kFloat32, {}, {.trains = false});
  plan::StepPlan plan = plan::make_step_plan(
      model, {.precision = engine::kFloat32, .trains = false, .generation = shape_of(config, room, 0)});
  engine::Communicators communicators = engine::connect(plan, {.name = "", .backend = "auto"});
  engine::Engine engine(model, std::move(plan), communicators);
  engine.initialize(3);
  const int64_t planned = engine.allocated_bytes();
  Generator generator(engine, room);
  std::mt19937 random(5);
  std::vector<int> finished(2000);
  const auto add = [&](size_t number) {
    const auto new_tokens = 1 + static_cast<int64_t>(random() % 12);
    Request r{.max_new_tokens = new_tokens,
              .sampling = {.temperature = GetParam(), .top_k = 20},
              .prompt = number,
              .logprobs = number % 2 == 0,
              .finished = [&, number](Finish) { ++finished[number]; }};
    for (size_t n = 1 + random() % 150; n > 0; --n)
      r.tokens.push_back(static_cast<int64_t>(random()) % config.vocab_size);
    if (number % 5 == 0 && r.tokens.size() > 2) r.max_new_tokens = 0, r.judged_from = 1;
    generator.add(std::move(r));
  };
  for (size_t i = 0; i < 50; ++i) add(i);
  generator.run();
  const int64_t before = engine::allocator_requests();
  for (size_t i = 50; i < finished.size(); ++i) add(i);
  generator.run();
  EXPECT_EQ(engine::allocator_requests() - before, 0);
  EXPECT_EQ(engine.allocated_bytes(), planned);
  EXPECT_EQ(finished, std::vector<int>(2000, 1));
  EXPECT_EQ(generator.num_texts() + generator.num_waiting(), 0);
}

INSTANTIATE_TEST_SUITE_P(Temperature, Allocations, testing::Values(0.0, 1.0, 0.8));

}  // namespace
}  // namespace trireme::generate
