#include "trireme/model/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/model/model.h"

namespace trireme::model {
namespace {

using testing::HasSubstr;

std::string refusal(const std::string& json) {
  try {
    parse_hugging_face_config(json, "config.json");
  } catch (const UsageError& e) {
    return e.what();
  }
  return "";
}

TEST(Catalogue, PublishedShapesHaveTheirPublishedParameterCounts) {
  // Totals that the models' publishers and transformers report.
  EXPECT_EQ(catalogue_config("gpt2").num_parameters(), 124439808);
  EXPECT_EQ(catalogue_config("gpt2-medium").num_parameters(), 354823168);
  EXPECT_EQ(catalogue_config("gpt2-large").num_parameters(), 774030080);
  EXPECT_EQ(catalogue_config("gpt2-xl").num_parameters(), 1557611200);
  EXPECT_EQ(catalogue_config("tiny-llama-1.1b").num_parameters(), 1100048384);
  EXPECT_EQ(catalogue_config("llama-2-7b").num_parameters(), 6738415616);
  EXPECT_EQ(catalogue_config("llama-2-13b").num_parameters(), 13015864320);
  EXPECT_EQ(catalogue_config("llama-3-8b").num_parameters(), 8030261248);
  EXPECT_EQ(catalogue_config("llama-3-70b").num_parameters(), 70553706496);
}

TEST(Catalogue, CountsAgreeWithTheUnitsParameters) {
  for (const char* name : {"llama-5m", "llama-32m", "gpt2"}) {
    const ModelConfig config = catalogue_config(name);
    int64_t sum = 0;
    for (const ParameterGroup& g : build_model(config, {}).groups)
      for (const ParameterSpec& p : g.parameters) sum += p.numel();
    EXPECT_EQ(sum, config.num_parameters()) << name;
  }
}

TEST(Catalogue, AnUnknownNameIsRefusedWithTheNearestOne) {
  try {
    catalogue_config("llama-32n");
    FAIL();
  } catch (const UsageError& e) {
    EXPECT_THAT(e.what(), HasSubstr("did you mean llama-32m?"));
  }
}

TEST(HuggingFaceConfig, WhatIsWrittenIsReadBack) {
  for (const std::string& name : catalogue_names()) {
    const ModelConfig c = catalogue_config(name);
    const ModelConfig back = parse_hugging_face_config(c.to_hugging_face_json("float32"), "config.json");
    EXPECT_EQ(back.num_parameters(), c.num_parameters()) << name;
    EXPECT_EQ(back.num_key_value_heads, c.num_key_value_heads);
    EXPECT_EQ(back.norm_eps, c.norm_eps);
    EXPECT_EQ(back.rope_theta, c.rope_theta);
    EXPECT_EQ(back.tie_word_embeddings, c.tie_word_embeddings);
  }
}

TEST(HuggingFaceConfig, FieldsThatChangeTheMathematicsAreRefusedByName) {
  EXPECT_THAT(refusal(R"({"model_type": "mixtral"})"), HasSubstr("mixtral"));
  EXPECT_THAT(refusal(R"({"model_type": "llama", "sliding_window": 4096})"), HasSubstr("sliding_window"));
  EXPECT_THAT(refusal(R"({"model_type": "llama", "hidden_act": "gelu"})"), HasSubstr("hidden_act"));
  EXPECT_THAT(refusal(R"({"model_type": "llama", "rope_scaling": {"rope_type": "llama3", "factor": 8}})"),
              HasSubstr("llama3"));
  EXPECT_THAT(refusal(R"({"model_type": "llama", "num_attention_heads": 6, "num_key_value_heads": 4})"),
              HasSubstr("does not divide"));
  EXPECT_THAT(refusal("{"), HasSubstr("not a usable config.json"));
}

TEST(Model, ATiedHeadSharesAGroupOfItsOwn) {
  const Model m = build_model(catalogue_config("gpt2"), {});
  const auto embedding = m.groups_of(0), head = m.groups_of(static_cast<int>(m.units.size()) - 1);
  ASSERT_EQ(embedding.size(), 2u);  // the table; the positions
  EXPECT_TRUE(std::find(head.begin(), head.end(), embedding[0]) != head.end());
}

}  // namespace
}  // namespace trireme::model
