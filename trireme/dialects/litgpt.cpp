#include "trireme/dialects/litgpt.h"

#include <string>
#include <string_view>
#include <utility>

namespace trireme::dialects {

void litgpt(config::Given& given) {
  constexpr std::string_view kArguments = ".init_args";
  constexpr std::pair<std::string_view, std::string_view> kKeys[] = {
      {"data.class_path", "data"},
      {"optimizer.class_path", "optimizer"},
      {"data.json_path", "data.train_data_path"},     // of its data JSON
      {"data.download_dir", "data.train_data_path"},  // of its data sets by name
      {"data.prompt_style", "data.chat_template"},
  };
  // Templates by the names of models. LitGPT puts a system message of its own into some of them; here data have it.
  constexpr std::pair<std::string_view, std::string_view> kTemplates[] = {
      {"codellama", "mistral"}, {"phi-3", "phi3"},   {"tinyllama", "zephyr"},
      {"qwen2.5", "chatml"},    {"qwen3", "chatml"}, {"smollm2", "chatml"},
  };
  for (const std::string head : {"data", "optimizer"}) {
    const std::string arguments = head + std::string(kArguments);
    if (given.key == arguments || given.key.starts_with(arguments + "."))
      given.key.erase(head.size(), kArguments.size());
  }
  if (given.key == "data.prompt_style")
    for (const auto& [theirs, ours] : kTemplates)
      if (given.text == theirs) given.text = ours;
  for (const auto& [theirs, ours] : kKeys)
    if (given.key == theirs) given.key = ours;
  if (given.key.starts_with("lora_")) given.key = "lora." + given.key.substr(5);
  if (given.key == "initial_adapter") given.key = "lora.initial_adapter";
  if (given.key == "data.mask_prompt") {
    given.key = "data.learn";
    if (given.text == "true") given.text = "replies";
    if (given.text == "false") given.text = "messages";
  }
  // torch.optim.AdamW
  if (given.key == "data" || given.key == "optimizer") given.text.erase(0, given.text.rfind('.') + 1);
}

}  // namespace trireme::dialects
