#include "trireme/adapt/resolve.h"

#include <gmock/gmock.h>

#include <cmath>

#include "folders.h"
#include "trireme/adapt/from_settings.h"
#include "trireme/base/error.h"

namespace trireme::adapt {
namespace {

const model::ModelConfig kLlama = small_model(model::Architecture::llama);

std::vector<std::string> names(const AdapterConfig& config, const model::ModelConfig& model = kLlama) {
  std::vector<std::string> found;
  for (const auto& [name, spec] : resolve(config, model).modules) found.push_back(name);
  return found;
}

std::string refusal(const AdapterConfig& config, const model::ModelConfig& model = kLlama) {
  try {
    resolve(config, model);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "accepted";
}

ModuleNames list(std::vector<std::string> entries) { return {.list = std::move(entries)}; }
ModuleNames expression(const std::string& text) { return {.pattern = text}; }

TEST(Resolve, AnEntryFitsTheEndOfANameAfterADot) {
  EXPECT_EQ(names({.target_modules = list({"q_proj"})}).size(), 3);
  EXPECT_EQ(names({.target_modules = list({"self_attn.v_proj", "model.layers.1.mlp.up_proj"})}),
            (std::vector<std::string>{"model.layers.0.self_attn.v_proj", "model.layers.1.mlp.up_proj",
                                      "model.layers.1.self_attn.v_proj", "model.layers.2.self_attn.v_proj"}));
  EXPECT_NE(refusal({.target_modules = list({"proj"})}), "accepted");
}

TEST(Resolve, AnExpressionHasToFitTheWholeName) {
  EXPECT_EQ(names({.target_modules = expression(R"(.*\.[02]\.self_attn\.(q|k)_proj)")}).size(), 4);
  EXPECT_NE(refusal({.target_modules = expression("self_attn.q_proj")}), "accepted");
  EXPECT_EQ(names({.target_modules = expression(R"(.*layers\.(?P<layer>1)\..*(?<!up)_proj)")}).size(), 6);
}

TEST(Resolve, AnExpressionThatIsNotUnderstoodIsRefusedByName) {
  for (const char* wrong : {"(q_proj", R"((q)\1_proj)", "(?(1)a|b)"}) {
    const std::string text = refusal({.target_modules = expression(wrong)});
    EXPECT_TRUE(text.starts_with("target_modules: the regular expression '")) << text;
  }
}

TEST(Resolve, AllLinearIsEveryMatrixButTheHead) {
  EXPECT_EQ(names({.target_modules = expression("All-Linear")}).size(), 21);
  EXPECT_EQ(names({.target_modules = expression("all-linear")}, small_model(model::Architecture::gpt2)).size(), 12);
  EXPECT_EQ(names({.target_modules = expression("all-linear"), .exclude_modules = list({"mlp.up_proj"})}).size(), 18);
}

TEST(Resolve, ATaskWithoutDropoutHasNoneInItsAdapters) {
  for (const bool without : {false, true})
    for (const auto& [name, spec] : adapters_of({.r = 4, .dropout = 0.1, .without_dropout = without}, kLlama).modules)
      EXPECT_EQ(spec.dropout, without ? 0 : 0.1) << name;
}

TEST(Resolve, EachNameOfSettingsFitsAModule) {
  const auto refused = [](const AdapterConfig& config) -> std::string {
    try {
      require_names(config, kLlama, resolve(config, kLlama));
    } catch (const UsageError& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_EQ(refused({.target_modules = list({"q_proj", "self_attn.v_proj", "lm_head"})}), "accepted");
  EXPECT_EQ(refused({.target_modules = list({"q_proj", "v_porj"})}),
            "lora.target_modules: this model has no module 'v_porj'; the nearest is v_proj");
  AdapterConfig ranks{.target_modules = list({"q_proj"})};
  ranks.rank_pattern = {{R"(layers\.1\..*q_proj)", 4}};
  EXPECT_EQ(refused(ranks), "accepted");
  ranks.rank_pattern = {{"q_porj", 4}};
  EXPECT_EQ(refused(ranks), "lora.rank_pattern: this model has no module 'q_porj'; the nearest is q_proj");
  ranks.rank_pattern = {{"k_proj", 4}};
  EXPECT_EQ(refused(ranks),
            "lora.rank_pattern: k_proj has no adapter; name it in lora.target_modules, or leave it out");
  EXPECT_THAT(refused({.target_modules = list({"q_proj"}), .alpha_pattern = {{"mlp", 4}}}),
              testing::StartsWith("lora.alpha_pattern: this model has no module 'mlp'; its modules are "));
}

TEST(Resolve, ExceptionsOfSettingsFitToo) {
  const auto refused = [](const ModuleNames& excluded, std::vector<int64_t> blocks = {}) -> std::string {
    AdapterConfig config{.target_modules = list({"q_proj"}), .exclude_modules = excluded};
    if (!blocks.empty()) config.layers_to_transform = blocks;
    try {
      require_names(config, kLlama, resolve(config, kLlama));
    } catch (const UsageError& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_EQ(refused(list({"layers.0.self_attn.q_proj", "lm_head"})), "accepted");
  EXPECT_EQ(refused(expression(R"(.*\.0\..*)")), "accepted");
  EXPECT_EQ(refused(list({"q_porj"})),
            "lora.exclude_modules: this model has no module 'q_porj'; the nearest is q_proj");
  EXPECT_THAT(refused(list({"mlp"})), testing::HasSubstr("lora.exclude_modules names mlp, which is no matrix"));
  EXPECT_THAT(refused(expression("slip.*")), testing::HasSubstr("lora.exclude_modules: 'slip.*' fits no module"));
  EXPECT_EQ(refused({}, {0, 2}), "accepted");
  EXPECT_EQ(refused({}, {0, 99}), "lora.layers_to_transform: there is no block 99; this model's are 0 to 2");
}

TEST(Resolve, NumbersOfPatternsAreAboveZero) {
  for (const char* wrong : {"q_proj=nan", "q_proj=inf", "q_proj=0", "q_proj=-2"}) {
    const std::string named = std::string("'") + wrong + "', and its number must be above 0";
    EXPECT_THAT([&] { adapter_config({.r = 4, .alpha_pattern = std::vector<std::string>{wrong}}, kLlama); },
                testing::ThrowsMessage<UsageError>(testing::HasSubstr(named)));
  }
  EXPECT_THAT([&] { adapter_config({.r = 4, .rank_pattern = std::vector<std::string>{"q_proj=0"}}, kLlama); },
              testing::ThrowsMessage<UsageError>(testing::HasSubstr("lora.rank_pattern holds 'q_proj=0'")));
}

TEST(Resolve, AllLinearOfSettingsIsReadInAnyCase) {
  EXPECT_EQ(adapters_of({.r = 4, .target_modules = std::vector<std::string>{"ALL-LINEAR"}}, kLlama).modules.size(), 21);
}

TEST(Resolve, DefaultsFollowTheArchitecture) {
  EXPECT_EQ(names({}).size(), 6);
  EXPECT_EQ(names({}, small_model(model::Architecture::gpt2)).front(), "transformer.h.0.attn.c_attn");
}

TEST(Resolve, LayersToTransformReadsTheFirstNumber) {
  EXPECT_EQ(names({.target_modules = list({"q_proj"}), .layers_to_transform = std::vector<int64_t>{0, 2}}),
            (std::vector<std::string>{"model.layers.0.self_attn.q_proj", "model.layers.2.self_attn.q_proj"}));
  EXPECT_EQ(names({.target_modules = list({"q_proj", "embed_tokens"}),
                   .layers_to_transform = std::vector<int64_t>{1},
                   .layers_pattern = {"layers"}})
                .size(),
            1);
  EXPECT_EQ(names({.target_modules = list({"q_proj", "lm_head", "model.layers.0.mlp.up_proj"}),
                   .layers_to_transform = std::vector<int64_t>{1}}),
            (std::vector<std::string>{"lm_head", "model.layers.0.mlp.up_proj", "model.layers.1.self_attn.q_proj"}));
  EXPECT_NE(refusal({.target_modules = list({"q_proj"}),
                     .layers_to_transform = std::vector<int64_t>{1},
                     .layers_pattern = {"blocks"}}),
            "accepted");
  EXPECT_NE(refusal({.target_modules = expression(".*q_proj"), .layers_to_transform = std::vector<int64_t>{1}}),
            "accepted");
}

TEST(Resolve, PatternsGiveRanksAndScales) {
  const model::Adapters a = resolve({.r = 8,
                                     .lora_alpha = 16,
                                     .target_modules = list({"q_proj", "v_proj"}),
                                     .rank_pattern = {{"v_proj", 2}, {R"(layers\.[01]\.self_attn\.v_proj)", 5}},
                                     .alpha_pattern = {{"^model.layers.0.self_attn.q_proj", 3}}},
                                    kLlama);
  EXPECT_EQ(a.modules.at("model.layers.1.self_attn.v_proj").rank, 2);  // the first that fits
  EXPECT_EQ(a.modules.at("model.layers.1.self_attn.v_proj").scale, 8);
  EXPECT_EQ(a.modules.at("model.layers.0.self_attn.q_proj").scale, 3.0 / 8);
  EXPECT_EQ(a.modules.at("model.layers.1.self_attn.q_proj").scale, 2);
  const model::Adapters s = resolve({.r = 9, .lora_alpha = 16, .use_rslora = true}, kLlama);
  EXPECT_DOUBLE_EQ(s.modules.begin()->second.scale, 16 / std::sqrt(9.0));
}

TEST(Resolve, ModulesToSaveTakeWhatTheyHold) {
  const model::Adapters a = resolve(
      {.target_modules = expression("all-linear"), .modules_to_save = {"lm_head", "2.mlp", "model.norm"}}, kLlama);
  EXPECT_EQ(a.whole, (std::set<std::string>{"lm_head", "model.layers.2.mlp.down_proj", "model.layers.2.mlp.gate_proj",
                                            "model.layers.2.mlp.up_proj", "model.norm"}));
  EXPECT_EQ(a.modules.size(), 18);
}

TEST(Resolve, HowMatricesAreKeptChangesNoModule) {
  model::ModelConfig quantized = kLlama;
  quantized.intermediate_size = 40;  // no whole blocks in a row
  const std::vector<Module> dense = modules_of(quantized);
  quantized.quantized = base::BlockFormat::q8_0;
  const std::vector<Module> modules = modules_of(quantized);
  ASSERT_EQ(modules.size(), dense.size());
  for (size_t i = 0; i < dense.size(); ++i) EXPECT_EQ(modules[i].name, dense[i].name);
}

TEST(Resolve, WhatCannotBeAdaptedIsOneSentence) {
  EXPECT_EQ(refusal({.r = 0}),
            "the rank of model.layers.0.self_attn.q_proj is 0; r and the numbers of rank_pattern must "
            "be at least 1");
  EXPECT_EQ(refusal({.target_modules = list({"q_porj"})}),
            "target_modules fits no module of this model: q_porj (did you mean q_proj?); its modules are embed_tokens, "
            "q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj, lm_head, and all-linear");
  EXPECT_NE(refusal({.target_modules = list({"input_layernorm"})}).find("a norm"), std::string::npos);
  EXPECT_NE(refusal({.target_modules = list({"mlp"})}).find("holds several modules"), std::string::npos);
  EXPECT_NE(refusal({.target_modules = list({"q_proj"}), .exclude_modules = list({"self_attn.q_proj"})})
                .find("leaves no module"),
            std::string::npos);
  EXPECT_NE(refusal({.modules_to_save = {"score"}}).find("modules_to_save"), std::string::npos);
  EXPECT_NE(refusal({.lora_dropout = 1}).find("lora_dropout"), std::string::npos);
  EXPECT_NE(refusal({.lora_bias = true, .target_modules = list({"embed_tokens"})}).find("lora_bias"),
            std::string::npos);
}

TEST(Resolve, TensorsHavePeftsNamesAndShapes) {
  const model::ModelConfig gpt2 = small_model(model::Architecture::gpt2, 1);
  const model::Adapters a =
      resolve({.r = 2, .use_dora = true, .target_modules = list({"c_attn", "wte"}), .modules_to_save = {"ln_f"}}, gpt2);
  std::map<std::string, std::vector<int64_t>> tensors;
  for (const AdapterTensor& t : adapter_tensors(a, gpt2)) tensors[t.name] = t.shape;
  const std::map<std::string, std::vector<int64_t>> expected = {
      {"transformer.wte.lora_embedding_A", {2, 32}},
      {"transformer.wte.lora_embedding_B", {16, 2}},
      {"transformer.wte.lora_magnitude_vector", {16}},
      {"transformer.h.0.attn.c_attn.lora_A.weight", {2, 16}},
      {"transformer.h.0.attn.c_attn.lora_B.weight", {48, 2}},
      {"transformer.h.0.attn.c_attn.lora_magnitude_vector", {48}},
      {"transformer.ln_f.weight", {16}},
      {"transformer.ln_f.bias", {16}}};
  EXPECT_EQ(tensors, expected);
}

TEST(Resolve, ATextHalfIsKnownByTheNamesOfItsVisionModel) {
  model::ModelConfig half = kLlama;
  half.is_text_half = true;
  const AdapterConfig expressed = {.target_modules = expression(R"(model\.language_model\..*\.q_proj)")};
  EXPECT_EQ(names(expressed, half), names({.target_modules = list({"q_proj"})}));
  EXPECT_NE(refusal(expressed), "accepted");
  const AdapterConfig listed = {.target_modules = list({"model.language_model.layers.1.self_attn.q_proj"}),
                                .modules_to_save = {"model.language_model.norm"},
                                .rank_pattern = {{"language_model.layers.1.self_attn.q_proj", 3}}};
  AdapterConfig without_tower = {.target_modules = list({"q_proj"}), .exclude_modules = list({"vision_tower"})};
  require_names(without_tower, half, resolve(without_tower, half));
  without_tower.exclude_modules = list({"k_porj"});
  EXPECT_THROW(require_names(without_tower, half, resolve(without_tower, half)), UsageError);
  const model::Adapters adapters = resolve(listed, half);
  ASSERT_TRUE(adapters.modules.contains("model.layers.1.self_attn.q_proj"));
  EXPECT_EQ(adapters.modules.at("model.layers.1.self_attn.q_proj").rank, 3);
  EXPECT_TRUE(adapters.whole.contains("model.norm"));
}

TEST(Resolve, BesideAVisionModelPeftIsToldFullNames) {
  model::ModelConfig half = kLlama;
  half.is_text_half = true;
  const AdapterConfig typed = {.target_modules = list({"q_proj", "lm_head"}),
                               .layers_to_transform = std::vector<int64_t>{0, 2},
                               .modules_to_save = {"model.norm"},
                               .rank_pattern = {{"layers.2.self_attn.q_proj", 4}},
                               .alpha_pattern = {{"q_proj", 3}}};
  const AdapterConfig named = config_for_peft(typed, half);
  const std::string first = "model.language_model.layers.0.self_attn.q_proj",
                    third = "model.language_model.layers.2.self_attn.q_proj";
  EXPECT_EQ(named.target_modules.list, (std::vector<std::string>{"lm_head", first, third}));
  EXPECT_EQ(named.modules_to_save, std::vector<std::string>{"model.language_model.norm"});
  EXPECT_EQ(named.rank_pattern, (std::vector<std::pair<std::string, int64_t>>{{third, 4}}));
  EXPECT_EQ(named.alpha_pattern, (std::vector<std::pair<std::string, double>>{{first, 3}, {third, 3}}));
  EXPECT_EQ(resolve(named, half), resolve(typed, half));
  EXPECT_EQ(config_for_peft(typed, kLlama), typed);
}

}  // namespace
}  // namespace trireme::adapt
