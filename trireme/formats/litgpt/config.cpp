#include "trireme/formats/litgpt/config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "trireme/base/error.h"
#include "trireme/base/text.h"

namespace trireme::formats {
namespace {

using model::Architecture;
using model::ModelConfig;
using model::RopeScaling;

/// Keys that have one value in all supported models; "null" means absent.
struct FixedKey {
  const char* key;
  const char* value;
  const char* missing;  ///< what LitGPT assumes without the key
};
constexpr FixedKey kFixed[] = {
    {"norm_class_name", "RMSNorm", "LayerNorm"},
    {"norm_qk_type", "default", "default"},
    {"parallel_residual", "false", "true"},
    {"shared_attention_norm", "false", "false"},
    {"rotary_percentage", "1", "0.25"},
    {"rope_interleave", "false", "false"},
    {"bias", "false", "true"},
    {"lm_head_bias", "false", "false"},
    {"norm_1", "true", "true"},
    {"norm_2", "true", "true"},
    {"n_expert", "0", "0"},
    {"latent_attention", "null", "null"},
};
/// Keys without effect: names, and those of mixtures of experts, as n_expert is 0.
const std::set<std::string> kHarmless = {"name",
                                         "hf_config",
                                         "padding_multiple",
                                         "vocab_size",
                                         "moe_intermediate_size",
                                         "n_shared_expert",
                                         "n_expert_groups",
                                         "n_topk_groups",
                                         "n_topk_scores_per_group",
                                         "n_expert_per_token",
                                         "first_k_dense_replace",
                                         "routed_scaling_factor",
                                         "norm_topk_prob"};

class ConfigReader {
 public:
  ConfigReader(const YAML::Node& root, const std::string& source) : root_(root), source_(source), known_(kHarmless) {}

  ModelConfig read() {
    for (const FixedKey& fixed : kFixed) require(fixed);
    ModelConfig c = model::default_config(architecture());
    c.name = text("name", "");
    read_sizes(c);
    c.norm_eps = take("norm_eps", 1e-5);
    c.tie_word_embeddings = false;
    read_attention(c);
    read_rope(c);
    for (const auto& item : root_) {
      const auto key = item.first.as<std::string>();
      if (!known_.contains(key)) fail(key, "is not known; it may change the mathematics, so it is refused");
    }
    c.validate();
    return c;
  }

 private:
  [[noreturn]] void fail(const std::string& key, const std::string& problem) const {
    throw UsageError(fmt::format("{}: {} {}", source_, key, problem));
  }

  YAML::Node at(const std::string& key) {
    known_.insert(key);
    const YAML::Node node = root_[key];
    return node.IsDefined() && !node.IsNull() ? node : YAML::Node(YAML::NodeType::Undefined);
  }

  template <class Value>
  Value take(const std::string& key, Value missing) {
    const YAML::Node node = at(key);
    if (!node.IsDefined()) return missing;
    return value<Value>(key, node);
  }
  template <class Value>
  Value value(const std::string& key, const YAML::Node& node) const {
    Value result{};
    if (!node.IsScalar() || !YAML::convert<Value>::decode(node, result)) fail(key, "has a value of another kind");
    if constexpr (std::is_same_v<Value, double>) {
      if (!std::isfinite(result)) fail(key, "is not finite");
    }
    return result;
  }
  std::string text(const std::string& key, const std::string& missing) { return take<std::string>(key, missing); }

  void require(const FixedKey& fixed) {
    const YAML::Node node = at(fixed.key);
    const std::string given = node.IsDefined() ? (node.IsScalar() ? node.Scalar() : "a list") : fixed.missing;
    const YAML::Node wanted(fixed.value);
    double a = 0, b = 0;
    const bool same = given == fixed.value || (node.IsDefined() && YAML::convert<double>::decode(node, a) &&
                                               YAML::convert<double>::decode(wanted, b) && a == b);
    bool flag = false, expected = false;
    const bool same_flag = node.IsDefined() && node.IsScalar() && YAML::convert<bool>::decode(node, flag) &&
                           YAML::convert<bool>::decode(wanted, expected) && flag == expected;
    if (!same && !same_flag)
      fail(fixed.key, fmt::format("is {}; the models read here have {}", base::shortened(given, 100), fixed.value));
  }

  /// LitGPT has one class for all models; its norms have Gemma's offset if the name contains Gemma.
  Architecture architecture() {
    const std::string mlp = text("mlp_class_name", "GptNeoxMLP");
    const bool heads = take("norm_qk", false), posts = take("post_attention_norm", false);
    const bool gemma = text("name", "").find("Gemma") != std::string::npos;
    if (take("post_mlp_norm", false) != posts) fail("post_mlp_norm", "differs from post_attention_norm");
    if (take("scale_embeddings", false) != gemma || posts != gemma || (mlp == "GemmaMLP") != gemma)
      fail("name", fmt::format("{} Gemma, but mlp_class_name, post_attention_norm and scale_embeddings do not agree "
                               "(only Gemma 2 and 3 have them)",
                               gemma ? "says" : "does not say"));
    const std::string approximate = text("gelu_approximate", "none");
    if (gemma) {
      if (approximate != "tanh") fail("gelu_approximate", "is not tanh, as in Gemma 2 and 3");
      return heads ? Architecture::gemma3 : Architecture::gemma2;
    }
    if (mlp != "LLaMAMLP")
      fail("mlp_class_name", fmt::format("is {}; LLaMAMLP and GemmaMLP are read", base::shortened(mlp, 100)));
    const bool biases = take("attn_bias", false), window = at("sliding_window_size").IsDefined();
    if (heads && biases) fail("norm_qk", "and attn_bias are both set, which no supported model has");
    if (heads) return Architecture::qwen3;
    if (biases) return Architecture::qwen2;
    return window ? Architecture::mistral : Architecture::llama;
  }

  void read_sizes(ModelConfig& c) {
    c.num_hidden_layers = take<int64_t>("n_layer", 16);
    c.hidden_size = take<int64_t>("n_embd", 4096);
    c.num_attention_heads = take<int64_t>("n_head", 32);
    c.num_key_value_heads = take("n_query_groups", c.num_attention_heads);
    if (c.num_attention_heads < 1) fail("n_head", "is not at least 1");
    c.head_dim = take("head_size", c.hidden_size / c.num_attention_heads);
    c.max_position_embeddings = take<int64_t>("block_size", 4096);
    c.intermediate_size = take("intermediate_size", c.hidden_size <= (int64_t{1} << 32) ? 4 * c.hidden_size : -1);
    const auto vocabulary = take<int64_t>("vocab_size", 50254), multiple = take<int64_t>("padding_multiple", 512);
    if (vocabulary < 1 || vocabulary > (1 << 30) || multiple < 1 || multiple > (1 << 30))
      fail("vocab_size", "and padding_multiple have to lie between 1 and 2^30");
    c.vocab_size = take("padded_vocab_size", (vocabulary + multiple - 1) / multiple * multiple);
    if (c.num_hidden_layers < 1 || c.num_hidden_layers > 100000) fail("n_layer", "is not between 1 and 100000");
  }

  bool is_gemma(const ModelConfig& c) const { return c.norm_offset != 0; }

  void read_attention(ModelConfig& c) {
    c.attention_bias = take("attn_bias", false);
    if (is_gemma(c) && c.attention_bias) fail("attn_bias", "is true, which Gemma does not have");
    const double scalar = take("attention_scores_scalar", static_cast<double>(c.head_dim));
    if (scalar <= 0) fail("attention_scores_scalar", "is not above 0");
    c.attention_scale = scalar == static_cast<double>(c.head_dim) ? 0 : 1 / std::sqrt(scalar);
    if (c.attention_scale != 0 && !is_gemma(c))
      fail("attention_scores_scalar", "is not head_size, as outside of Gemma");
    c.attention_softcap = take("attention_logit_softcapping", 0.0);
    c.logit_softcap = take("final_logit_softcapping", 0.0);
    if (!is_gemma(c) && (c.attention_softcap != 0 || c.logit_softcap != 0))
      fail("attention_logit_softcapping", "or final_logit_softcapping is set, which only Gemma has");
    if (c.attention_softcap < 0 || c.logit_softcap < 0) fail("final_logit_softcapping", "is negative");
    c.sliding_window = take<int64_t>("sliding_window_size", 0);
    c.windowed = flags("sliding_window_indices", c.num_hidden_layers);
    if (c.sliding_window == 0) c.windowed.clear();
    if (c.architecture != Architecture::mistral || c.windowed.empty()) return;
    if (c.windowed != std::vector<bool>(c.windowed.size(), true))
      fail("sliding_window_indices", "leaves out blocks, which Mistral does not");
    c.windowed.clear();
  }

  /// One 0 or 1 for each block; all 1 if absent.
  std::vector<bool> flags(const std::string& key, int64_t blocks) {
    const YAML::Node node = at(key);
    std::vector<bool> result(blocks, true);
    if (!node.IsDefined()) return result;
    if (!node.IsSequence() || node.size() < result.size()) fail(key, "is not a list with one entry a block");
    for (size_t i = 0; i < result.size(); ++i) {
      const auto flag = value<int64_t>(key, node[i]);
      if (flag != 0 && flag != 1) fail(key, "holds other numbers than 0 and 1");
      result[i] = flag == 1;
    }
    return result;
  }

  void read_rope(ModelConfig& c) {
    c.rope_theta = take("rope_base", 10000.0);
    c.rope_local_theta = take("rope_local_base_freq", 0.0);
    const std::vector<bool> local = flags("rope_indices", c.num_hidden_layers);
    if (c.rope_local_theta != 0 && c.architecture != Architecture::gemma3)
      fail("rope_local_base_freq", "is set, which only Gemma 3 has");
    if (c.rope_local_theta != 0 && local != c.windowed) fail("rope_indices", "differ from sliding_window_indices");
    c.rope_scaling = {};
    const double condense = take("rope_condense_ratio", 1.0);
    const YAML::Node adjust = at("rope_adjustments");
    if (condense != 1) {
      if (adjust.IsDefined()) fail("rope_condense_ratio", "and rope_adjustments are both set");
      if (c.rope_local_theta != 0) fail("rope_condense_ratio", "is set; use rope_adjustments with Gemma 3");
      c.rope_scaling = {.type = RopeScaling::Type::linear, .factor = condense};
    }
    if (adjust.IsDefined()) read_adjustments(adjust, c.rope_scaling);
    if (c.rope_scaling.factor < 1) fail("rope_adjustments", "has a factor below 1");
  }

  void read_adjustments(const YAML::Node& adjust, RopeScaling& scaling) {
    if (!adjust.IsMap()) fail("rope_adjustments", "is no map");
    const auto number = [&](const char* key) {
      if (!adjust[key].IsDefined()) fail(fmt::format("rope_adjustments.{}", key), "is missing");
      return value<double>(fmt::format("rope_adjustments.{}", key), adjust[key]);
    };
    const bool llama3 = adjust.size() > 1;
    for (const auto& item : adjust) {
      const auto key = item.first.as<std::string>();
      if (key == "factor" || key == "low_freq_factor" || key == "high_freq_factor" || key == "original_max_seq_len")
        continue;
      fail(fmt::format("rope_adjustments.{}", key), "is not read here (yarn's numbers mean something else in LitGPT)");
    }
    scaling.type = llama3 ? RopeScaling::Type::llama3 : RopeScaling::Type::linear;
    scaling.factor = number("factor");
    if (!llama3) return;
    scaling.low_freq_factor = number("low_freq_factor");
    scaling.high_freq_factor = number("high_freq_factor");
    scaling.original_max_position_embeddings = number("original_max_seq_len");
  }

  YAML::Node root_;
  const std::string& source_;
  std::set<std::string> known_;
};

[[noreturn]] void cannot(const std::string& what) {
  throw UsageError(fmt::format("LitGPT's model_config.yaml cannot express {}; convert to another format", what));
}

/// Whole numbers without a decimal point, as LitGPT declares most of its keys.
std::string number_text(double value) {
  return value == std::floor(value) && std::abs(value) < 1e15 ? fmt::format("{}", static_cast<int64_t>(value))
                                                              : fmt::format("{}", value);
}

void check_expressible(const ModelConfig& c) {
  using A = Architecture;
  constexpr A kThese[] = {A::llama, A::mistral, A::qwen2, A::qwen3, A::gemma2, A::gemma3};
  if (std::ranges::find(kThese, c.architecture) == std::end(kThese))
    cannot(fmt::format("models of type {} (here)", model::model_type(c.architecture)));
  if (c.is_classifier()) cannot("a classification head");
  if (c.attention_out_bias || c.mlp_bias) cannot("attention_bias or mlp_bias beyond q, k and v");
  using Type = RopeScaling::Type;
  for (const auto& [type, word] :
       {std::pair(Type::yarn, "yarn"), std::pair(Type::dynamic, "dynamic"), std::pair(Type::longrope, "longrope")})
    if (c.rope_scaling.type == type) cannot(fmt::format("the {} scaling of rotary positions", word));
  if (c.rope_local_theta != 0 && c.sliding_window == 0) cannot("two rotary bases without a sliding window");
}

}  // namespace

ModelConfig parse_litgpt_config(const std::string& yaml, const std::string& source) try {
  if (yaml.size() > kMaxLitConfigBytes)
    throw UsageError(
        fmt::format("{} has {} bytes; a model_config.yaml has at most {}", source, yaml.size(), kMaxLitConfigBytes));
  const YAML::Node root = YAML::Load(yaml);
  if (!root.IsMap()) throw UsageError(fmt::format("{} is not a model_config.yaml: it holds no keys", source));
  return ConfigReader(root, source).read();
} catch (const YAML::Exception& error) {
  throw UsageError(fmt::format("{} is not a model_config.yaml: {}", source, base::yaml_reason(error.what())));
}

std::string to_litgpt_yaml(const ModelConfig& c) {
  check_expressible(c);
  const bool gemma = c.norm_offset != 0;
  // LitGPT recognises Gemma's norms by this name.
  const bool fits = !c.name.empty() && (c.name.find("Gemma") != std::string::npos) == gemma;
  const std::string name = fits ? c.name : gemma ? "Gemma" : model::model_type(c.architecture);
  std::string text =
      fmt::format("name: {}\nhf_config:\n  name: {}\n", YAML::Dump(YAML::Node(name)), YAML::Dump(YAML::Node(name)));
  const auto put = [&](std::string_view key, const std::string& value) { text += fmt::format("{}: {}\n", key, value); };
  const auto flag = [](bool value) { return value ? "true" : "false"; };
  put("block_size", std::to_string(c.max_position_embeddings));
  put("n_layer", std::to_string(c.num_hidden_layers));
  put("n_embd", std::to_string(c.hidden_size));
  put("vocab_size", std::to_string(c.vocab_size));
  put("padding_multiple", "1");
  put("padded_vocab_size", std::to_string(c.vocab_size));
  for (const FixedKey& fixed : kFixed) put(fixed.key, fixed.value);
  put("norm_eps", fmt::format("{:.12f}", c.norm_eps));
  put("norm_qk", flag(c.query_key_norm));
  put("post_attention_norm", flag(c.post_norms));
  put("post_mlp_norm", flag(c.post_norms));
  put("n_head", std::to_string(c.num_attention_heads));
  put("head_size", std::to_string(c.head_dim));
  put("n_query_groups", std::to_string(c.num_key_value_heads));
  put("attn_bias", flag(c.attention_bias));
  if (gemma) {
    const double scalar = c.attention_scale > 0 ? 1 / (c.attention_scale * c.attention_scale) : double(c.head_dim);
    const double whole = std::round(scalar);
    put("attention_scores_scalar", number_text(std::abs(scalar - whole) < 1e-9 * whole ? whole : scalar));
  }
  if (c.attention_softcap > 0) put("attention_logit_softcapping", fmt::format("{}", c.attention_softcap));
  if (c.logit_softcap > 0) put("final_logit_softcapping", fmt::format("{}", c.logit_softcap));
  std::vector<int> windows;
  for (int64_t i = 0; i < c.num_hidden_layers; ++i) windows.push_back(c.window(i) > 0 ? 1 : 0);
  if (c.sliding_window > 0) {
    put("sliding_window_size", std::to_string(c.sliding_window));
    put("sliding_window_indices", fmt::format("[{}]", fmt::join(windows, ", ")));
  }
  put("rope_base", number_text(c.rope_theta));
  if (c.rope_local_theta > 0) {
    put("rope_local_base_freq", fmt::format("{:.1f}", c.rope_local_theta));
    put("rope_indices", fmt::format("[{}]", fmt::join(windows, ", ")));
  }
  const RopeScaling& rope = c.rope_scaling;
  if (rope.type != RopeScaling::Type::none) {
    put("rope_adjustments", fmt::format("\n  factor: {:.6f}", rope.factor));
    if (rope.type == RopeScaling::Type::llama3)
      text += fmt::format("  low_freq_factor: {:.6f}\n  high_freq_factor: {:.6f}\n  original_max_seq_len: {}\n",
                          rope.low_freq_factor, rope.high_freq_factor,
                          static_cast<int64_t>(rope.original_max_position_embeddings));
  }
  put("intermediate_size", std::to_string(c.intermediate_size));
  put("mlp_class_name", gemma ? "GemmaMLP" : "LLaMAMLP");
  put("gelu_approximate", gemma ? "tanh" : "none");
  put("scale_embeddings", flag(c.scaled_embedding));
  return text;
}

}  // namespace trireme::formats
