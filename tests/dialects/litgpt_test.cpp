#include "trireme/dialects/litgpt.h"

#include <gtest/gtest.h>

#include <string>

namespace trireme::dialects {
namespace {

std::string ours(std::string key, std::string text) {
  config::Given given{.key = std::move(key), .text = std::move(text), .source = {}};
  litgpt(given);
  return given.key + " " + given.text;
}

TEST(LitGpt, NamesClassesByModuleAndArguments) {
  EXPECT_EQ(ours("data.class_path", "litgpt.data.Alpaca"), "data Alpaca");
  EXPECT_EQ(ours("data.init_args.json_path", "chat.jsonl"), "data.train_data_path chat.jsonl");
  EXPECT_EQ(ours("optimizer.class_path", "torch.optim.AdamW"), "optimizer AdamW");
  EXPECT_EQ(ours("train.epochs", "5"), "train.epochs 5");
}

TEST(LitGpt, SaysWhereASetLiesAndWhatOfItIsLearned) {
  EXPECT_EQ(ours("data.download_dir", "data/dolly"), "data.train_data_path data/dolly");
  EXPECT_EQ(ours("data.mask_prompt", "true"), "data.learn replies");
  EXPECT_EQ(ours("data.mask_prompt", "false"), "data.learn messages");
}

TEST(LitGpt, NamesTemplatesByModels) {
  EXPECT_EQ(ours("data.prompt_style", "alpaca"), "data.chat_template alpaca");
  EXPECT_EQ(ours("data.prompt_style", "phi-3"), "data.chat_template phi3");
  EXPECT_EQ(ours("data.prompt_style", "tinyllama"), "data.chat_template zephyr");
  EXPECT_EQ(ours("data.prompt_style", "codellama"), "data.chat_template mistral");
  for (const char* model : {"qwen2.5", "qwen3", "smollm2"})
    EXPECT_EQ(ours("data.prompt_style", model), "data.chat_template chatml");
  EXPECT_EQ(ours("data.chat_template", "qwen3"), "data.chat_template qwen3");  // not LitGPT's word for the setting
}

}  // namespace
}  // namespace trireme::dialects
