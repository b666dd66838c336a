#include "trireme/model/generator.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <map>
#include <thread>

#include "trireme/base/error.h"
#include "trireme/comm/factory.h"
#include "trireme/model/initialize.h"

namespace trireme::model {
namespace {

ModelConfig generator_config(Architecture architecture) {
  ModelConfig c;
  set_architecture(c, architecture);
  c.vocab_size = 37;
  c.hidden_size = 32;
  c.intermediate_size = 48;
  c.num_hidden_layers = 2;
  c.num_attention_heads = 4;
  c.num_key_value_heads = architecture == Architecture::gpt2 ? 4 : 2;
  c.head_dim = 8;
  c.max_position_embeddings = 12;
  c.tie_word_embeddings = architecture == Architecture::gpt2;
  c.initializer_range = 0.2;
  set_num_hidden_layers(c, 2);
  if (!c.windowed.empty()) c.sliding_window = 3;
  return c;
}

void fill_held(const ParameterSpec& p, const at::Tensor& t) {
  initialize_held(t.data_ptr<double>(), p, 5, 0, p.numel());
}
void fill(const ParameterSpec& p, const at::Tensor& t) { initialize_held(t.data_ptr<double>(), p, 5, 0, p.numel()); }

// Loss of the training units over a whole sequence, for comparison.
double loss_of_units(const ModelConfig& config, const std::vector<int64_t>& ids) {
  const Precision precision{at::kDouble, at::kDouble};
  const Model model = build_model(config, precision);
  const int64_t n = static_cast<int64_t>(ids.size()) - 1;
  const BatchShape shape{1, n};
  std::map<std::string, at::Tensor> weights;
  at::Tensor input;
  UnitTensors t;
  for (const auto& unit : model.units) {
    t = {};
    t.shape = shape;
    t.tokens = at::tensor(std::vector<int64_t>(ids.begin(), ids.end() - 1), at::kLong);
    t.targets = at::tensor(std::vector<int64_t>(ids.begin() + 1, ids.end()), at::kLong);
    t.loss_sum = at::zeros({1}, at::kDouble);
    t.input = input;
    // Joined parameters lie without gaps: one buffer for the unit.
    int64_t total = 0;
    for (const ParameterSpec& p : unit->parameters()) total += p.numel();
    const at::Tensor flat = at::empty({total}, at::kDouble);
    int64_t at = 0;
    for (const ParameterSpec& p : unit->parameters()) {
      t.parameters.push_back(flat.narrow(0, at, p.numel()).view(p.shape));
      fill(p, t.parameters.back());
      at += p.numel();
    }
    const UnitValues v = unit->values(shape, precision);
    for (const TensorSpec& s : v.saved) t.saved.push_back(at::empty(s.shape, s.dtype));
    for (const TensorSpec& s : v.forward_work) t.work.push_back(at::empty(s.shape, s.dtype));
    if (!v.output.shape.empty()) t.output = at::empty(v.output.shape, v.output.dtype);
    unit->forward(t);
    input = t.output;
  }
  return t.loss_sum.item<double>();
}

class Decoding : public testing::TestWithParam<Architecture> {};

TEST_P(Decoding, TokenByTokenEqualsTheTrainingForward) {
  const ModelConfig config = generator_config(GetParam());
  const std::vector<int64_t> ids = {3, 14, 15, 9, 2, 6, 5, 35, 8, 9};
  Generator generator(config, {at::kDouble, at::kDouble}, fill);
  double loss = 0;
  for (size_t i = 0; i + 1 < ids.size(); ++i)
    loss -= at::log_softmax(generator.next_logits(ids[i]), 0)[ids[i + 1]].item<double>();
  EXPECT_NEAR(loss, loss_of_units(config, ids), 1e-11);
}

TEST_P(Decoding, GoesOnWhenTheContextIsFull) {
  Generator generator(
      generator_config(GetParam()), {at::kFloat, at::kFloat},
      [](const ParameterSpec& p, const at::Tensor& t) { initialize_held(t.data_ptr<float>(), p, 5, 0, p.numel()); });
  int count = 0;
  generator.generate(std::vector<int64_t>{1, 2, 3}, 40, {.seed = 1}, [&](int64_t token) {
    EXPECT_TRUE(0 <= token && token < 37);
    return ++count < 30;
  });
  EXPECT_EQ(count, 30);
}

TEST_P(Decoding, ManyTokensAtOnceEqualOneByOne) {
  const ModelConfig config = generator_config(GetParam());
  const std::vector<int64_t> ids = {3, 14, 15, 9, 2, 6, 5, 35, 8, 9};
  Generator one(config, {at::kDouble, at::kDouble}, fill), many(config, {at::kDouble, at::kDouble}, fill);
  at::Tensor last;
  for (const int64_t id : ids) last = one.next_logits(id);
  many.next_logits(std::span(ids).first(4));
  EXPECT_LT((many.next_logits(std::span(ids).subspan(4)) - last).abs().max().item<double>(), 1e-12);
}

TEST_P(Decoding, TensorAndPipelineRanksDrawTheSameTokens) {
  const ModelConfig config = generator_config(GetParam());
  const std::vector<int64_t> prompt = {3, 14, 15, 9};
  std::vector<int64_t> expected;
  Generator alone(config, {at::kDouble, at::kDouble}, fill);
  const SamplingOptions options{.temperature = 0.9, .seed = 3};
  alone.generate(prompt, 6, options, [&](int64_t id) { return expected.push_back(id), true; });
  std::vector<std::vector<int64_t>> drawn(4);
  std::vector<std::thread> threads;
  const auto tp0 = comm::make_thread_segment(2), tp1 = comm::make_thread_segment(2),
             stages0 = comm::make_thread_segment(2), stages1 = comm::make_thread_segment(2);
  for (int rank = 0; rank < 4; ++rank)
    threads.emplace_back([&, rank] {
      const int tp = rank % 2, stage = rank / 2;
      const auto make = [](const char* name, int rank_in_group, const std::shared_ptr<comm::SharedSegment>& segment) {
        return comm::make_communicator(
            {.name = name, .backend = "threads", .rank = rank_in_group, .size = 2, .thread_segment = segment});
      };
      const auto tp_ranks = make("tp", tp, stage == 0 ? tp0 : tp1),
                 stage_ranks = make("stages", stage, tp == 0 ? stages0 : stages1);
      Generator generator(config, {at::kDouble, at::kDouble}, fill_held,
                          {.parallel = {.tp_rank = tp, .tp_size = 2},
                           .stage = stage,
                           .num_stages = 2,
                           .tp = tp_ranks.get(),
                           .stages = stage_ranks.get()});
      generator.generate(prompt, 6, options, [&](int64_t id) { return drawn[rank].push_back(id), true; });
    });
  for (std::thread& t : threads) t.join();
  for (const auto& ids : drawn) EXPECT_EQ(ids, expected);
}

INSTANTIATE_TEST_SUITE_P(Each, Decoding,
                         testing::Values(Architecture::llama, Architecture::gpt2, Architecture::qwen2,
                                         Architecture::qwen3, Architecture::gemma3));

TEST(Sampling, TemperatureZeroTakesTheLikeliestAndTopKNeverLeavesTheK) {
  const at::Tensor logits = at::tensor({0.0f, 3.0f, 1.0f, 2.5f});
  std::mt19937_64 random(1);
  std::map<int64_t, int> seen;
  for (int i = 0; i < 500; ++i) {
    EXPECT_EQ(sample_token(logits, {.temperature = 0}, random), 1);
    ++seen[sample_token(logits, {.temperature = 1, .top_k = 2}, random)];
  }
  EXPECT_EQ(seen.size(), 2u);
  // exp(3) : exp(2.5) = 0.622 : 0.378; 500 draws deviate by 0.022.
  EXPECT_NEAR(seen[1] / 500.0, 0.622, 0.1);
}

TEST(Sampling, TopPKeepsTheFewestThatReachIt) {
  const at::Tensor logits = at::log(at::tensor({0.5f, 0.3f, 0.15f, 0.05f}));
  std::mt19937_64 random(1);
  std::map<int64_t, int> seen;
  for (int i = 0; i < 500; ++i) ++seen[sample_token(logits, {.temperature = 1, .top_p = 0.75}, random)];
  EXPECT_EQ(seen.size(), 2u);
}

TEST(Sampling, LogitsThatAreNotFiniteAreRefused) {
  std::mt19937_64 random(1);
  EXPECT_THROW(sample_token(at::tensor({NAN, NAN}), {}, random), ShapeError);
}

}  // namespace
}  // namespace trireme::model
