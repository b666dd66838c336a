#include "trireme/adapt/adapter_config.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "trireme/base/error.h"

namespace trireme::adapt {
namespace {

using nlohmann::json;

/// What PEFT 0.21 writes for LoraConfig(target_modules=["q_proj"]).
json peft_writes() {
  return json::parse(R"({
    "alora_invocation_tokens": null, "alpha_pattern": {}, "arrow_config": null, "auto_mapping": null,
    "base_model_name_or_path": "models/llama", "bias": "none", "corda_config": null, "ensure_weight_tying": false,
    "eva_config": null, "exclude_modules": null, "fan_in_fan_out": false, "inference_mode": true,
    "init_lora_weights": true, "kasa_config": null, "layer_replication": null, "layers_pattern": null,
    "layers_to_transform": null, "loftq_config": {}, "lora_alpha": 8, "lora_bias": false, "lora_dropout": 0.0,
    "lora_ga_config": null, "megatron_config": null, "megatron_core": "megatron.core", "modules_to_save": null,
    "monteclora_config": null, "peft_type": "LORA", "peft_version": "0.21.2", "qalora_group_size": 16, "r": 8,
    "rank_pattern": {}, "revision": null, "target_modules": ["q_proj"], "target_parameters": null,
    "task_type": "CAUSAL_LM", "trainable_token_indices": null, "use_bdlora": null, "use_dora": false,
    "use_qalora": false, "use_rslora": false, "velora_config": null})");
}

std::string refusal(const std::string& key, const json& value) {
  json j = peft_writes();
  j[key] = value;
  try {
    parse_adapter_config(j.dump(), "a/adapter_config.json");
  } catch (const CheckpointError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(AdapterConfig, WhatPeftWritesIsRead) {
  json j = peft_writes();
  j["r"] = 16;
  j["lora_alpha"] = 12.5;
  j["use_rslora"] = true;
  j["modules_to_save"] = {"lm_head"};
  j["rank_pattern"] = {{"k_proj", 4}};
  j["layers_to_transform"] = 3;
  const AdapterConfig c = parse_adapter_config(j.dump(), "a");
  EXPECT_EQ(c.r, 16);
  EXPECT_EQ(c.lora_alpha, 12.5);
  EXPECT_TRUE(c.use_rslora);
  EXPECT_EQ(c.target_modules.list, std::vector<std::string>{"q_proj"});
  EXPECT_EQ(c.modules_to_save, std::vector<std::string>{"lm_head"});
  EXPECT_EQ(c.rank_pattern.at(0).first, "k_proj");
  EXPECT_EQ(c.layers_to_transform, std::vector<int64_t>{3});
  EXPECT_EQ(c.base_model_name_or_path, "models/llama");
}

TEST(AdapterConfig, WhatIsWrittenReadsBackTheSame) {
  AdapterConfig c{.r = 4,
                  .lora_alpha = 0.5,
                  .lora_dropout = 0.1,
                  .use_dora = true,
                  .target_modules = {.pattern = ".*q_proj"},
                  .exclude_modules = {.list = {"down_proj"}},
                  .modules_to_save = {"norm"},
                  .rank_pattern = {{"k_proj", 2}, {"a", 3}},
                  .alpha_pattern = {{"v_proj", 1.5}},
                  .init_lora_weights = model::AdapterInit::gaussian,
                  .base_model_name_or_path = "b"};
  EXPECT_EQ(parse_adapter_config(adapter_config_json(c), "a"), c);
  c = {.target_modules = {.list = {"k_proj", "q_proj"}},
       .layers_to_transform = std::vector<int64_t>{0, 2},
       .layers_pattern = {"layers"}};
  EXPECT_EQ(parse_adapter_config(adapter_config_json(c), "a"), c);
}

TEST(AdapterConfig, KeysThatChangeTheMathematicsAreRefusedByName) {
  const std::vector<std::pair<std::string, json>> wrong = {{"trainable_token_indices", {1, 2}},
                                                           {"ensure_weight_tying", true},
                                                           {"layer_replication", json::array({{0, 2}, {1, 3}})},
                                                           {"use_qalora", true},
                                                           {"target_parameters", {"mlp.experts.down_proj"}},
                                                           {"bias", "all"},
                                                           {"bias", "lora_only"},
                                                           {"enable_lora", {true, false, true}},
                                                           {"init_lora_weights", "pissa_niter_4"},
                                                           {"init_lora_weights", "loftq"},
                                                           {"init_lora_weights", "mica"},
                                                           {"peft_type", "IA3"},
                                                           {"task_type", "SEQ_CLS"},
                                                           {"a_key_of_peft_0_99", 1},
                                                           {"target_modules", json::array()},
                                                           {"r", "eight"},
                                                           {"r", 8.5},
                                                           {"lora_alpha", "16"},
                                                           {"use_dora", 1},
                                                           {"rank_pattern", {{"q_proj", "4"}}},
                                                           {"kasa_config", {{"beta", 1.0}}}};
  for (const auto& [key, value] : wrong) {
    const std::string text = refusal(key, value);
    EXPECT_TRUE(text.starts_with("a/adapter_config.json: " + key + " is " + value.dump())) << text;
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
  }
}

TEST(AdapterConfig, ValuesThatChangeNothingAreAccepted) {
  for (const auto& [key, value] : std::vector<std::pair<std::string, json>>{{"init_lora_weights", "gaussian"},
                                                                            {"init_lora_weights", false},
                                                                            {"init_lora_weights", "eva"},
                                                                            {"eva_config", {{"rho", 2.0}}},
                                                                            {"revision", "main"},
                                                                            {"exclude_modules", json::array()},
                                                                            {"layers_to_transform", json::array()},
                                                                            {"target_modules", nullptr},
                                                                            {"task_type", nullptr},
                                                                            {"enable_lora", nullptr},
                                                                            {"merge_weights", false},
                                                                            {"a_key_of_peft_0_99", nullptr},
                                                                            {"r", 8.0}})
    EXPECT_EQ(refusal(key, value), "accepted") << key;
}

TEST(AdapterConfig, TextThatIsNoObjectIsRefused) {
  for (const char* text : {"", "[]", "{", "7"}) EXPECT_THROW(parse_adapter_config(text, "a"), CheckpointError) << text;
}

}  // namespace
}  // namespace trireme::adapt
