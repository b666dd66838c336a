#include "trireme/adapt/adapter_folder.h"

#include <gtest/gtest.h>

#include "../checkpoint/fixtures.h"
#include "folders.h"
#include "trireme/base/error.h"
#include "trireme/base/files.h"

namespace trireme::adapt {
namespace {

struct AdapterFolderTest : testing::Test {
  checkpoint::ScratchFolder scratch;
  std::filesystem::path folder = scratch / "adapter";
  model::ModelConfig model = small_model(model::Architecture::llama);

  std::string refusal(const model::ModelConfig& other) const {
    try {
      fit(open_adapter_folder(folder), other);
    } catch (const CheckpointError& error) {
      return error.what();
    }
    return "accepted";
  }
};

TEST_F(AdapterFolderTest, EveryTensorIsFound) {
  write_adapter(folder, {.use_dora = true, .modules_to_save = {"lm_head"}}, model);
  const FittedAdapter fitted = fit(open_adapter_folder(folder), model);
  EXPECT_EQ(fitted.file_names.size(), 6 * 3 + 1);
  EXPECT_EQ(fitted.file_names.at("lm_head.weight"), "base_model.model.lm_head.weight");
}

TEST_F(AdapterFolderTest, AnAdapterOfAnotherBaseIsOneSentence) {
  write_adapter(folder, {.base_model_name_or_path = "models/llama"}, model);
  model::ModelConfig wider = model, longer = model, shorter = model;
  wider.hidden_size = 32;
  model::set_num_hidden_layers(longer, 4);
  model::set_num_hidden_layers(shorter, 2);
  for (const auto& [other, words] : std::vector<std::pair<model::ModelConfig, std::string>>{
           {wider, "has shape [8, 16], and [8, 32] is asked for (and 5 more differ)"},
           {longer,
            "its tensor 'base_model.model.model.layers.3.self_attn.q_proj.lora_A.weight' of shape [8, 16] is missing"},
           {shorter, "has no place in it"}}) {
    const std::string text = refusal(other);
    EXPECT_NE(text.find(words), std::string::npos) << text;
    EXPECT_NE(text.find("it was trained on another base (models/llama)"), std::string::npos) << text;
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
  }
  EXPECT_NE(refusal(small_model(model::Architecture::gpt2)).find("has no place in it"), std::string::npos);
}

TEST_F(AdapterFolderTest, TwoTensorsOfOneModuleAreRefused) {
  Tensors named;
  for (const auto& [name, tensor] : write_adapter(folder, {}, model)) {
    named["base_model.model." + name] = tensor;
    named[name] = tensor;
  }
  write_safetensors(folder / "adapter_model.safetensors", named);
  EXPECT_NE(refusal(model).find(" are one"), std::string::npos) << refusal(model);
}

TEST_F(AdapterFolderTest, AVisionModelsNamesAreUnderstoodOfItsTextHalf) {
  model.is_text_half = true;
  for (const std::string names : {"model.language_model.", "language_model.model."}) {
    Tensors named;
    for (const auto& [name, tensor] : write_adapter(folder, {.modules_to_save = {"model.norm"}}, model))
      named["base_model.model." + names + name.substr(std::string("model.").size())] = tensor;
    write_safetensors(folder / "adapter_model.safetensors", named);
    const FittedAdapter fitted = fit(open_adapter_folder(folder), model);
    EXPECT_EQ(fitted.file_names.size(), 6 * 2 + 1);
    EXPECT_EQ(fitted.file_names.at("model.norm.weight"), "base_model.model." + names + "norm.weight");
    named["base_model.model.model.vision_tower.encoder.layers.0.self_attn.q_proj.lora_A.weight"] = at::randn({8, 16});
    write_safetensors(folder / "adapter_model.safetensors", named);
    EXPECT_NE(refusal(model).find("of which only the text half is read"), std::string::npos) << refusal(model);
  }
}

TEST_F(AdapterFolderTest, NamesOfPeftsWrappersAreUnderstood) {
  Tensors named;
  for (const auto& [name, tensor] : write_adapter(folder, {.modules_to_save = {"embed_tokens"}}, model))
    named["base_model.model." + name] = tensor;
  const at::Tensor saved = named.extract("base_model.model.model.embed_tokens.weight").mapped();
  named["base_model.model.model.embed_tokens.modules_to_save.weight"] = saved;
  named["base_model.model.model.embed_tokens.original_module.weight"] = saved;
  write_safetensors(folder / "adapter_model.safetensors", named);
  const FittedAdapter fitted = fit(open_adapter_folder(folder), model);
  EXPECT_TRUE(fitted.file_names.contains("model.embed_tokens.weight"));
  EXPECT_EQ(fitted.base_copies.size(), 1);
}

TEST_F(AdapterFolderTest, AFolderWithoutAnAdapterIsRefusedByName) {
  std::filesystem::create_directories(folder);
  EXPECT_FALSE(is_adapter_folder(folder));
  EXPECT_THROW(open_adapter_folder(folder), CheckpointError);
  base::write_file_atomic(folder / "adapter_config.json", adapter_config_json({}));
  base::write_file_atomic(folder / "adapter_model.bin", "x");
  try {
    open_adapter_folder(folder);
    FAIL();
  } catch (const CheckpointError& error) {
    EXPECT_NE(std::string(error.what()).find("adapter_model.bin"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace trireme::adapt
