#include "trireme/model/initialize.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>
#include <string>

#include "trireme/model/model.h"

namespace trireme::model {
namespace {

const ParameterSpec kWeight{
    "model.layers.0.mlp.up_proj.weight", {100, 1001}, {Initializer::Kind::normal, 0.02}, true, false};

std::vector<float> whole(const ParameterSpec& p, uint64_t seed) {
  std::vector<float> w(p.numel());
  initialize_held(w.data(), p, seed, 0, p.numel());
  return w;
}

TEST(Initialize, AnySpanEqualsThatPartOfTheWhole) {
  const std::vector<float> all = whole(kWeight, 42);
  for (auto [begin, end] : {std::pair<int64_t, int64_t>{0, 1}, {1, 2}, {7, 8}, {33, 4097}, {50000, 100100}}) {
    std::vector<float> part(end - begin);
    initialize_held(part.data(), kWeight, 42, begin, end);
    for (int64_t i = begin; i < end; ++i) ASSERT_EQ(part[i - begin], all[i]) << i;
  }
}

TEST(Initialize, MeanAndDeviationAreAsAskedFor) {
  const std::vector<float> w = whole(kWeight, 1);
  const double n = double(w.size()), mean = std::accumulate(w.begin(), w.end(), 0.0) / n;
  double square = 0, fourth = 0;
  for (float x : w) square += x * x / n, fourth += double(x) * x * x * x / n;
  EXPECT_NEAR(mean, 0, 5 * 0.02 / std::sqrt(n));
  EXPECT_NEAR(std::sqrt(square), 0.02, 0.02 * 5 / std::sqrt(2 * n));
  EXPECT_NEAR(fourth / (square * square), 3, 0.15);  // a normal distribution's kurtosis
}

TEST(Initialize, SeedsAndNamesGiveUnrelatedStreams) {
  ParameterSpec other = kWeight;
  other.name = "model.layers.1.mlp.up_proj.weight";
  const auto a = whole(kWeight, 42), b = whole(kWeight, 43), c = whole(other, 42);
  double ab = 0, ac = 0;
  for (size_t i = 0; i < a.size(); ++i) ab += a[i] * b[i], ac += a[i] * c[i];
  const double bound = 5 * 0.02 * 0.02 * std::sqrt(double(a.size()));
  EXPECT_LT(std::abs(ab), bound);
  EXPECT_LT(std::abs(ac), bound);
}

TEST(Initialize, NormsAreOnesAndBiasesZeros) {
  for (float x : whole({"norm", {100}, {Initializer::Kind::ones, 0}, false, false}, 1)) EXPECT_EQ(x, 1);
  for (float x : whole({"bias", {100}, {Initializer::Kind::zeros, 0}, false, false}, 1)) EXPECT_EQ(x, 0);
}

// As PEFT's reset_lora_parameters: an embedding's A is zero and its B normal, whatever the other adapters begin with.
TEST(Initialize, AnAdapterOfAnEmbeddingBeginsAsInPeft) {
  const ModelConfig config = catalogue_config("llama-5m");
  for (const AdapterInit init : {AdapterInit::kaiming, AdapterInit::gaussian}) {
    const AdapterSpec spec{.rank = 4, .init = init};
    const Model model = build_model(config, {}, {}, {}, {.modules = {{"model.embed_tokens", spec}, {"lm_head", spec}}});
    std::map<std::string, Initializer> first;
    for (const ParameterGroup& group : model.groups)
      for (const ParameterSpec& p : group.parameters) first[p.name] = p.init;
    EXPECT_EQ(first.at("model.embed_tokens.lora_embedding_A").kind, Initializer::Kind::zeros);
    EXPECT_EQ(first.at("model.embed_tokens.lora_embedding_B").kind, Initializer::Kind::normal);
    EXPECT_EQ(first.at("model.embed_tokens.lora_embedding_B").stddev, 1);
    EXPECT_EQ(first.at("lm_head.lora_B.weight").kind, Initializer::Kind::zeros);
    EXPECT_EQ(first.at("lm_head.lora_A.weight").kind,
              init == AdapterInit::kaiming ? Initializer::Kind::uniform : Initializer::Kind::normal);
  }
}

}  // namespace
}  // namespace trireme::model
