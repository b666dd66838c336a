// Settings of low-rank adapters. The command finetune_lora sets lora.r; without it, all weights are trained.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trireme/config/declaration.h"
#include "trireme/model/settings.h"

namespace trireme::adapt {

/// Names and defaults are LitGPT's; those that LitGPT lacks are PEFT's. adapt::adapter_config() explains how `query` to
/// `head` choose modules if target_modules is absent.
struct LoraSettings {
  std::optional<int64_t> r;
  double alpha = 16;
  double dropout = 0.05;
  bool query = true, key = false, value = true, projection = false, mlp = false, head = false;
  std::optional<std::vector<std::string>> target_modules, exclude_modules, modules_to_save;
  std::optional<std::vector<int64_t>> layers_to_transform;
  std::optional<std::vector<std::string>> rank_pattern, alpha_pattern;
  bool rslora = false, dora = false, bias = false;
  model::AdapterInit init = model::AdapterInit::kaiming;
  std::optional<double> plus_ratio;
  std::optional<std::string> initial_adapter;
  bool without_dropout = false;  ///< no setting: a task has no dropout, also that of initial_adapter's configuration
  bool operator==(const LoraSettings&) const = default;
};
config::Section section(LoraSettings& settings);

}  // namespace trireme::adapt
