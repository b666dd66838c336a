// Translates config.json to GGUF's metadata; gguf/config.cpp translates back.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/base/text.h"
#include "trireme/formats/gguf/config.h"

namespace trireme::formats {
namespace {

using nlohmann::json;

[[noreturn]] void refuse_config(const std::string& what) {
  throw UsageError(fmt::format("error: GGUF cannot express this model: its config.json has {}", what));
}

/// Null if the key is absent or null.
const json* find(const json& object, const std::string& key) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

double number(const json& object, const std::string& key, std::optional<double> fallback = std::nullopt) {
  const json* value = find(object, key);
  if (!value && fallback) return *fallback;
  if (!value || !value->is_number()) refuse_config(fmt::format("no number under '{}'", key));
  return value->get<double>();
}

uint32_t whole(const json& object, const std::string& key, std::optional<double> fallback = std::nullopt) {
  const double value = number(object, key, fallback);
  if (!(value >= 0 && value <= 4294967295.0) || value != std::floor(value))
    refuse_config(fmt::format("{} under '{}', which is not a valid count", value, key));
  return static_cast<uint32_t>(value);
}

bool flag(const json& object, const std::string& key) {
  const json* value = find(object, key);
  return value && value->is_boolean() && value->get<bool>();
}

const GgufFamily& family_of(const json& config) {
  const std::string type = find(config, "model_type") ? config["model_type"].get<std::string>() : "";
  std::vector<std::string> known;
  for (const GgufFamily& family : gguf_families()) {
    for (const std::string_view name : family.model_types) {
      if (name == type) return family;
      known.emplace_back(name);
    }
  }
  refuse_config(fmt::format("model_type '{}'; Trireme writes {}", type, base::join(known, ", ")));
}

/// As model::parse_hugging_face_config() tells them.
void check_task(const json& config) {
  const json* classes = find(config, "architectures");
  if (!classes || !classes->is_array() || classes->empty() || !classes->front().is_string()) return;
  if (classes->front().get<std::string>().ends_with("ForSequenceClassification"))
    refuse_config("a classification head");
}

void check_activation(const json& config, const GgufFamily& family) {
  for (const char* key : {"hidden_act", "hidden_activation", "activation_function"}) {
    const json* value = find(config, key);
    if (!value || (family.gemma && std::string_view(key) == "hidden_act")) continue;  // Gemma's older key is not used
    const bool same_tanh = family.gpt2 && *value == "gelu_pytorch_tanh";
    if (*value != family.activation && !same_tanh)
      refuse_config(
          fmt::format("{} {}; {} models have {}", key, value->dump(), family.architecture, family.activation));
  }
}

/// In GGUF the architecture implies which layers have a window; other choices cannot be expressed.
void check_layers(const json& config, const GgufFamily& family) {
  const json* types = find(config, "layer_types");
  const bool sliding_qwen = family.architecture.starts_with("qwen") && flag(config, "use_sliding_window");
  if (const json* pattern = find(config, "sliding_window_pattern");
      pattern && family.architecture == "gemma3" && *pattern != 6) {
    refuse_config(fmt::format("sliding_window_pattern {}; gemma3 in GGUF is 6", pattern->dump()));
  }
  if (!types) {
    if (sliding_qwen && whole(config, "max_window_layers", 28.0) < whole(config, "num_hidden_layers"))
      refuse_config("use_sliding_window true");
    return;
  }
  for (size_t i = 0; i < types->size(); ++i) {
    const bool sliding = family.architecture == "gemma2" ? i % 2 == 0
                         : family.architecture == "gemma3"
                             ? (i + 1) % 6 != 0
                             : find(config, "sliding_window") && family.architecture == "llama";
    if ((*types)[i] != (sliding ? "sliding_attention" : "full_attention"))
      refuse_config(fmt::format("{} for layer {} in layer_types, which {} models do not have there", (*types)[i].dump(),
                                i, family.architecture));
  }
}

/// {"rope_theta", "rope_type", ...} of the layers named, from any of Hugging Face's ways to write them.
json rope_of(const json& config, const char* layers) {
  json rope = json::object();
  if (const json* parameters = find(config, "rope_parameters")) {
    const json* nested = find(*parameters, layers);
    if (nested) return *nested;
    if (!parameters->contains("full_attention")) rope = *parameters;
  }
  if (const json* scaling = find(config, "rope_scaling")) rope.update(*scaling);
  if (const json* theta = find(config, "rope_theta")) rope["rope_theta"] = *theta;
  return rope;
}

std::string scaling_type(const json& rope) {
  for (const char* key : {"rope_type", "type"})
    if (const json* type = find(rope, key)) return type->get<std::string>();
  return "default";
}

/// Adds the keys of rotary scaling, or returns the divisors of llama3's.
std::vector<float> write_scaling(const json& rope, const std::string& arch, uint32_t head_dim, double theta,
                                 uint32_t context, GgufMetadata& metadata) {
  const std::string type = scaling_type(rope);
  if (type == "default") return {};
  if (type == "llama3")
    return llama3_divisors({.factor = number(rope, "factor"),
                            .low_freq_factor = number(rope, "low_freq_factor"),
                            .high_freq_factor = number(rope, "high_freq_factor"),
                            .original_max_position_embeddings = number(rope, "original_max_position_embeddings")},
                           head_dim, theta);
  if (type != "linear" && type != "yarn") refuse_config(fmt::format("rotary scaling of type '{}'", type));
  metadata.add(arch + ".rope.scaling.type", std::string_view(type));
  metadata.add(arch + ".rope.scaling.factor", static_cast<float>(number(rope, "factor")));
  if (type == "linear") return {};
  for (const char* key : {"attention_factor", "mscale", "mscale_all_dim"})
    if (find(rope, key)) refuse_config(fmt::format("'{}' in its yarn scaling", key));
  if (find(rope, "truncate") && rope.at("truncate") == false) refuse_config("'truncate': false in its yarn scaling");
  metadata.add(arch + ".rope.scaling.original_context_length",
               whole(rope, "original_max_position_embeddings", static_cast<double>(context)));
  if (find(rope, "beta_fast"))
    metadata.add(arch + ".rope.scaling.yarn_beta_fast", static_cast<float>(number(rope, "beta_fast")));
  if (find(rope, "beta_slow"))
    metadata.add(arch + ".rope.scaling.yarn_beta_slow", static_cast<float>(number(rope, "beta_slow")));
  return {};
}

uint32_t head_dim_of(const json& config, const GgufFamily& family, GgufHeads heads) {
  if (find(config, "head_dim")) return whole(config, "head_dim");
  if (family.gemma) return 256;
  if (family.architecture == "qwen3") return 128;
  return whole(config, "hidden_size") / static_cast<uint32_t>(heads.heads);
}

void write_gemma(const json& config, uint32_t head_dim, GgufMetadata& metadata, GgufModel& model) {
  const std::string& arch = model.architecture;
  const bool caps = arch == "gemma2";
  metadata.add(arch + ".attention.sliding_window", whole(config, "sliding_window", 4096.0));
  for (const auto& [key, fallback] : {std::pair{"attn_logit_softcapping", 50.0}, {"final_logit_softcapping", 30.0}}) {
    const bool absent = !config.contains(key);
    if (find(config, key) || (absent && caps))
      metadata.add(fmt::format("{}.{}", arch, key), static_cast<float>(number(config, key, fallback)));
    else if (caps)
      refuse_config(fmt::format("{} null, and gemma2 in GGUF always has it", key));
  }
  const double scalar = number(config, "query_pre_attn_scalar", 256.0);
  // Readers have a number of their own for 27B models, which they know by their blocks (config.cpp).
  const bool is_27b = whole(config, "num_hidden_layers") == (arch == "gemma2" ? 46 : 62);
  if (scalar != head_dim || is_27b) metadata.add(arch + ".attention.scale", static_cast<float>(1 / std::sqrt(scalar)));
  // transformers has 256 for all files. llama.cpp has head_dim, and of 27B models their own number.
  if (scalar == 256 && scalar == head_dim) return;
  model.notes.push_back(fmt::format(
      "query_pre_attn_scalar is {}, and programs that do not know the key {}.attention.scale take 256 or the "
      "width of a head ({})",
      scalar, arch, head_dim));
}

void write_window(const json& config, const std::string& arch, uint32_t context, GgufMetadata& metadata,
                  GgufModel& model) {
  constexpr double kOfMistral = 4096;  // of a file that has no such key
  const bool is_usual = config.value("model_type", "") == "mistral" && !config.contains("sliding_window");
  if (arch != "llama" || (!is_usual && !find(config, "sliding_window"))) return;
  const uint32_t window = whole(config, "sliding_window", kOfMistral);
  if (window >= context) return;
  metadata.add(arch + ".attention.sliding_window", window);
  model.notes.push_back(
      fmt::format("the window of {} tokens is written as llama.attention.sliding_window; programs that do not know the "
                  "key attend to everything before",
                  window));
}

void write_decoder(const json& config, const GgufFamily& family, GgufMetadata& metadata, GgufModel& model) {
  const std::string& arch = model.architecture;
  const uint32_t context = whole(config, "max_position_embeddings");
  const uint32_t head_dim = head_dim_of(config, family, model.heads);
  metadata.add(arch + ".attention.head_count_kv", static_cast<uint32_t>(model.heads.kv_heads));
  metadata.add(arch + ".attention.key_length", head_dim);
  metadata.add(arch + ".attention.value_length", head_dim);
  metadata.add(arch + ".rope.dimension_count", head_dim);
  const json rope = rope_of(config, "full_attention");
  if (number(rope, "partial_rotary_factor", number(config, "partial_rotary_factor", 1.0)) != 1)
    refuse_config("a partial_rotary_factor other than 1");
  const double theta = number(rope, "rope_theta", arch == "gemma3" ? 1e6 : 1e4);
  metadata.add(arch + ".rope.freq_base", static_cast<float>(theta));
  if (arch == "gemma3") {
    const json local = rope_of(config, "sliding_attention");
    const bool nested = find(config, "rope_parameters") && config["rope_parameters"].contains("sliding_attention");
    if (nested && scaling_type(local) != "default") refuse_config("scaled rotary positions in layers with a window");
    metadata.add(
        arch + ".rope.freq_base_swa",
        static_cast<float>(nested ? number(local, "rope_theta") : number(config, "rope_local_base_freq", 1e4)));
  }
  model.rope_divisors = write_scaling(rope, arch, head_dim, theta, context, metadata);
  if (family.gemma) write_gemma(config, head_dim, metadata, model);
  write_window(config, arch, context, metadata, model);
  if (flag(config, "use_bidirectional_attention")) refuse_config("use_bidirectional_attention true");
}

void write_gpt2(const json& config, const std::string& arch, GgufMetadata& metadata) {
  for (const char* key : {"scale_attn_by_inverse_layer_idx", "add_cross_attention"})
    if (flag(config, key)) refuse_config(fmt::format("{} true", key));
  if (find(config, "scale_attn_weights") && !flag(config, "scale_attn_weights"))
    refuse_config("scale_attn_weights false");
  metadata.add(arch + ".attention.head_count_kv", whole(config, "n_head"));
}

}  // namespace

GgufModel config_to_gguf(const json& config, GgufMetadata& metadata) try {
  const GgufFamily& family = family_of(config);
  GgufModel model{.architecture = std::string(family.architecture), .heads = heads_of(config)};
  if (model.heads.heads < 1 || model.heads.kv_heads < 1) refuse_config("no number of attention heads");
  model.tied = find(config, "tie_word_embeddings") ? flag(config, "tie_word_embeddings") : family.gemma || family.gpt2;
  check_task(config);
  check_activation(config, family);
  check_layers(config, family);
  metadata.add("general.architecture", std::string_view(model.architecture));
  metadata.add("general.type", "model");
  metadata.add("general.quantization_version", uint32_t{2});
  for (const GgufConfigRow& row : family.rows) {
    const std::string key = fmt::format("{}.{}", model.architecture, row.gguf), theirs(row.hugging_face);
    if (!row.whole)
      metadata.add(key, static_cast<float>(number(config, theirs, family.gpt2 ? 1e-5 : 1e-6)));
    else if (theirs == "n_inner")
      metadata.add(key, whole(config, theirs, 4.0 * whole(config, "n_embd")));
    else
      metadata.add(key, whole(config, theirs));
  }
  metadata.add(model.architecture + ".vocab_size", whole(config, "vocab_size"));
  if (family.gpt2)
    write_gpt2(config, model.architecture, metadata);
  else
    write_decoder(config, family, metadata, model);
  return model;
} catch (const json::exception& error) {
  refuse_config(fmt::format("a value of the wrong kind ({})", base::json_reason(error)));
}

}  // namespace trireme::formats
