// Texts do not depend on what else is generated, on how much fits at a time, or on the ranks; and the logits are those
// of the training forward.
#include "trireme/generate/generator.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "tests/generate/support.h"
#include "trireme/base/error.h"
#include "trireme/generate/alone.h"

namespace trireme::generate {
namespace {

using engine::kFloat32;
using engine::kFloat64;
using engine::kMixed;

/// Prompts of 1 to 40 tokens (every seventh a hundred longer), two samples of each; every fifth text is judged.
std::vector<Request> requests_of(int64_t count, int64_t vocabulary, double temperature) {
  std::vector<Request> requests;
  std::mt19937 random(3);
  for (int64_t i = 0; i < count; ++i) {
    Request r{.max_new_tokens = 1 + static_cast<int64_t>(random() % 20),
              .sampling = {.temperature = temperature, .top_k = 20},
              .prompt = static_cast<uint64_t>(i / 2),
              .sample = static_cast<uint64_t>(i % 2),
              .logprobs = true,
              .codes = {.seed = static_cast<uint64_t>(i)}};
    for (size_t n = 1 + random() % 40 + (i % 14 == 0 ? 100 : 0); n > 0; --n)
      r.tokens.push_back(static_cast<int64_t>(random()) % vocabulary);
    if (i % 2 == 1) r.tokens = requests.back().tokens;
    if (i % 5 == 0 && r.tokens.size() > 3) r.max_new_tokens = 0, r.judged_from = 2;
    requests.push_back(std::move(r));
  }
  return requests;
}

using generate::run;
std::vector<Answer> run(const Job& job, double temperature = 0.9, int64_t count = 30) {
  return run(job, requests_of(count, config_of(job).vocab_size, temperature));
}

class Generation : public testing::TestWithParam<const char*> {};

TEST_P(Generation, HasTheSameBitsInAnyCompany) {
  for (const model::Precision& precision : {kFloat32, kMixed}) {
    Job job{.model = GetParam(), .precision = precision, .room = {.texts = 1, .tokens = 64, .cache_tokens = 256}};
    const std::vector<Answer> alone = run(job);
    for (const Room& room : {Room{2, 3, 300}, Room{8, 16, 512}, Room{30, 200, 8192}}) {
      job.room = room;
      job.threads = 2;
      EXPECT_TRUE(same(run(job), alone, job.precision)) << room.texts;
    }
    job.poison = true;
    EXPECT_TRUE(same(run(job), alone, job.precision));
    job.trains = true;
    EXPECT_TRUE(same(run(job), alone, job.precision)) << "packed and unpacked matrices";
  }
}

TEST_P(Generation, HasTheBitsOfOneRankOnDataRanksAndStages) {
  Job job{.model = GetParam()};
  const std::vector<Answer> one = run(job);
  for (const plan::Strategy strategy :
       {plan::Strategy::no_shard, plan::Strategy::shard_grad_op, plan::Strategy::full_shard})
    for (const int ranks : {2, 4}) {
      job.mesh = {.shard = ranks}, job.strategy = strategy;
      EXPECT_TRUE(same(run(job), one, job.precision)) << ranks << " ranks, strategy " << static_cast<int>(strategy);
    }
  job.mesh = {.replicate = 2, .shard = 2};
  EXPECT_TRUE(same(run(job), one, job.precision));
  job.mesh = {.pp = 2, .shard = 2}, job.strategy = plan::Strategy::full_shard;
  EXPECT_TRUE(same(run(job), one, job.precision));
  job.mesh = {.pp = 2, .shard = 1}, job.strategy = plan::Strategy::no_shard;
  EXPECT_TRUE(same(run(job), one, job.precision));
}

class GenerationOfParts : public testing::TestWithParam<const char*> {};

TEST_P(GenerationOfParts, IsThatOfOneRankToRounding) {
  Job job{.model = GetParam(), .precision = kFloat64};
  const std::vector<Answer> one = run(job, 0);
  for (const comm::MeshSizes mesh :
       {comm::MeshSizes{.shard = 1, .tp = 2}, comm::MeshSizes{.pp = 2, .shard = 1, .tp = 2}}) {
    job.mesh = mesh;
    const std::vector<Answer> many = run(job, 0);
    ASSERT_EQ(many.size(), one.size());
    for (size_t i = 0; i < one.size(); ++i) {
      EXPECT_EQ(many[i].tokens, one[i].tokens);
      for (size_t k = 0; k < one[i].logprobs.size(); ++k) EXPECT_NEAR(many[i].logprobs[k], one[i].logprobs[k], 1e-10);
    }
  }
}

class HeadInBlocks : public testing::TestWithParam<base::BlockFormat> {};

// A tied head's matrix is the embedding's (gemma3), another one is the head's alone.
TEST_P(HeadInBlocks, WritesTheSameOnAnyRanks) {
  for (const char* name : {"llama", "gemma3"}) {
    Job job{.model = name, .head = GetParam()};
    const std::vector<Answer> one = run(job);
    job.head = base::BlockFormat::none;
    EXPECT_NE(run(job), one) << "the head was not quantized";
    job.head = GetParam();
    job.mesh = {.shard = 2}, job.strategy = plan::Strategy::full_shard, job.poison = true;
    EXPECT_TRUE(same(run(job), one, job.precision));
    job.mesh = {.pp = 2, .shard = 1}, job.strategy = plan::Strategy::no_shard;
    EXPECT_TRUE(same(run(job), one, job.precision));
  }
}

TEST_P(HeadInBlocks, IsDividedByRows) {
  for (const char* name : {"llama", "gemma3"}) {
    Job job{.model = name, .precision = kFloat64, .head = GetParam()};
    const std::vector<Answer> one = run(job, 0);
    job.mesh = {.shard = 1, .tp = 2};
    const std::vector<Answer> two = run(job, 0);
    ASSERT_EQ(two.size(), one.size());
    for (size_t i = 0; i < one.size(); ++i) {
      EXPECT_EQ(two[i].tokens, one[i].tokens);
      for (size_t k = 0; k < one[i].logprobs.size(); ++k) EXPECT_NEAR(two[i].logprobs[k], one[i].logprobs[k], 1e-10);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Each, HeadInBlocks,
                         testing::Values(base::BlockFormat::q8_0, base::BlockFormat::q4_0,
                                         base::BlockFormat::nf4_nested));
INSTANTIATE_TEST_SUITE_P(Each, Generation, testing::Values("llama", "gpt2", "qwen3", "gemma3", "free"));
INSTANTIATE_TEST_SUITE_P(Each, GenerationOfParts, testing::Values("llama", "qwen3", "gemma3", "free"));

// The mean loss of the evaluation list, and the judged log-probabilities of the same tokens, by one plan with both.
TEST(GenerationAndTraining, ShareAnArenaAndAgree) {
  for (const char* name : {"llama", "gpt2", "qwen3", "gemma3"}) {
    const model::ModelConfig config = config_of(Job{.model = name});
    plan::StepRequest request{.precision = kFloat64,
                              .shape = {1, 30},
                              .generation = shape_of(config, {.texts = 2, .tokens = 16, .cache_tokens = 256}, 0),
                              .optimizer = {.lr = 1e-2, .step = 0}};
    const model::Model model = model::build_model(config, request.precision);
    plan::StepPlan plan = plan::make_step_plan(model, request);
    plan::StepRequest without = request;
    without.generation = {};
    const int64_t alone = plan::make_step_plan(model, without).arena.total();
    engine::Communicators communicators = engine::connect(plan, {.name = "", .backend = "auto"});
    engine::Engine engine(model, std::move(plan), communicators);
    EXPECT_EQ(engine.allocated_bytes(), engine.plan().arena.total());
    // The cache lies where training has its activations.
    const int64_t cache =
        2 * 3 * ops::kAttentionPage * 8 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim;
    EXPECT_LT(engine.allocated_bytes(), alone + cache);
    engine.initialize(5);
    std::vector<int64_t> text;
    for (int64_t i = 0; i <= 30; ++i) text.push_back((7 * i * i + 3 * i) % config.vocab_size);
    for (int step = 1; step <= 2; ++step) {
      const engine::LoadBatch load = [&](int, const engine::BatchTensors& to) {
        std::copy(text.begin(), text.end() - 1, to.inputs.data_ptr<int64_t>());
        std::copy(text.begin() + 1, text.end(), to.targets.data_ptr<int64_t>());
      };
      const double loss = engine.evaluate(load, 30);
      Generator generator(engine, {.texts = 2});
      double sum = 0;
      generator.add({.tokens = text, .judged_from = 1, .judged = [&](const std::vector<double>& logprobs, bool) {
                       ASSERT_EQ(logprobs.size(), 30u);
                       for (const double x : logprobs) sum -= x;
                     }});
      generator.run();
      EXPECT_NEAR(sum / 30, loss, 1e-12) << name << ", step " << step;
      engine.train_step({.load_batch = load, .supervised_tokens = 30, .optimizer = {.lr = 1e-2, .step = step}});
      EXPECT_NE(engine.evaluate(load, 30), loss);  // so the second round sees other weights
    }
  }
}

TEST(Generator, WritesOnWhenTheModelsPositionsAreUsedUp) {
  const model::ModelConfig config = config_of(Job{});
  const int64_t context = config.longest_generation();
  std::vector<Request> requests = {{.tokens = {1, 2, 3}, .max_new_tokens = 3 * context, .slides = true},
                                   {.tokens = {1, 2, 3}, .max_new_tokens = 3 * context}};
  Job job{.room = {.texts = 1, .tokens = 16, .cache_tokens = context + 128}};
  const std::vector<Answer> answers = run(job, requests);
  EXPECT_EQ(std::ssize(answers[0].tokens), 3 * context);
  EXPECT_EQ(std::ssize(answers[1].tokens), context - 2);  // the last one has no position
  EXPECT_TRUE(std::equal(answers[1].tokens.begin(), answers[1].tokens.end(), answers[0].tokens.begin()));
}

TEST(Generator, RefusesTokensOutsideTheVocabulary) {
  EXPECT_THROW(run({}, {{.tokens = {100000}, .max_new_tokens = 1}}), UsageError);
}

TEST(Generator, RefusesNumbersOutOfTheBoundsOfTheSettings) {
  const auto refusal = [](const Request& request) {
    try {
      run({}, {request});
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
    return std::string("nothing was thrown");
  };
  const auto drawn = [](const Sampling& sampling) {
    return Request{.tokens = {1, 2}, .max_new_tokens = 2, .sampling = sampling};
  };
  EXPECT_EQ(refusal({.tokens = {1, 2}, .max_new_tokens = 0}), "max_new_tokens must be at least 1, not 0");
  EXPECT_EQ(refusal({.tokens = {1, 2}, .max_new_tokens = -4}), "max_new_tokens must be at least 1, not -4");
  EXPECT_EQ(refusal(drawn({.temperature = -1})), "temperature must be at least 0, not -1");
  EXPECT_EQ(refusal(drawn({.temperature = NAN})), "temperature must be at least 0, not nan");
  EXPECT_EQ(refusal(drawn({.top_k = 0})), "top_k must be at least 1, not 0");
  EXPECT_EQ(refusal(drawn({.top_p = 7})), "top_p must be above 0 and at most 1, not 7");
  EXPECT_EQ(refusal(drawn({.top_p = 0})), "top_p must be above 0 and at most 1, not 0");
  EXPECT_EQ(refusal(drawn({.min_p = -1})), "min_p must be at least 0 and at most 1, not -1");
  EXPECT_EQ(refusal(drawn({.repetition_penalty = 0})), "repetition_penalty must be above 0, not 0");
  EXPECT_EQ(refusal(drawn({})), "nothing was thrown");
  EXPECT_EQ(refusal({.tokens = {1, 2}, .judged_from = 1}), "nothing was thrown");  // 0 new tokens are right
}

TEST(Generator, AnErrorOfACallersFunctionEndsItsTextAlone) {
  const Room room{.texts = 4, .tokens = 16, .cache_tokens = 1024};
  Alone alone(config_of(Job{}), kFloat32, {}, room);
  Generator& generator = alone.generator();
  std::vector<int> written(6);
  const auto add = [&](size_t number, bool throws) {
    generator.add({.tokens = {1, 2, static_cast<int64_t>(number)},
                   .max_new_tokens = 5,
                   .take = [&written, number, throws](int64_t, double) {
                     if (throws && written[number] == 2) throw std::runtime_error("mine");
                     ++written[number];
                     return true;
                   }});
  };
  for (size_t number = 0; number < 5; ++number) add(number, number == 1);
  EXPECT_THROW(generator.run(), std::runtime_error);
  add(5, false);
  generator.run();  // the others are written on, and so is a new one
  EXPECT_EQ(written, (std::vector<int>{5, 2, 5, 5, 5, 5}));
  EXPECT_EQ(generator.num_texts() + generator.num_waiting(), 0);
}

TEST(Generator, ARunThatFailsEndsItsTextsAndNotTheGenerator) {
  double weight = NAN;
  const auto fill = [&](const model::ParameterSpec&, const at::Tensor& to) { at::Tensor(to).fill_(weight); };
  Alone alone(config_of(Job{}), kFloat32, fill, {.texts = 2, .tokens = 16, .cache_tokens = 512});
  int written = 0;
  const Request request{.tokens = {1, 2}, .max_new_tokens = 3, .take = [&](int64_t, double) { return ++written > 0; }};
  alone.generator().add(request);
  EXPECT_THROW(alone.generator().run(), ShapeError);  // "a logit is NaN"
  weight = 0.01;
  alone.refill(fill);
  alone.generator().add(request);
  alone.generator().run();
  EXPECT_EQ(written, 3);
}

}  // namespace
}  // namespace trireme::generate
