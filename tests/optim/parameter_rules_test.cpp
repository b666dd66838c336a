#include "trireme/optim/parameter_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme::optim {
namespace {

using testing::HasSubstr;

model::Model small(const model::Grouping& grouping = {}) {
  model::ModelConfig c;
  set_architecture(c, model::Architecture::llama);
  c.vocab_size = 61;
  c.hidden_size = 48;
  c.intermediate_size = 96;
  c.num_hidden_layers = 2;
  c.num_attention_heads = c.num_key_value_heads = 6;
  c.head_dim = 8;
  c.max_position_embeddings = 16;
  return model::build_model(c, {at::kFloat, at::kFloat}, {}, grouping);
}

model::Model with(std::vector<std::string> texts) {
  model::Model m = small();
  apply_parameter_rules(m, {}, parameter_rules({.groups = std::move(texts)}));
  return m;
}

const model::ParameterSpec& find(const model::Model& m, const std::string& name, bool trained = true) {
  for (const model::ParameterGroup& group : m.groups)
    for (const model::ParameterSpec& p : group.parameters)
      if (p.name == name && group.trained == trained) return p;
  throw std::runtime_error("no " + name);
}

std::string refusal(std::vector<std::string> texts) {
  try {
    with(std::move(texts));
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(ParameterRules, TheLastRuleThatSaysSomethingCounts) {
  const model::Model m = with(
      {"layers lr=0.5 weight_decay=0.3", "q_proj lr=2", "^model.norm weight_decay=0.1", R"(layers\.1\.mlp frozen)"});
  EXPECT_EQ(find(m, "model.layers.0.self_attn.q_proj.weight").rate, 2);
  EXPECT_EQ(find(m, "model.layers.0.self_attn.q_proj.weight").weight_decay, 0.3);
  EXPECT_EQ(find(m, "model.layers.0.self_attn.k_proj.weight").rate, 0.5);
  EXPECT_TRUE(find(m, "model.norm.weight").decay);
  EXPECT_EQ(find(m, "lm_head.weight").weight_decay, std::nullopt);
  EXPECT_EQ(find(m, "model.layers.1.mlp.down_proj.weight", false).name, "model.layers.1.mlp.down_proj.weight");
  EXPECT_NO_THROW(find(m, "model.layers.1.self_attn.o_proj.weight"));
}

TEST(ParameterRules, RefuseWhatMatchesNothingOrSaysNothing) {
  EXPECT_THAT(refusal({"q_projj lr=2"}), HasSubstr("'q_projj' matches no parameter of this model"));
  EXPECT_THAT(refusal({"q_proj"}), HasSubstr("says nothing"));
  EXPECT_THAT(refusal({"q_proj lr=-1"}), HasSubstr("'lr=-1' is none of"));
  EXPECT_THAT(refusal({"q_proj rate=1"}), HasSubstr("'rate=1' is none of"));
  EXPECT_THAT(refusal({"q_proj frozen lr=1"}), HasSubstr("freezes"));
  EXPECT_THAT(refusal({". frozen"}), HasSubstr("nothing is left to train"));
  EXPECT_THAT(refusal({"norm frozen", "norm lr=2"}), HasSubstr("frozen already"));
  EXPECT_THAT(refusal({"q_proj frozen"}), HasSubstr("freeze both or neither"));  // q, k and v are one matrix in memory
}

TEST(MatricesApart, HiddenMatricesLieInGroupsOfTheirOwn) {
  const model::Model m = small({.matrices_apart = true});
  std::vector<std::string> names;
  for (const model::ParameterGroup& group : m.groups) {
    names.push_back(group.name);
    for (const model::ParameterSpec& p : group.parameters) {
      const bool outside = p.name == "model.embed_tokens.weight" || p.name == "lm_head.weight";
      EXPECT_EQ(group.companion, outside || p.shape.size() == 1) << p.name;
    }
  }
  EXPECT_THAT(names,
              testing::UnorderedElementsAre("embedding", "block 0", "block 0.rest", "block 1", "block 1.rest", "head"));
}

TEST(MatricesApart, UnitsThatShareAGroupKeepMatricesApartToo) {
  for (const char* unit : {"head", "embedding", "block 0"}) {
    const model::Model m = small({.own_group = {unit}, .matrices_apart = true});
    for (const model::ParameterGroup& group : m.groups)
      for (const model::ParameterSpec& p : group.parameters) {
        const bool outside = p.name == "model.embed_tokens.weight" || p.name == "lm_head.weight";
        EXPECT_EQ(group.companion, outside || p.shape.size() == 1) << unit << ": " << p.name << " in " << group.name;
      }
  }
}

}  // namespace
}  // namespace trireme::optim
