// Prompts of 1 to 500 tokens, in any order, in batches of any size, on data ranks that each hold a shard: each text has
// the bits that it has alone. TRIREME_SLOW=1 takes 200 prompts and all batch sizes.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <random>

#include "tests/generate/support.h"

namespace trireme::generate {
namespace {

const bool kSlow = std::getenv("TRIREME_SLOW") != nullptr;
constexpr int64_t kPositions = 520, kLongest = 500;

Job job_of(const char* model) {
  return {.model = model,
          .strategy = plan::Strategy::full_shard,
          .room = {.texts = 1, .tokens = 512, .cache_tokens = 640},
          .positions = kPositions};
}

std::vector<Request> prompts_of(const Job& job) {
  const int64_t count = kSlow ? 200 : 24;
  std::mt19937 random(11);
  std::vector<Request> requests;
  for (int64_t i = 0; i < count; ++i) {
    Request r{.max_new_tokens = 1 + static_cast<int64_t>(random() % 12),
              .sampling = {.temperature = 1, .top_k = 20},
              .prompt = static_cast<uint64_t>(i),
              .logprobs = true};
    const int64_t length = i == 0 ? 1 : i == 1 ? kLongest : 1 + static_cast<int64_t>(random()) % kLongest;
    for (int64_t n = 0; n < length; ++n) r.tokens.push_back(static_cast<int64_t>(random()) % config_of(job).vocab_size);
    requests.push_back(std::move(r));
  }
  return requests;
}

/// The answers in the order of the requests, which are added in another one.
std::vector<Answer> run_shuffled(const Job& job, const std::vector<Request>& requests, uint32_t seed) {
  std::vector<size_t> order(requests.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::mt19937 random(seed);
  std::ranges::shuffle(order, random);
  std::vector<Request> shuffled;
  for (const size_t i : order) shuffled.push_back(requests[i]);
  const std::vector<Answer> answers = run(job, shuffled);
  std::vector<Answer> sorted(answers.size());
  for (size_t i = 0; i < order.size(); ++i) sorted[order[i]] = answers[i];
  return sorted;
}

class ManyPrompts : public testing::TestWithParam<const char*> {};

TEST_P(ManyPrompts, HaveTheBitsThatEachHasAlone) {
  Job job = job_of(GetParam());
  const std::vector<Request> prompts = prompts_of(job);
  std::vector<Answer> alone;
  for (const Request& prompt : prompts) alone.push_back(run(job, {prompt}).front());
  uint32_t seed = 1;
  const std::vector<int64_t> sizes =
      kSlow ? std::vector<int64_t>{1, 2, 3, 5, 8, 16, 31, 64} : std::vector<int64_t>{3, 64};
  for (const int64_t texts : sizes)
    for (const int ranks : {1, 2, 4}) {
      job.mesh = {.shard = ranks};
      job.room = {
          .texts = texts, .tokens = seed % 2 == 0 ? 512 : 100, .cache_tokens = std::max<int64_t>(640, texts * 200)};
      EXPECT_TRUE(same(run_shuffled(job, prompts, seed++), alone, job.precision))
          << texts << " texts at a time, " << ranks << " ranks";
    }
}

// Those of drawing are those of judging the same tokens afterwards, whatever else is judged.
TEST_P(ManyPrompts, AreJudgedWithTheLogProbabilitiesOfTheirDraws) {
  Job job = job_of(GetParam());
  job.room = {.texts = 16, .tokens = 200, .cache_tokens = 3200};
  const std::vector<Request> prompts = prompts_of(job);
  const std::vector<Answer> drawn = run(job, prompts);
  std::vector<Request> judged;
  for (size_t i = 0; i < prompts.size(); ++i) {
    Request r{.tokens = prompts[i].tokens, .judged_from = std::ssize(prompts[i].tokens)};
    r.tokens.insert(r.tokens.end(), drawn[i].tokens.begin(), drawn[i].tokens.end());
    judged.push_back(std::move(r));
  }
  job.mesh = {.shard = 2};
  job.room = {.texts = 5, .tokens = 512, .cache_tokens = 2000};
  const std::vector<Answer> found = run_shuffled(job, judged, 3);
  for (size_t i = 0; i < drawn.size(); ++i)
    EXPECT_TRUE(same({{drawn[i].tokens, found[i].logprobs}}, {drawn[i]}, job.precision)) << "prompt " << i;
}

class ManyPromptsInParts : public testing::TestWithParam<const char*> {};

TEST_P(ManyPromptsInParts, AgreeOverTensorParallelRanksInFloat32) {
  Job job = job_of(GetParam());
  job.room = {.texts = 8, .tokens = 512, .cache_tokens = 2000};
  std::vector<Request> prompts = prompts_of(job);
  const std::vector<Answer> drawn = run(job, prompts);
  for (size_t i = 0; i < prompts.size(); ++i) {
    Request r{.tokens = prompts[i].tokens, .judged_from = std::ssize(prompts[i].tokens)};
    r.tokens.insert(r.tokens.end(), drawn[i].tokens.begin(), drawn[i].tokens.end());
    prompts[i] = std::move(r);
  }
  job.mesh = {.shard = 1, .tp = 2};
  const std::vector<Answer> divided = run(job, prompts);
  double worst = 0;
  for (size_t i = 0; i < drawn.size(); ++i) {
    ASSERT_EQ(divided[i].logprobs.size(), drawn[i].logprobs.size());
    for (size_t k = 0; k < drawn[i].logprobs.size(); ++k)
      worst = std::max(worst, std::abs(divided[i].logprobs[k] - drawn[i].logprobs[k]));
  }
  EXPECT_LE(worst, 1e-5);
}

INSTANTIATE_TEST_SUITE_P(Each, ManyPrompts, testing::Values("llama", "gpt2", "qwen3", "gemma3"));
INSTANTIATE_TEST_SUITE_P(Each, ManyPromptsInParts, testing::Values("llama", "qwen3", "gemma3"));

// One target at a time, in the list of evaluation, whose head computes its logits in chunks of a training batch.
TEST(GenerationAndTraining, FindTheSameBitsOfEachTokensLogProbability) {
  for (const char* name : {"llama", "gpt2", "qwen3", "gemma3"})
    for (const model::Precision& precision : {engine::kFloat32, engine::kMixed}) {
      constexpr int64_t kTokens = 190;
      const model::ModelConfig config = config_of({.model = name});
      const plan::StepRequest request{
          .precision = precision,
          .shape = {1, kTokens},
          .generation = shape_of(config, {.texts = 2, .tokens = 50, .cache_tokens = 512}, 0),
          .optimizer = {.lr = 1e-2, .step = 0}};
      const model::Model model = model::build_model(config, precision);
      plan::StepPlan plan = plan::make_step_plan(model, request);
      engine::Communicators communicators = engine::connect(plan, {.name = "", .backend = "auto"});
      engine::Engine engine(model, std::move(plan), communicators);
      engine.initialize(5);
      std::vector<int64_t> text;
      for (int64_t i = 0; i <= kTokens; ++i) text.push_back((7 * i * i + 3 * i) % config.vocab_size);
      std::vector<double> judged;
      Generator generator(engine, {.texts = 2});
      generator.add(
          {.tokens = text, .judged_from = 1, .judged = [&](const std::vector<double>& l, bool) { judged = l; }});
      generator.run();
      ASSERT_EQ(std::ssize(judged), kTokens);
      for (const int64_t at :
           {int64_t{0}, int64_t{1}, int64_t{63}, int64_t{127}, int64_t{128}, int64_t{150}, kTokens - 1}) {
        const engine::LoadBatch load = [&](int, const engine::BatchTensors& to) {
          std::copy(text.begin(), text.end() - 1, to.inputs.data_ptr<int64_t>());
          std::fill_n(to.targets.data_ptr<int64_t>(), kTokens, -100);
          to.targets.data_ptr<int64_t>()[at] = text[static_cast<size_t>(at + 1)];
        };
        EXPECT_EQ(-engine.evaluate(load, 1), judged[static_cast<size_t>(at)]) << name << ", token " << at;
      }
    }
}

}  // namespace
}  // namespace trireme::generate
