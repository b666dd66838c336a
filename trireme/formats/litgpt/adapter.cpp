#include "trireme/formats/litgpt/adapter.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <array>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/formats/litgpt/config.h"
#include "trireme/formats/litgpt/names.h"

namespace trireme::formats {
namespace {

struct LitOptions {
  int64_t rank = 0;
  std::array<bool, 3> qkv = {};
  adapt::AdapterConfig config;
};

template <typename Value>
Value take(const YAML::Node& root, const char* key, const std::string& source) {
  Value value{};
  const YAML::Node node = root[key];
  if (!node.IsDefined() || !node.IsScalar() || !YAML::convert<Value>::decode(node, value))
    throw UsageError(
        fmt::format("{}: {} is missing or has a value of another kind; LitGPT's finetune_lora writes it", source, key));
  return value;
}

LitOptions read_options(const std::string& yaml, const std::string& source) try {
  if (yaml.size() > kMaxLitConfigBytes)
    throw UsageError(fmt::format("{} is no hyperparameters.yaml: too long", source));
  const YAML::Node root = YAML::Load(yaml);
  if (!root.IsMap()) throw UsageError(fmt::format("{} is no hyperparameters.yaml", source));
  LitOptions o;
  o.rank = o.config.r = take<int64_t>(root, "lora_r", source);
  constexpr int64_t kLargestRank = 1 << 20;
  if (o.rank < 1 || o.rank > kLargestRank)
    throw UsageError(fmt::format("{}: lora_r is {}, which is no rank of an adapter", source, o.rank));
  o.config.lora_alpha = take<double>(root, "lora_alpha", source);
  o.config.lora_dropout = take<double>(root, "lora_dropout", source);
  constexpr std::array<const char*, 3> kParts = {"lora_query", "lora_key", "lora_value"};
  constexpr std::array<const char*, 3> kModules = {"q_proj", "k_proj", "v_proj"};
  std::vector<std::string>& targets = o.config.target_modules.list;
  for (size_t i = 0; i < kParts.size(); ++i) {
    o.qkv[i] = take<bool>(root, kParts[i], source);
    if (o.qkv[i]) targets.emplace_back(kModules[i]);
  }
  if (take<bool>(root, "lora_projection", source)) targets.emplace_back("o_proj");
  if (take<bool>(root, "lora_mlp", source)) targets.insert(targets.end(), {"gate_proj", "up_proj", "down_proj"});
  if (take<bool>(root, "lora_head", source)) targets.emplace_back("lm_head");
  if (const YAML::Node base = root["checkpoint_dir"]; base.IsDefined() && base.IsScalar())
    o.config.base_model_name_or_path = base.Scalar();
  return o;
} catch (const YAML::Exception& error) {
  throw UsageError(fmt::format("{} is not YAML: {}", source, base::yaml_reason(error.what())));
}

[[noreturn]] void refuse_tensor(const TensorSpec& tensor, const std::string& problem) {
  throw CheckpointError(fmt::format("tensor '{}' {}", tensor.name, problem), "", tensor.name);
}

/// Cuts A or B of the fused q|k|v into the parts that are adapted.
void cut_qkv(const TensorSpec& tensor, const std::string& block, bool is_a, const LitOptions& o,
             const model::ModelConfig& config, std::vector<MappedTensor>& map) {
  constexpr std::array<const char*, 3> kModules = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"};
  const std::array<int64_t, 3> widths = {config.num_attention_heads * config.head_dim,
                                         config.num_key_value_heads * config.head_dim,
                                         config.num_key_value_heads * config.head_dim};
  int64_t begin = 0;
  for (size_t i = 0; i < widths.size(); ++i) {
    if (!o.qkv[i]) continue;
    const int64_t rows = is_a ? o.rank : widths[i];
    MappedTensor part{.target = tensor, .pieces = {}};
    part.target.name = block + kModules[i] + (is_a ? model::kLoraA : model::kLoraB);
    part.target.shape[0] = rows;
    part.pieces.push_back({.source = tensor.name, .begin = begin, .end = begin + rows});
    map.push_back(std::move(part));
    begin += rows;
  }
  if (begin != tensor.shape[0])
    refuse_tensor(tensor, fmt::format("has shape {}; lora_r and the flags of hyperparameters.yaml make {} rows",
                                      shape_text(tensor.shape), begin));
}

}  // namespace

LitAdapter litgpt_adapter(const std::vector<TensorSpec>& tensors, const model::ModelConfig& config,
                          const std::string& hyperparameters, const std::string& source) {
  const LitOptions o = read_options(hyperparameters, source);
  LitAdapter adapter{.config = o.config};
  for (const TensorSpec& tensor : tensors) {
    const bool is_a = tensor.name.ends_with(".lora_A");
    if ((!is_a && !tensor.name.ends_with(".lora_B")) || tensor.shape.size() != 2)
      refuse_tensor(tensor, "is no A or B of an adapter of LitGPT");
    const std::string module = tensor.name.substr(0, tensor.name.size() - std::string_view(".lora_A").size());
    if (module.ends_with(".attn.qkv")) {
      // The name of a matrix beside it says how the block is called.
      const TensorSpec beside{.name = module.substr(0, module.rfind('.')) + ".proj.weight", .shape = {1, 1}};
      const std::string o_proj = litgpt_to_hugging_face({beside}, config).at(0).target.name;
      cut_qkv(tensor, o_proj.substr(0, o_proj.find("self_attn.")), is_a, o, config, adapter.map);
      continue;
    }
    const TensorSpec weight{.name = module + ".weight", .shape = tensor.shape};
    std::string name = litgpt_to_hugging_face({weight}, config).at(0).target.name;
    name.resize(name.size() - std::string_view(".weight").size());
    adapter.map.push_back(renamed(tensor, name + (is_a ? model::kLoraA : model::kLoraB)));
  }
  return adapter;
}

}  // namespace trireme::formats
