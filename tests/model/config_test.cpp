#include "trireme/model/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/model/from_settings.h"
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
  EXPECT_EQ(catalogue_config("smollm2-135m").num_parameters(), 134515008);
  EXPECT_EQ(catalogue_config("llama-3.2-1b").num_parameters(), 1235814400);
  EXPECT_EQ(catalogue_config("mistral-7b-v0.1").num_parameters(), 7241732096);
  EXPECT_EQ(catalogue_config("qwen2.5-0.5b").num_parameters(), 494032768);
  EXPECT_EQ(catalogue_config("qwen3-0.6b").num_parameters(), 596049920);
  EXPECT_EQ(catalogue_config("gemma-2-2b").num_parameters(), 2614341888);
  EXPECT_EQ(catalogue_config("gemma3_270m").num_parameters(), 268098176);
  EXPECT_EQ(catalogue_config("gemma3_1b").num_parameters(), 999885952);
}

TEST(Catalogue, CountsAgreeWithTheUnitsParameters) {
  for (const char* name : {"llama-5m", "gpt2", "qwen2.5-0.5b", "qwen3-0.6b", "gemma-2-2b", "gemma3_1b"}) {
    const ModelConfig config = catalogue_config(name);
    int64_t sum = 0;
    for (const ParameterGroup& g : build_model(config, {}).groups)
      for (const ParameterSpec& p : g.parameters) sum += p.numel();
    EXPECT_EQ(sum, config.num_parameters()) << name;
  }
}

TEST(Catalogue, QueriesSeeHalfOfTheSequenceOrTheirWindow) {
  const ModelConfig llama = catalogue_config("llama-5m"), gemma = catalogue_config("gemma3_270m");
  EXPECT_EQ(llama.attended_keys(0, 4096), 2048);
  EXPECT_EQ(llama.attended_keys(4096), 2048.0 * static_cast<double>(llama.num_hidden_layers));
  ASSERT_EQ(gemma.window(0), 512);
  ASSERT_EQ(gemma.window(5), 0);
  EXPECT_EQ(gemma.attended_keys(0, 512), 256);  // nothing is cut off
  EXPECT_EQ(gemma.attended_keys(0, 100), 50);
  EXPECT_EQ(gemma.attended_keys(0, 4096), 480);  // 512, but for the first queries
  EXPECT_EQ(gemma.attended_keys(5, 4096), 2048);
  EXPECT_NEAR(gemma.attended_keys(0, 1 << 30), 512, 1e-3);
  EXPECT_EQ(gemma.attended_keys(4096), 15 * 480 + 3 * 2048);
}

TEST(Catalogue, QueriesOfAFreeTransformersEncoderSeeTheWholeSequence) {
  ModelConfig c = catalogue_config("llama-5m");
  const double without = c.attended_keys(512);
  set_architecture(c, Architecture::free_transformer);
  c.free.latent_bits = 4;
  EXPECT_EQ(c.attended_keys(512), without + 512);
}

TEST(Catalogue, TheUnitsOperationsAreTwoAParameterAndFourAKey) {
  for (const char* name : {"llama-5m", "gpt2", "gemma3_270m", "mistral-7b-v0.1"}) {
    const ModelConfig c = catalogue_config(name);
    const BatchShape shape{.micro_batch = 2, .sequence = std::min<int64_t>(4096, c.max_position_embeddings)};
    double units = 0;
    for (const auto& unit : build_model(c, {}).units) units += unit->forward_flops(shape);
    const double token = 2 * static_cast<double>(c.num_product_parameters()) +
                         4 * static_cast<double>(c.num_attention_heads * c.head_dim) * c.attended_keys(shape.sequence);
    EXPECT_DOUBLE_EQ(units / (token * static_cast<double>(shape.tokens())), 1) << name;
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

TEST(HuggingFaceConfig, OfAFolderHasTheFoldersName) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::path(testing::TempDir()) / ("named_model_" + std::to_string(getpid()));
  const ModelConfig small = catalogue_config("llama-5m");
  fs::create_directories(folder);
  std::ofstream(folder / "config.json") << small.to_hugging_face_json("float32");
  ModelSettings settings;
  settings.name = folder.string();
  const ModelConfig read = config_of(settings);
  EXPECT_EQ(read.name, folder.string());
  EXPECT_TRUE(read.same_model(small));
  fs::remove_all(folder);
}

TEST(HuggingFaceConfig, WhatIsWrittenIsReadBack) {
  for (const std::string& name : catalogue_names()) {
    const ModelConfig c = catalogue_config(name);
    const ModelConfig back = parse_hugging_face_config(c.to_hugging_face_json("float32"), "config.json");
    EXPECT_TRUE(back.same_model(c)) << name << "\n" << c.to_hugging_face_json("float32");
  }
}

TEST(HuggingFaceConfig, AnUntouchedFileIsWrittenAsItWasRead) {
  const std::string text = R"({"model_type":"qwen2","hidden_size":64,"num_attention_heads":4,"num_key_value_heads":2,
    "eos_token_id": 7, "torch_dtype":"bfloat16", "num_hidden_layers": 2})";
  ModelConfig c = parse_hugging_face_config(text, "config.json");
  EXPECT_EQ(c.to_hugging_face_json("bfloat16"), text);
  EXPECT_THAT(c.to_hugging_face_json("float32"), HasSubstr("\"eos_token_id\": 7"));
  c.norm_eps = 1e-3;
  const ModelConfig changed = parse_hugging_face_config(c.to_hugging_face_json("bfloat16"), "config.json");
  EXPECT_EQ(changed.norm_eps, 1e-3);
  EXPECT_EQ(changed.num_key_value_heads, 2);
}

TEST(HuggingFaceConfig, WindowsOfEachFamily) {
  const auto windows = [](const std::string& json) {
    const ModelConfig c = parse_hugging_face_config(json, "config.json");
    std::vector<int64_t> all;
    for (int64_t i = 0; i < c.num_hidden_layers; ++i) all.push_back(c.window(i));
    return all;
  };
  using testing::ElementsAre;
  EXPECT_THAT(windows(R"({"model_type": "mistral", "num_hidden_layers": 2, "sliding_window": 8})"), ElementsAre(8, 8));
  EXPECT_THAT(windows(R"({"model_type": "mistral", "num_hidden_layers": 2, "sliding_window": null})"),
              ElementsAre(0, 0));
  EXPECT_THAT(windows(R"({"model_type": "qwen2", "num_hidden_layers": 3, "sliding_window": 8})"), ElementsAre(0, 0, 0));
  EXPECT_THAT(windows(R"({"model_type": "qwen2", "num_hidden_layers": 3, "sliding_window": 8,
                          "use_sliding_window": true, "max_window_layers": 1})"),
              ElementsAre(0, 8, 8));
  EXPECT_THAT(windows(R"({"model_type": "gemma2", "num_hidden_layers": 3, "sliding_window": 8})"),
              ElementsAre(8, 0, 8));
  EXPECT_THAT(windows(R"({"model_type": "gemma3_text", "num_hidden_layers": 7, "sliding_window": 8})"),
              ElementsAre(8, 8, 8, 8, 8, 0, 8));
  EXPECT_THAT(windows(R"({"model_type": "gemma3_text", "num_hidden_layers": 2, "sliding_window": 8,
                          "layer_types": ["full_attention", "sliding_attention"]})"),
              ElementsAre(0, 8));
}

TEST(HuggingFaceConfig, OfGemma3WithAVisionHalfTheTextHalfIsAModel) {
  const ModelConfig c = parse_hugging_face_config(R"({"model_type": "gemma3", "vision_config": {"hidden_size": 9},
    "text_config": {"hidden_size": 2560, "num_hidden_layers": 34, "rope_scaling": {"rope_type": "linear", "factor": 8},
                    "sliding_window": 1024}})",
                                                  "config.json");
  EXPECT_EQ(c.architecture, Architecture::gemma3);
  EXPECT_EQ(c.hidden_size, 2560);
  EXPECT_EQ(c.window(0), 1024);
  EXPECT_THAT(c.to_hugging_face_json("bfloat16"), HasSubstr("Gemma3ForCausalLM"));
}

TEST(HuggingFaceConfig, RotarySettingsInEverySpelling) {
  const auto read = [](const std::string& keys) { return parse_hugging_face_config("{" + keys + "}", "config.json"); };
  const ModelConfig old =
      read(R"("model_type": "llama", "rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 4})");
  EXPECT_EQ(old.rope_theta, 5e5);
  EXPECT_EQ(old.rope_scaling.type, RopeScaling::Type::linear);
  const ModelConfig current =
      read(R"("model_type": "llama", "rope_parameters": {"rope_type": "llama3", "rope_theta": 5e5,
    "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4, "original_max_position_embeddings": 8192})");
  EXPECT_EQ(current.rope_theta, 5e5);
  EXPECT_EQ(current.rope_scaling.type, RopeScaling::Type::llama3);
  EXPECT_EQ(current.rope_scaling.factor, 8);
  const ModelConfig gemma = read(R"("model_type": "gemma3_text", "rope_parameters": {
    "full_attention": {"rope_type": "linear", "factor": 8, "rope_theta": 1e6},
    "sliding_attention": {"rope_type": "default", "rope_theta": 2e4}})");
  EXPECT_EQ(gemma.rope_local_theta, 2e4);
  EXPECT_EQ(gemma.rope_scaling.factor, 8);
}

TEST(HuggingFaceConfig, WhatAFileSaysTwiceIsReadAsTransformersReadsIt) {
  const auto read = [](const std::string& keys) { return parse_hugging_face_config("{" + keys + "}", "config.json"); };
  const ModelConfig both = read(R"("model_type": "llama", "rope_scaling": {"rope_type": "linear", "factor": 4},
    "rope_parameters": {"rope_type": "default", "rope_theta": 500})");
  EXPECT_EQ(both.rope_scaling.factor, 4);
  EXPECT_EQ(both.rope_theta, 10000) << "rope_scaling is taken alone";
  const ModelConfig gemma = read(R"("model_type": "gemma3_text", "attn_logit_softcapping": 50.0,
    "rope_scaling": {"rope_type": "linear", "factor": 4}, "rope_theta": 7,
    "rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 500}}, "_sliding_window_pattern": 2,
    "num_hidden_layers": 2, "sliding_window": 8)");
  EXPECT_EQ(gemma.rope_theta, 500);
  EXPECT_EQ(gemma.rope_scaling.factor, 4) << "rope_scaling adds to full_attention";
  EXPECT_EQ(gemma.attention_softcap, 0) << "its attention has none";
  EXPECT_EQ(gemma.window(1), 8) << "the pattern is sliding_window_pattern";
  EXPECT_EQ(read(R"("model_type": "qwen3", "num_key_value_heads": null)").num_key_value_heads, 32);
  EXPECT_EQ(read(R"("model_type": "qwen2", "use_sliding_window": false, "sliding_window": 0)").sliding_window, 0);
  const ModelConfig half = read(R"("model_type": "gemma3", "tie_word_embeddings": false,
    "text_config": {"tie_word_embeddings": true, "final_logit_softcapping": 30.0})");
  EXPECT_FALSE(half.tie_word_embeddings) << "the head is the whole's";
  EXPECT_EQ(half.logit_softcap, 0);
  EXPECT_TRUE(half.is_text_half);
}

TEST(HuggingFaceConfig, RatesOfDropoutAreThoseThatTransformersReads) {
  const auto rates = [](const std::string& keys) {
    return parse_hugging_face_config("{" + keys + "}", "config.json").dropout;
  };
  // What the class has where the file is silent, and null.
  EXPECT_EQ(rates(R"("model_type": "gpt2")"),
            (DropoutRates{.attention = 0.1, .residual = 0.1, .mlp = 0.1, .embedding = 0.1}));
  EXPECT_EQ(rates(R"("model_type": "llama", "resid_pdrop": 0.3)"), DropoutRates{});
  EXPECT_EQ(rates(R"("model_type": "gemma2", "attention_dropout": null)"), DropoutRates{});
  EXPECT_EQ(rates(R"("model_type": "bert", "hidden_dropout_prob": 0.1)"), DropoutRates{});
  struct Spelling {
    const char* keys;
    DropoutRates rates;
  };
  const Spelling spellings[] = {
      {R"("model_type": "gpt2", "attn_pdrop": 0.2, "resid_pdrop": 0.0, "embd_pdrop": 0.3)",
       {.attention = 0.2, .embedding = 0.3}},
      {R"("model_type": "llama", "attention_dropout": 0.2)", {.attention = 0.2}},
      {R"("model_type": "gpt_neox", "attention_dropout": 0.2, "hidden_dropout": 0.1)",
       {.attention = 0.2, .residual = 0.1, .mlp = 0.1, .embedding = 0.1}},
      {R"("model_type": "starcoder2", "residual_dropout": 0.2, "embedding_dropout": 0.1)",
       {.residual = 0.2, .mlp = 0.2, .embedding = 0.1}},
      {R"("model_type": "encoder", "attention_dropout": 0.2, "residual_dropout": 0.1)",
       {.attention = 0.2, .residual = 0.1, .mlp = 0.1}},
      {R"("model_type": "phi3", "resid_pdrop": 0.2, "embd_pdrop": 0.1)", {.residual = 0.2, .mlp = 0.2}}};
  for (const auto& [keys, expected] : spellings) {
    ModelConfig c = parse_hugging_face_config(std::string("{") + keys + "}", "config.json");
    EXPECT_EQ(c.dropout, expected) << keys;
    // A shape without a file says the same, and a file follows its changes.
    ModelConfig shape = c;
    shape.source_json.clear();
    EXPECT_EQ(parse_hugging_face_config(shape.to_hugging_face_json("float32"), "written").dropout, expected) << keys;
    c.dropout = {};
    EXPECT_EQ(parse_hugging_face_config(c.to_hugging_face_json("float32"), "changed").dropout, DropoutRates{}) << keys;
  }
  EXPECT_EQ(catalogue_config("gpt2").dropout, DropoutRates{});
  EXPECT_EQ(refusal(R"({"model_type": "llama", "attention_dropout": 1.0})"),
            "config.json: attention_dropout is 1.0; it must be at least 0 and below 1");
}

TEST(HuggingFaceConfig, HeadsOfLearnedPositionsMayBeOdd) {
  EXPECT_EQ(refusal(R"({"model_type": "gpt2", "n_embd": 15, "n_head": 3})"), "");
  EXPECT_THAT(refusal(R"({"model_type": "llama", "hidden_size": 15, "num_attention_heads": 3})"), HasSubstr("pairs"));
}

TEST(HuggingFaceConfig, FieldsThatChangeTheMathematicsAreRefusedByName) {
  EXPECT_THAT(refusal(R"({"model_type": "mixtral"})"), HasSubstr("mixtral"));
  EXPECT_THAT(refusal(R"({"model_type": "llama", "sliding_window": 4096})"), HasSubstr("sliding_window"));
  EXPECT_THAT(refusal(R"({"model_type": "llama", "hidden_act": "gelu"})"), HasSubstr("hidden_act"));
  EXPECT_THAT(refusal(R"({"model_type": "llama", "rope_scaling": {"rope_type": "longrope", "factor": 8}})"),
              HasSubstr("longrope"));
  EXPECT_THAT(refusal(R"({"model_type": "gemma3_text", "use_bidirectional_attention": true})"),
              HasSubstr("use_bidirectional_attention"));
  EXPECT_THAT(refusal(R"({"model_type": "llama", "some_new_gate": 1})"), HasSubstr("some_new_gate"));
  EXPECT_THAT(refusal(R"({"model_type": "llama", "num_attention_heads": 6, "num_key_value_heads": 4})"),
              HasSubstr("does not divide"));
  EXPECT_THAT(refusal(R"({"model_type": "llama", "num_hidden_layers": 2000000000})"), HasSubstr("num_hidden_layers"));
  EXPECT_THAT(refusal(R"({"model_type": "llama", "vocab_size": 18446744073709551615})"),
              HasSubstr("vocab_size is 18446744073709551615; it must be a whole number"));
  EXPECT_THAT(refusal(R"({"model_type": "llama", "hidden_size": 2147483648, "head_dim": 2147483648})"),
              HasSubstr("parameters; there can be 2^56"));
  EXPECT_THAT(refusal(R"({"model_type": "gemma2", "final_logit_softcapping": 1e-19})"), HasSubstr("above 0"));
  EXPECT_THAT(refusal("{"), HasSubstr("not a usable config.json"));
}

TEST(ModelConfig, MoreBlocksContinueThePatternOfWindows) {
  const auto windows = [](const char* json, int64_t blocks) {
    ModelConfig c = parse_hugging_face_config(json, "config.json");
    set_num_hidden_layers(c, blocks);
    std::string all;
    for (int64_t i = 0; i < c.num_hidden_layers; ++i) all += c.window(i) > 0 ? 's' : 'f';
    return all;
  };
  EXPECT_EQ(windows(R"({"model_type": "gemma3_text", "num_hidden_layers": 4, "sliding_window": 8,
                        "sliding_window_pattern": 2})",
                    8),
            "sfsfsfsf");
  EXPECT_EQ(windows(R"({"model_type": "gemma3_text", "num_hidden_layers": 4, "sliding_window": 8})", 12),
            "sssssfsssssf");
  EXPECT_EQ(windows(R"({"model_type": "smollm3", "num_hidden_layers": 4, "use_sliding_window": true,
                        "sliding_window": 8})",
                    8),
            "fffsfffs");
}

TEST(ModelConfig, WordsThatTransformersTakesAreRead) {
  const ModelConfig yarn = parse_hugging_face_config(
      R"({"model_type": "llama", "hidden_act": "swish", "max_position_embeddings": 128,
          "rope_scaling": {"rope_type": "yarn", "factor": null, "original_max_position_embeddings": 32,
                           "mscale": -0.5, "mscale_all_dim": 0.5}})",
      "config.json");
  EXPECT_EQ(yarn.rope_scaling.factor, 4);
  ModelConfig trained = yarn;
  trained.max_position_embeddings = 64;  // so that the file is written anew
  const ModelConfig read = parse_hugging_face_config(trained.to_hugging_face_json("float32"), "config.json");
  EXPECT_EQ(read.rope_scaling.mscale, -0.5);
  EXPECT_EQ(read.rope_scaling.factor, 4);
  const ModelConfig half = parse_hugging_face_config(
      R"({"model_type": "gemma3", "eos_token_id": [1, 106], "text_config": {"model_type": "gemma3_text",
          "pad_token_id": 0, "eos_token_id": 7}})",
      "config.json");
  EXPECT_EQ(half.padding(), 0);
  EXPECT_THAT(half.to_hugging_face_json("float32"), testing::HasSubstr("106"));
  try {
    parse_hugging_face_config(R"({"model_type": "mistral3", "text_config": {"model_type": "helium"}})", "config.json");
    ADD_FAILURE();
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("text_config is of type helium"));
  }
}

TEST(ModelConfig, TheOwnTypeChangesNothing) {
  const ModelConfig c = parse_hugging_face_config(
      R"({"model_type": "qwen2", "num_hidden_layers": 4, "use_sliding_window": true, "sliding_window": 8,
          "max_window_layers": 2, "rope_scaling": {"rope_type": "yarn", "factor": 4}})",
      "config.json");
  ModelConfig same = c;
  set_architecture(same, Architecture::qwen2);
  EXPECT_EQ(same, c);
}

TEST(Model, ATiedHeadSharesAGroupOfItsOwn) {
  const Model m = build_model(catalogue_config("gpt2"), {});
  const auto embedding = m.groups_of(0), head = m.groups_of(static_cast<int>(m.units.size()) - 1);
  ASSERT_EQ(embedding.size(), 2u);  // the table; the positions
  EXPECT_TRUE(std::find(head.begin(), head.end(), embedding[0]) != head.end());
}

TEST(ConfigJson, AChangedLengthWithDynamicRotaryIsReadBackAsItWasTrained) {
  const std::filesystem::path folder = testing::TempDir() + "/dynamic_rotary";
  std::filesystem::create_directories(folder);
  ModelConfig written = catalogue_config("llama-5m");
  written.rope_scaling = {.type = RopeScaling::Type::dynamic,
                          .factor = 2,
                          .original_max_position_embeddings = double(written.max_position_embeddings)};
  base::write_file_atomic(folder / "config.json", written.to_hugging_face_json("float32"));
  ModelSettings settings;
  settings.name = folder.string(), settings.max_position_embeddings = 64;
  const ModelConfig trained = config_of(settings);
  EXPECT_EQ(trained.rope_scaling.original_max_position_embeddings, 64);
  EXPECT_TRUE(trained.same_model(parse_hugging_face_config(trained.to_hugging_face_json("float32"), "config.json")));
  std::filesystem::remove_all(folder);
}

// transformers assumes the ids 32000 and 128004, and refuses a smaller embedding.
TEST(ConfigJson, NoTokenForPaddingIsWrittenAsNull) {
  for (const Architecture a : {Architecture::phi3, Architecture::smollm3}) {
    ModelConfig c = catalogue_config("llama-5m");
    set_architecture(c, a);
    EXPECT_THAT(c.to_hugging_face_json("float32"), HasSubstr("\"pad_token_id\": null")) << model_type(a);
    c.pad_token_id = 3;
    EXPECT_THAT(c.to_hugging_face_json("float32"), HasSubstr("\"pad_token_id\": 3")) << model_type(a);
  }
}

}  // namespace
}  // namespace trireme::model
