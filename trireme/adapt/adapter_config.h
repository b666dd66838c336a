// PEFT's adapter_config.json as data. Every key that PEFT writes is honoured, accepted where its value changes nothing,
// or refused by name: to ignore one would mis-scale the adapter without any error. So an unknown key is refused too.
//
// Source: github.com/huggingface/peft, tuners/lora/config.py (0.19 to 0.21)
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/model/adapters.h"

namespace trireme::adapt {

inline constexpr const char* kAdapterConfigName = "adapter_config.json";

/// Modules as PEFT names them: a list of names or ends of names, or one regular expression for whole names.
struct ModuleNames {
  std::vector<std::string> list;
  std::optional<std::string> pattern;  ///< instead of the list; "all-linear" is every matrix but the head
  bool empty() const { return list.empty() && !pattern; }
  bool operator==(const ModuleNames&) const = default;
};

/// The fields have PEFT's names, and its defaults.
struct AdapterConfig {
  int64_t r = 8;
  double lora_alpha = 8;
  double lora_dropout = 0;
  bool use_rslora = false;
  bool use_dora = false;
  bool lora_bias = false;
  bool fan_in_fan_out = false;  ///< GPT-2's weights are stored [in, out]; the model knows it, as PEFT does
  ModuleNames target_modules;  ///< empty: the architecture's own
  ModuleNames exclude_modules;
  std::optional<std::vector<int64_t>> layers_to_transform;
  std::vector<std::string> layers_pattern;
  std::vector<std::string> modules_to_save;
  std::vector<std::pair<std::string, int64_t>> rank_pattern;  ///< in the order of the file: the first that fits counts
  std::vector<std::pair<std::string, double>> alpha_pattern;
  model::AdapterInit init_lora_weights = model::AdapterInit::kaiming;
  std::string base_model_name_or_path;

  bool operator==(const AdapterConfig&) const = default;
};

/// `path` is for messages. Errors    CheckpointError naming the key, its value and why it is refused
AdapterConfig parse_adapter_config(std::string_view text, const std::string& path);

/// A file that PEFT loads.
std::string adapter_config_json(const AdapterConfig& config);

}  // namespace trireme::adapt
