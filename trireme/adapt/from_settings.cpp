#include "trireme/adapt/from_settings.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "trireme/adapt/adapter_folder.h"
#include "trireme/adapt/resolve.h"
#include "trireme/base/error.h"
#include "trireme/model/tensor_names.h"

namespace trireme::adapt {
namespace {

// A single word with signs that no name has is a regular expression, as in PEFT a text instead of a list.
ModuleNames module_names(const std::vector<std::string>& given) {
  if (given.size() == 1 && (is_all_linear(given[0]) || given[0].find_first_of("*+?()[]|^$\\") != std::string::npos))
    return {.pattern = given[0]};
  return {.list = given};
}

std::vector<std::string> modules_of_flags(const LoraSettings& s, const model::ModelConfig& model) {
  std::vector<std::string> names;
  const model::BlockNames& block = model::tensor_names(model.architecture).block;
  // GPT-2 has two modules c_proj; all others are named by their last word, as PEFT's users do.
  const auto add = [&](const char* module) {
    const std::string name = module;
    names.push_back(block.in_out ? name : name.substr(name.rfind('.') + 1));
  };
  if (block.qkv != nullptr) {
    if (s.query || s.key || s.value) add(block.qkv);
  } else {
    if (s.query) add(block.q);
    if (s.key) add(block.k);
    if (s.value) add(block.v);
  }
  if (s.projection) add(block.out);
  if (s.mlp) {
    if (block.gate_up != nullptr) {
      add(block.gate_up);
    } else {
      if (block.gate != nullptr) add(block.gate);
      add(block.up);
    }
    add(block.down);
  }
  if (s.head) names.emplace_back("lm_head");
  if (names.empty())
    throw UsageError("no module has an adapter: set one of lora.query to lora.head to true, or lora.target_modules");
  return names;
}

template <class Number>
std::vector<std::pair<std::string, Number>> patterns(const char* key,
                                                     const std::optional<std::vector<std::string>>& given) {
  std::vector<std::pair<std::string, Number>> pairs;
  for (const std::string& text : given.value_or(std::vector<std::string>{})) {
    const size_t equals = text.rfind('=');
    Number number{};
    const char* end = text.data() + text.size();
    const char* begin = equals == std::string::npos ? end : text.data() + equals + 1;
    if (const auto [at, error] = std::from_chars(begin, end, number); error != std::errc() || at != end || begin == end)
      throw UsageError(fmt::format("{} holds '{}', which is not a name with a number: q_proj=16", key, text));
    constexpr double kMost = 1 << 20;
    if (!(static_cast<double>(number) <= kMost) || number <= 0)
      throw UsageError(
          fmt::format("{} holds '{}', and its number must be above 0 and at most 2^20: q_proj=16", key, text));
    pairs.emplace_back(text.substr(0, equals), number);
  }
  return pairs;
}

}  // namespace

std::optional<AdapterConfig> adapter_config(const LoraSettings& s, const model::ModelConfig& model) {
  if (s.initial_adapter) return open_adapter_folder(*s.initial_adapter).config;
  if (!s.r) return std::nullopt;
  AdapterConfig c;
  c.r = *s.r;
  c.lora_alpha = s.alpha;
  c.lora_dropout = s.dropout;
  c.use_rslora = s.rslora;
  c.use_dora = s.dora;
  c.lora_bias = s.bias;
  c.target_modules =
      s.target_modules ? module_names(*s.target_modules) : ModuleNames{.list = modules_of_flags(s, model)};
  if (s.exclude_modules) c.exclude_modules = module_names(*s.exclude_modules);
  c.layers_to_transform = s.layers_to_transform;
  c.modules_to_save = s.modules_to_save.value_or(std::vector<std::string>{});
  c.rank_pattern = patterns<int64_t>("lora.rank_pattern", s.rank_pattern);
  c.alpha_pattern = patterns<double>("lora.alpha_pattern", s.alpha_pattern);
  c.init_lora_weights = s.init;
  return c;
}

model::Adapters adapters_of(const LoraSettings& settings, const model::ModelConfig& model) {
  const std::optional<AdapterConfig> config = adapter_config(settings, model);
  if (!config) return {};
  model::Adapters adapters = resolve(*config, model);
  if (!settings.initial_adapter) require_names(*config, model, adapters);
  for (const Module& module : modules_of(model))
    if (settings.plus_ratio && module.kind == Module::Kind::embedding && adapters.modules.contains(module.name))
      throw UsageError(fmt::format(
          "lora.plus_ratio: LoRA+ gives adapters of embeddings a rate of their own, which is not supported; "
          "leave {} out of lora.target_modules, or leave lora.plus_ratio out",
          module.name));
  for (auto& [module, spec] : adapters.modules) {
    spec.rate_of_b = settings.plus_ratio.value_or(1);
    if (settings.without_dropout) spec.dropout = 0;
  }
  return adapters;
}

}  // namespace trireme::adapt
