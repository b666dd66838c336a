#include "trireme/adapt/adapter_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/base/text.h"

namespace trireme::adapt {
namespace {

using json = nlohmann::ordered_json;

/// Keys with any value: they say where the file comes from or when a program merges it, or count only beside another
/// key that is refused.
constexpr const char* kAnyValue[] = {"auto_mapping",   "peft_version",  "revision",
                                     "inference_mode", "merge_weights", "runtime_config",
                                     "megatron_core",  "eva_config",    "qalora_group_size"};

/// Keys that are accepted if they are null, false or empty; otherwise refused, because of `why`.
struct Neutral {
  const char* key;
  const char* why;
};
constexpr Neutral kNeutral[] = {
    {"alora_invocation_tokens", "an adapter that starts at certain tokens is no fixed change of the weights"},
    {"arrow_config", "a choice between adapters for each token is not supported"},
    {"corda_config", "it changes the base model's weights"},
    {"enable_lora", "adapters of single parts of a fused matrix are not supported"},  // PEFT before 0.3
    {"ensure_weight_tying", "an adapter of a tied matrix belongs to the one module that it names"},
    {"kasa_config", "singular values beside A and B are not supported"},
    {"layer_replication", "repeated blocks are not supported"},
    {"loftq_config", "it quantises the base model's weights"},
    {"lora_ga_config", "it changes the base model's weights"},
    {"megatron_config", "Megatron's layers are not supported"},
    {"monteclora_config", "sampled adapters are not supported"},
    {"target_parameters", "adapters of single parameters are not supported; name modules in target_modules"},
    {"trainable_token_indices", "trained rows of the embedding are not supported"},
    {"use_bdlora", "block-diagonal adapters are not supported"},
    {"use_qalora", "adapters of pooled inputs are not supported"},
    {"velora_config", "compressed activations are not supported"},
};

/// Reads the keys of one file.
class Reader {
 public:
  Reader(const json& object, const std::string& path) : object_(object), path_(path) {}

  /// The key's value; nothing if it is absent or null.
  const json* find(const char* key) {
    known_.insert(key);
    const auto found = object_.find(key);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }

  [[noreturn]] void refuse(const std::string& key, const std::string& why) const {
    const std::string value = base::json_text(object_.at(key));
    throw CheckpointError(fmt::format("{}: {} is {}: {}", path_, base::shortened(key), base::shortened(value), why),
                          path_);
  }

  void take(const char* key, bool& target) {
    const json* value = find(key);
    if (value == nullptr) return;
    if (!value->is_boolean()) refuse(key, "it must be true or false");
    target = value->get<bool>();
  }

  void take(const char* key, double& target) {
    const json* value = find(key);
    if (value != nullptr) target = number(key, *value);
  }

  void take(const char* key, int64_t& target) {
    const json* value = find(key);
    if (value != nullptr) target = whole(key, *value);
  }

  void take(const char* key, std::string& target) {
    const json* value = find(key);
    if (value != nullptr) target = text(key, *value);
  }

  /// A list of texts, or one text.
  void take(const char* key, std::vector<std::string>& target) {
    const json* value = find(key);
    if (value == nullptr) return;
    if (value->is_string()) {
      if (!value->get_ref<const std::string&>().empty()) target = {value->get<std::string>()};
      return;
    }
    if (!value->is_array()) refuse(key, "it must be a list of names");
    for (const json& item : *value) target.push_back(text(key, item));
  }

  /// A list of names, or one regular expression.
  void take(const char* key, ModuleNames& target) {
    const json* value = find(key);
    if (value == nullptr) return;
    if (value->is_string()) {
      if (!value->get_ref<const std::string&>().empty()) target.pattern = value->get<std::string>();
      return;
    }
    take(key, target.list);
    std::sort(target.list.begin(), target.list.end());  // PEFT's set is written in any order
  }

  /// A list of numbers, or one number.
  void take(const char* key, std::optional<std::vector<int64_t>>& target) {
    const json* value = find(key);
    if (value == nullptr) return;
    std::vector<int64_t> numbers;
    if (value->is_array())
      for (const json& item : *value) numbers.push_back(whole(key, item));
    else
      numbers.push_back(whole(key, *value));
    if (!numbers.empty()) target = std::move(numbers);
  }

  template <typename Number>
  void take(const char* key, std::vector<std::pair<std::string, Number>>& target) {
    const json* value = find(key);
    if (value == nullptr) return;
    if (!value->is_object()) refuse(key, "it must be an object of names and numbers");
    for (const auto& [name, item] : value->items()) {
      if constexpr (std::is_same_v<Number, int64_t>)
        target.emplace_back(name, whole(key, item));
      else
        target.emplace_back(name, number(key, item));
    }
  }

  void refuse_unknown() const {
    for (const auto& [key, value] : object_.items())
      if (!known_.contains(key) && !value.is_null())  // null says nothing, whatever it is of
        refuse(key, "this key is not known, and to ignore it could mis-scale the adapter, so it is refused");
  }

 private:
  double number(const char* key, const json& value) const {
    if (!value.is_number() || !std::isfinite(value.get<double>())) refuse(key, "it must hold numbers");
    return value.get<double>();
  }
  int64_t whole(const char* key, const json& value) const {
    if (value.is_number_float() && value.get<double>() == std::floor(value.get<double>()) &&
        std::abs(value.get<double>()) < 1e15)
      return static_cast<int64_t>(value.get<double>());
    if (!base::is_whole_number(value)) refuse(key, "it must hold whole numbers");
    return value.get<int64_t>();
  }
  std::string text(const char* key, const json& value) const {
    if (!value.is_string()) refuse(key, "it must hold texts");
    return value.get<std::string>();
  }

  const json& object_;
  const std::string& path_;
  std::set<std::string> known_;
};

void check_kind(Reader& keys) {
  const json* kind = keys.find("peft_type");
  if (kind != nullptr && *kind != "LORA") keys.refuse("peft_type", "only LORA is supported");
  const json* task = keys.find("task_type");
  if (task != nullptr && *task != "CAUSAL_LM")
    keys.refuse("task_type", "only adapters of language models, CAUSAL_LM, are supported");
  const json* bias = keys.find("bias");
  if (bias != nullptr && *bias != "none")
    keys.refuse("bias", "trained biases of the base model are not supported; only \"none\" is");
}

bool is_neutral(const json& value) {
  return value.is_null() || value == false || (value.is_structured() && value.empty()) ||
         (value.is_string() && value.get_ref<const std::string&>().empty());
}

/// Where training starts. The folder holds the values themselves, so only those ways matter that change the base.
model::AdapterInit first_values(Reader& keys) {
  const json* value = keys.find("init_lora_weights");
  if (value == nullptr || value->is_boolean()) return model::AdapterInit::kaiming;
  if (!value->is_string()) keys.refuse("init_lora_weights", "it must be true, false or a name");
  const std::string name = value->get<std::string>();
  if (name == "gaussian") return model::AdapterInit::gaussian;
  if (name == "eva" || name == "orthogonal") return model::AdapterInit::kaiming;
  const bool changes_base = name.starts_with("pissa") || name == "olora" || name == "corda" || name == "lora_ga";
  keys.refuse("init_lora_weights",
              changes_base
                  ? "it changed the base model's weights, so that the adapter fits no other; save it from PEFT "
                    "with path_initial_model_for_weight_conversion, which makes an ordinary one"
              : name == "loftq" ? "it quantised the base model's weights"
              : name == "mica"  ? "an adapter of minor components is not supported"
                                : "this way to begin is not known");
}

}  // namespace

AdapterConfig parse_adapter_config(std::string_view text, const std::string& path) {
  const json object = base::parse_json_if_sound<json>(text);
  if (!object.is_object()) throw CheckpointError(fmt::format("{} is not a JSON object", path), path);
  Reader keys(object, path);
  check_kind(keys);
  for (const char* key : kAnyValue) keys.find(key);
  for (const Neutral& neutral : kNeutral) {
    const json* value = keys.find(neutral.key);
    if (value != nullptr && !is_neutral(*value)) keys.refuse(neutral.key, neutral.why);
  }
  AdapterConfig c;
  keys.take("r", c.r);
  keys.take("lora_alpha", c.lora_alpha);
  keys.take("lora_dropout", c.lora_dropout);
  keys.take("use_rslora", c.use_rslora);
  keys.take("use_dora", c.use_dora);
  keys.take("lora_bias", c.lora_bias);
  keys.take("fan_in_fan_out", c.fan_in_fan_out);
  keys.take("target_modules", c.target_modules);
  keys.take("exclude_modules", c.exclude_modules);
  keys.take("layers_to_transform", c.layers_to_transform);
  keys.take("layers_pattern", c.layers_pattern);
  keys.take("modules_to_save", c.modules_to_save);
  keys.take("rank_pattern", c.rank_pattern);
  keys.take("alpha_pattern", c.alpha_pattern);
  keys.take("base_model_name_or_path", c.base_model_name_or_path);
  c.init_lora_weights = first_values(keys);
  keys.refuse_unknown();
  const json* targets = keys.find("target_modules");
  if (targets != nullptr && c.target_modules.empty()) keys.refuse("target_modules", "it names no module");
  return c;
}

std::string adapter_config_json(const AdapterConfig& c) {
  const auto names_of = [](const std::vector<std::string>& names) { return names.empty() ? json() : json(names); };
  const auto modules_of = [&](const ModuleNames& names) {
    return names.pattern ? json(*names.pattern) : names_of(names.list);
  };
  const auto number_of = [](double value) {  // PEFT writes whole numbers without a point
    return value == std::floor(value) && std::abs(value) < 1e15 ? json(static_cast<int64_t>(value)) : json(value);
  };
  json ranks = json::object(), alphas = json::object();
  for (const auto& [name, rank] : c.rank_pattern) ranks[name] = rank;
  for (const auto& [name, alpha] : c.alpha_pattern) alphas[name] = number_of(alpha);
  const bool gaussian = c.init_lora_weights == model::AdapterInit::gaussian;
  const json object = {
      {"alpha_pattern", alphas},
      {"base_model_name_or_path", c.base_model_name_or_path.empty() ? json() : json(c.base_model_name_or_path)},
      {"bias", "none"},
      {"exclude_modules", modules_of(c.exclude_modules)},
      {"fan_in_fan_out", c.fan_in_fan_out},
      {"inference_mode", true},
      {"init_lora_weights", gaussian ? json("gaussian") : json(true)},
      {"layers_pattern", names_of(c.layers_pattern)},
      {"layers_to_transform", c.layers_to_transform ? json(*c.layers_to_transform) : json()},
      {"lora_alpha", number_of(c.lora_alpha)},
      {"lora_bias", c.lora_bias},
      {"lora_dropout", c.lora_dropout},
      {"modules_to_save", names_of(c.modules_to_save)},
      {"peft_type", "LORA"},
      {"r", c.r},
      {"rank_pattern", ranks},
      {"target_modules", modules_of(c.target_modules)},
      {"task_type", "CAUSAL_LM"},
      {"use_dora", c.use_dora},
      {"use_rslora", c.use_rslora},
  };
  return base::json_text(object, 2) + "\n";
}

}  // namespace trireme::adapt
