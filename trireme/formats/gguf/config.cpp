#include "trireme/formats/gguf/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/base/text.h"
#include "trireme/model/config.h"

namespace trireme::formats {
namespace {

using nlohmann::ordered_json;

[[noreturn]] void fail_config(const GgufHeader& header, const std::string& problem) {
  throw CheckpointError(fmt::format("{} cannot be read as a model: {}", header.path, problem), header.path);
}

/// The shortest decimal of this float32: 1e-05 instead of 9.99999974e-06.
double as_written(double value) {
  const std::string text = fmt::format("{}", static_cast<float>(value));
  double result = value;
  std::from_chars(text.data(), text.data() + text.size(), result);
  return result;
}

/// Keys below "{arch}.". It records which were read: the others are unknown.
class Keys {
 public:
  Keys(const GgufHeader& header, std::string architecture) : header_(header), architecture_(std::move(architecture)) {}

  std::optional<int64_t> integer(const std::string& key) { return header_.integer(full(key)); }
  std::optional<double> number(const std::string& key) { return header_.number(full(key)); }
  std::optional<std::string> text(const std::string& key) { return header_.text(full(key)); }
  int64_t require(const std::string& key) {
    const std::optional<int64_t> value = integer(key);
    if (!value) fail_config(header_, fmt::format("its metadata have no '{}'", full(key)));
    return *value;
  }

  std::string full(const std::string& key) {
    std::string name = architecture_ + "." + key;
    asked_.insert(name);
    return name;
  }

  /// Refuses keys that were not read, unless they are zero or false.
  void refuse_rest() const {
    for (const auto& [key, value] : header_.metadata) {
      if (!key.starts_with(architecture_ + ".") || asked_.contains(key)) continue;
      const bool neutral = std::visit(
          [](const auto& v) {
            using T = std::decay_t<decltype(v)>;
            if constexpr (std::is_arithmetic_v<T>) return v == T{};
            return false;
          },
          value.value);
      if (!neutral)
        fail_config(header_,
                    fmt::format("Trireme does not know its key '{}', which may change what the model computes", key));
    }
  }

 private:
  const GgufHeader& header_;
  std::string architecture_;
  std::set<std::string> asked_;
};

bool has_tensor(const GgufHeader& header, std::string_view name) {
  return std::any_of(header.tensors.begin(), header.tensors.end(), [&](const GgufTensor& t) { return t.name == name; });
}

std::vector<float> read_divisors(const TensorSource& source) {
  const std::vector<TensorSpec>& tensors = source.tensors();
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].name != "rope_freqs.weight") continue;
    constexpr int64_t kMost = 1 << 16;
    const int64_t count = tensors[i].shape.size() == 1 ? tensors[i].shape[0] : 0;
    std::vector<float> values(std::min(count, kMost));
    source.read(i, 0, std::ssize(values), values.data(), Dtype::f32);
    return values;
  }
  return {};
}

/// Elements of a head that are rotated: all of it, in these architectures.
int64_t rotated_width(Keys& keys, const ordered_json& config) {
  return keys.integer("rope.dimension_count")
      .value_or(config.contains("head_dim") ? config["head_dim"].get<int64_t>()
                                            : config["hidden_size"].get<int64_t>() /
                                                  std::max<int64_t>(1, config["num_attention_heads"].get<int64_t>()));
}

/// rope_scaling of config.json, or null.
ordered_json read_scaling(const GgufHeader& header, Keys& keys, double theta, const std::vector<float>& divisors,
                          int64_t head_dim) {
  if (has_tensor(header, "rope_freqs.weight") && std::ssize(divisors) != head_dim / 2)
    fail_config(header, fmt::format("its rope_freqs.weight is no table of {} numbers, one for each pair of a head",
                                    head_dim / 2));
  keys.full("rope.scaling.finetuned");
  keys.full("rope.scaling.yarn_log_multiplier");  // transformers computes this scale from the factor
  if (!divisors.empty()) {
    const std::optional<Llama3Scaling> found = find_llama3_scaling(divisors, theta);
    if (!found) fail_config(header, "its rope_freqs.weight is no llama3 scaling, the only kind of table Trireme knows");
    return {{"rope_type", "llama3"},
            {"factor", found->factor},
            {"low_freq_factor", found->low_freq_factor},
            {"high_freq_factor", as_written(found->high_freq_factor)},
            {"original_max_position_embeddings", static_cast<int64_t>(found->original_max_position_embeddings)}};
  }
  const std::optional<double> old_linear = keys.number("rope.scale_linear");
  std::string type = keys.text("rope.scaling.type").value_or(old_linear ? "linear" : "none");
  const double factor = keys.number("rope.scaling.factor").value_or(old_linear.value_or(1.0));
  const std::optional<int64_t> original = keys.integer("rope.scaling.original_context_length");
  if (type == "none" || (type == "linear" && factor == 1)) return nullptr;
  if (type == "linear") return {{"rope_type", "linear"}, {"factor", as_written(factor)}};
  if (type != "yarn") fail_config(header, fmt::format("Trireme does not know the rotary scaling '{}'", type));
  ordered_json scaling{{"rope_type", "yarn"}, {"factor", as_written(factor)}};
  if (original) scaling["original_max_position_embeddings"] = *original;
  if (const auto beta = keys.number("rope.scaling.yarn_beta_fast")) scaling["beta_fast"] = as_written(*beta);
  if (const auto beta = keys.number("rope.scaling.yarn_beta_slow")) scaling["beta_slow"] = as_written(*beta);
  return scaling;
}

void read_attention(const GgufHeader& header, Keys& keys, ordered_json& config) {
  const int64_t heads = keys.require("attention.head_count");
  if (heads < 1) fail_config(header, fmt::format("'{}' is {}", keys.full("attention.head_count"), heads));
  const int64_t width = keys.require("embedding_length");
  const int64_t head_dim =
      keys.integer("attention.key_length").value_or(keys.integer("rope.dimension_count").value_or(width / heads));
  for (const char* key : {"attention.value_length", "rope.dimension_count"}) {
    const int64_t other = keys.integer(key).value_or(head_dim);
    if (other != head_dim)
      fail_config(header, fmt::format("'{}' is {}, heads are {} wide", keys.full(key), other, head_dim));
  }
  config["num_key_value_heads"] = keys.integer("attention.head_count_kv").value_or(heads);
  config["head_dim"] = head_dim;
  if (config["model_type"] != "qwen2") return;
  if (head_dim * heads != width)
    fail_config(header, fmt::format("its heads are {} wide, Qwen2's are {}", head_dim, width / heads));
  config.erase("head_dim");  // only the config.json of qwen2 has no such key
}

/// What only some architectures have: windows, soft-capping, the scale of Gemma's queries.
void read_special(const GgufHeader& header, Keys& keys, const GgufFamily& family, ordered_json& config) {
  const std::optional<int64_t> window = keys.integer("attention.sliding_window");
  if (family.architecture == "llama") {
    if (window && *window > 0) {
      config["model_type"] = "mistral";
      config["architectures"] = {"MistralForCausalLM"};
      config["sliding_window"] = *window;
      for (const char* key : {"attention_bias", "mlp_bias"}) {
        if (config[key] == true) fail_config(header, fmt::format("it has a window and {}, which no Mistral has", key));
        config.erase(key);
      }
    }
  } else if (family.gemma) {
    if (window) config["sliding_window"] = *window;
    const int64_t heads = config["num_attention_heads"].get<int64_t>();
    const bool is_27b = config["num_hidden_layers"] == (family.architecture == "gemma2" ? 46 : 62);
    const std::optional<double> scale = keys.number("attention.scale");
    if (scale && !(*scale > 1e-4 && *scale <= 1)) fail_config(header, fmt::format("its attention.scale is {}", *scale));
    config["query_pre_attn_scalar"] = scale    ? std::llround(1 / (*scale * *scale))
                                      : is_27b ? config["hidden_size"].get<int64_t>() / heads
                                               : config["head_dim"].get<int64_t>();
    const bool caps = family.architecture == "gemma2";
    for (const auto& [key, fallback] : {std::pair{"attn_logit_softcapping", 50.0}, {"final_logit_softcapping", 30.0}}) {
      const std::optional<double> cap = keys.number(key);
      config[key] = cap ? ordered_json(as_written(*cap)) : caps ? ordered_json(fallback) : ordered_json(nullptr);
    }
  } else if (window && *window > 0) {
    fail_config(header, fmt::format("'{}' is {}: {} models of Hugging Face have no such window on every layer",
                                    keys.full("attention.sliding_window"), *window, family.architecture));
  }
}

void read_token_ids(const GgufHeader& header, ordered_json& config) {
  constexpr std::pair<const char*, const char*> kIds[] = {
      {"bos_token_id", "bos"}, {"eos_token_id", "eos"}, {"pad_token_id", "padding"}};
  for (const auto& [key, word] : kIds)
    if (const auto id = header.integer(fmt::format("tokenizer.ggml.{}_token_id", word))) config[key] = *id;
  const auto turn = header.integer("tokenizer.ggml.eot_token_id");  // llama.cpp ends a text there, too
  if (!turn) return;
  if (*turn < 0 || *turn >= config["vocab_size"].get<int64_t>())
    fail_config(header, fmt::format("its eot token is number {} of {}", *turn, config["vocab_size"].get<int64_t>()));
  if (!config.contains("eos_token_id"))
    config["eos_token_id"] = *turn;
  else if (config["eos_token_id"] != *turn)
    config["eos_token_id"] = {config["eos_token_id"], *turn};
}

}  // namespace

GgufHeads heads_of(const nlohmann::json& config) {
  const auto whole = [&](const char* key, int64_t fallback) {
    const auto found = config.find(key);
    return found != config.end() && base::is_whole_number(*found) ? found->get<int64_t>() : fallback;
  };
  const int64_t heads = whole("num_attention_heads", whole("n_head", 0));
  if (config.contains("num_key_value_heads")) return {.heads = heads, .kv_heads = whole("num_key_value_heads", heads)};
  try {  // some families have fewer of them where a file does not say it
    return {.heads = heads,
            .kv_heads = model::parse_hugging_face_config(config.dump(), "config.json").num_key_value_heads};
  } catch (const UsageError&) {  // which is told where the model is looked at
    return {.heads = heads, .kv_heads = heads};
  }
}

ordered_json config_from_gguf(const GgufHeader& header, const TensorSource& source) {
  const std::string architecture = header.text("general.architecture").value_or("");
  if (architecture.empty()) fail_config(header, "its metadata have no 'general.architecture'");
  const GgufFamily& family = gguf_family(architecture, header.path);
  Keys keys(header, architecture);
  ordered_json config{{"architectures", {family.class_name}}, {"model_type", family.model_types.front()}};

  const auto embedding = std::find_if(header.tensors.begin(), header.tensors.end(),
                                      [](const GgufTensor& t) { return t.name == "token_embd.weight"; });
  if (embedding == header.tensors.end() || embedding->shape.empty())
    fail_config(header, "it has no tensor token_embd.weight");
  keys.full("vocab_size");  // the embedding's number of rows counts instead
  config["vocab_size"] = embedding->shape[0];
  for (const GgufConfigRow& row : family.rows)
    if (row.whole)
      config[std::string(row.hugging_face)] = keys.require(std::string(row.gguf));
    else if (const auto value = keys.number(std::string(row.gguf)))
      config[std::string(row.hugging_face)] = as_written(*value);
    else
      fail_config(header, fmt::format("its metadata have no '{}'", keys.full(std::string(row.gguf))));
  config[family.gemma ? "hidden_activation" : family.gpt2 ? "activation_function" : "hidden_act"] = family.activation;
  config["tie_word_embeddings"] = !has_tensor(header, "output.weight");
  if (family.gpt2) {
    keys.integer("attention.head_count_kv");
    keys.integer("rope.dimension_count");  // 0 in some files, and unused
  } else {
    read_attention(header, keys, config);
    const double theta = keys.number("rope.freq_base").value_or(10000.0);
    config["rope_theta"] = as_written(theta);
    config["rope_scaling"] = read_scaling(header, keys, theta, read_divisors(source), rotated_width(keys, config));
    if (architecture == "gemma3")
      config["rope_local_base_freq"] = as_written(keys.number("rope.freq_base_swa").value_or(10000.0));
    if (architecture != "qwen2") config["attention_bias"] = has_tensor(header, "blk.0.attn_output.bias");
    if (architecture == "llama") config["mlp_bias"] = has_tensor(header, "blk.0.ffn_up.bias");
    read_special(header, keys, family, config);
  }
  keys.full("tensor_data_layout");
  keys.full("attention.causal");
  keys.refuse_rest();
  read_token_ids(header, config);
  return config;
}

}  // namespace trireme::formats
