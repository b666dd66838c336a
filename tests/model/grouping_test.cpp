#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <set>

#include "trireme/base/error.h"
#include "trireme/model/model.h"

namespace trireme::model {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using By = WrapBy;

ModelConfig grouping_config(Architecture architecture) {
  ModelConfig c;
  set_architecture(c, architecture);
  c.num_hidden_layers = 2;
  c.vocab_size = 50;
  c.hidden_size = 16;
  c.intermediate_size = 24;
  c.num_attention_heads = c.num_key_value_heads = 2;
  c.head_dim = 8;
  c.tie_word_embeddings = architecture == Architecture::gpt2;
  return c;
}

std::vector<std::string> names(const Model& model) {
  std::vector<std::string> all;
  for (const ParameterGroup& g : model.groups) all.push_back(g.name);
  return all;
}

// Every parameter is in one place, and every unit finds its own there.
void expect_complete(const Model& model) {
  std::set<std::string> seen;
  for (const ParameterGroup& g : model.groups)
    for (const ParameterSpec& p : g.parameters) EXPECT_TRUE(seen.insert(p.name).second) << p.name;
  for (size_t u = 0; u < model.units.size(); ++u) {
    const auto& specs = model.units[u]->parameters();
    ASSERT_EQ(model.places[u].size(), specs.size());
    for (size_t i = 0; i < specs.size(); ++i) {
      const ParameterPlace place = model.places[u][i];
      EXPECT_EQ(model.groups[place.group].parameters[place.index].name, specs[i].name);
      if (!specs[i].joined) continue;
      EXPECT_EQ(model.places[u][i - 1].group, place.group);
      EXPECT_EQ(model.places[u][i - 1].index + 1, place.index);
    }
  }
}

std::vector<std::string> grouped(Architecture architecture, const Grouping& grouping) {
  const Model model = build_model(grouping_config(architecture), {}, {}, grouping);
  expect_complete(model);
  return names(model);
}

std::vector<std::string> frozen_groups(const Grouping& grouping) {
  const Model model = build_model(grouping_config(Architecture::llama), {}, {}, grouping);
  expect_complete(model);
  std::vector<std::string> frozen;
  for (const ParameterGroup& g : model.groups)
    if (!g.trained) frozen.push_back(g.name);
  return frozen;
}

// What a step need not compute: the weights' gradients of matrices that are multiplied.
TEST(Grouping, FrozenMatricesOfProductsAreCounted) {
  const auto counted = [](Architecture architecture, const Grouping& grouping, const Adapters& adapters = {}) {
    return build_model(grouping_config(architecture), {}, {}, grouping, adapters).num_frozen_product_parameters();
  };
  const int64_t all = grouping_config(Architecture::llama).num_product_parameters(), head = 50 * 16;
  const int64_t block = (all - head) / 2;
  EXPECT_EQ(counted(Architecture::llama, {}), 0);
  EXPECT_EQ(counted(Architecture::llama, {.frozen = {"block 0"}}), block);
  EXPECT_EQ(counted(Architecture::llama, {.frozen = {"embedding", "block 0", "block 1", "model.norm.weight"}}),
            2 * block);
  EXPECT_EQ(counted(Architecture::llama, {.frozen = {"block 0", "block 1", "head"}}), all);
  Adapters adapters{.whole = {"lm_head"}};
  adapters.modules["model.layers.0.self_attn.q_proj"] = {.rank = 2};
  EXPECT_EQ(counted(Architecture::llama, {}, adapters), 2 * block);
  EXPECT_EQ(counted(Architecture::gpt2, {.frozen = {"transformer.wte.weight", "block 0", "block 1"}}),
            grouping_config(Architecture::gpt2).num_product_parameters());  // the tied table is the head's, too
}

TEST(Grouping, FrozenAndTrainedParametersLieInGroupsOfTheirOwn) {
  const std::string down = "model.layers.1.mlp.down_proj.weight", norm = "model.norm.weight";
  EXPECT_THAT(frozen_groups({.frozen = {"block 0"}}), ElementsAre("block 0.frozen"));
  EXPECT_THAT(frozen_groups({.frozen = {"embedding", down, norm}}),
              ElementsAre("embedding.frozen", "block 1.frozen", "head.frozen"));
  EXPECT_THAT(frozen_groups({.by = By::parameter, .frozen = {down}}), ElementsAre(down + ".frozen"));
  EXPECT_THAT(frozen_groups({.min_num_params = 1 << 20, .frozen = {"embedding", down}}),
              ElementsAre("embedding.frozen..block 1.frozen"));
  EXPECT_THAT(frozen_groups({.own_group = {"block 0"}, .frozen = {down, norm}}), ElementsAre("rest.frozen"));
  EXPECT_THAT(grouped(Architecture::llama, {.frozen = {down}}),
              ElementsAre("embedding", "block 0", "block 1", "block 1.frozen", "head"));
  EXPECT_THAT(grouped(Architecture::gpt2, {.frozen = {"embedding"}}),
              ElementsAre("tied transformer.wte.weight", "embedding.frozen", "block 0", "block 1", "head"));
}

TEST(Grouping, RefusesToFreezeWhatIsNotThereOrHalfAMatrix) {
  const auto refusal = [](const Grouping& grouping) -> std::string {
    try {
      build_model(grouping_config(Architecture::llama), {}, {}, grouping);
    } catch (const UsageError& e) {
      return e.what();
    }
    return "none";
  };
  EXPECT_THAT(refusal({.frozen = {"block 7"}}), HasSubstr("'block 7', which is no unit or parameter of this model"));
  EXPECT_THAT(refusal({.frozen = {"model.layers.0.self_attn.q_proj.weight"}}), HasSubstr("freeze both or neither"));
}

TEST(Grouping, AMatrixThatIsTrainedWholeHasAllItsModules) {
  const auto refusal = [](const std::set<std::string>& whole) -> std::string {
    try {
      build_model(grouping_config(Architecture::llama), {}, {}, {}, {.whole = whole});
    } catch (const UsageError& e) {
      return e.what();
    }
    return "none";
  };
  const std::string attention = "model.layers.0.self_attn.", mlp = "model.layers.1.mlp.";
  EXPECT_EQ(refusal({attention + "v_proj"}),
            "modules_to_save: q_proj, k_proj and v_proj are one matrix in memory: name all three or none");
  EXPECT_EQ(refusal({mlp + "gate_proj"}),
            "modules_to_save: gate_proj and up_proj are one matrix in memory: name both or none");
  EXPECT_EQ(refusal({attention + "q_proj", attention + "k_proj", attention + "v_proj", mlp + "down_proj"}), "none");
}

TEST(Grouping, ByUnitPartOrParameter) {
  EXPECT_THAT(grouped(Architecture::llama, {}), ElementsAre("embedding", "block 0", "block 1", "head"));
  EXPECT_THAT(grouped(Architecture::gpt2, {.by = By::layer}),
              ElementsAre("tied transformer.wte.weight", "embedding", "block 0.attention", "block 0.mlp",
                          "block 1.attention", "block 1.mlp", "head"));
  const auto by_parameter = grouped(Architecture::llama, {.by = By::parameter});
  EXPECT_EQ(by_parameter.size(), 1u + 2 * 6 + 2);  // q|k|v and gate|up are one each
  EXPECT_EQ(by_parameter[2], "model.layers.0.self_attn.q_proj.weight");
}

TEST(Grouping, SmallGroupsThatFollowEachOtherAreMerged) {
  // embedding 800, block 16 + 3 * 256 + 256 + 16 + 3 * 384 = 2208, head 16 + 800
  EXPECT_THAT(grouped(Architecture::llama, {.min_num_params = 3000}),
              ElementsAre("embedding..block 0", "block 1..head"));
  EXPECT_THAT(grouped(Architecture::llama, {.min_num_params = 3009}), ElementsAre("embedding..block 1", "head"));
  EXPECT_THAT(grouped(Architecture::gpt2, {.min_num_params = 1 << 20}),
              ElementsAre("tied transformer.wte.weight", "embedding..head"));
}

TEST(Grouping, MergesAlikeOnEveryTensorParallelRank) {
  const Grouping grouping{.min_num_params = 3000};
  for (int rank : {0, 1})
    EXPECT_EQ(names(build_model(grouping_config(Architecture::llama), {}, {.tp_rank = rank, .tp_size = 2}, grouping)),
              names(build_model(grouping_config(Architecture::llama), {}, {}, grouping)));
}

TEST(Grouping, UnitsWithAGroupOfTheirOwnLeaveTheRestTogether) {
  EXPECT_THAT(grouped(Architecture::llama, {.own_group = {"block 1"}}), ElementsAre("rest", "block 1"));
  try {
    grouped(Architecture::llama, {.own_group = {"blok 1"}});
    FAIL();
  } catch (const UsageError& e) {
    EXPECT_THAT(e.what(), HasSubstr("did you mean block 1?"));
  }
  EXPECT_THROW(grouped(Architecture::llama, {.by = By::layer, .own_group = {"block 1"}}), UsageError);
}

TEST(BuildModel, OfALargeModelWithLongSequencesCostsMilliseconds) {
  ModelConfig c = catalogue_config("llama-3-70b");
  c.num_hidden_layers = 126;
  c.max_position_embeddings = 131072;
  const auto start = std::chrono::steady_clock::now();
  const Model model = build_model(c, {});
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  EXPECT_EQ(model.units.size(), 128u);
  EXPECT_LT(elapsed.count(), 0.2);  // the tables of 131072 positions alone take longer to fill
}

}  // namespace
}  // namespace trireme::model
