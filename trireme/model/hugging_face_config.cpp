// Reads a config.json. A key that is not known is refused: it may change the mathematics.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/model/hugging_face_keys.h"

namespace trireme::model {
namespace {

using nlohmann::json;

// Keys that say nothing about the mathematics of training (there is no dropout), or about a text model at all.
const std::set<std::string> kHarmless = {"architectures",
                                         "model_type",
                                         "torch_dtype",
                                         "dtype",
                                         "transformers_version",
                                         "use_cache",
                                         "bos_token_id",
                                         "eos_token_id",
                                         "pad_token_id",
                                         "pretraining_tp",
                                         "attention_dropout",
                                         "_name_or_path",
                                         "task_specific_params",
                                         "return_dict",
                                         "output_hidden_states",
                                         "output_attentions",
                                         "id2label",
                                         "label2id",
                                         "problem_type",
                                         "chunk_size_feed_forward",
                                         "tokenizer_class",
                                         "cache_implementation",
                                         "is_llama_config",
                                         "transformers.js_config",
                                         "unsloth_fixed",
                                         "unsloth_version",
                                         "n_ctx",
                                         "resid_pdrop",
                                         "embd_pdrop",
                                         "attn_pdrop",
                                         "summary_type",
                                         "summary_use_proj",
                                         "summary_activation",
                                         "summary_proj_to_labels",
                                         "summary_first_dropout",
                                         "reorder_and_upcast_attn",
                                         "max_window_layers",
                                         "_sliding_window_pattern",
                                         "sliding_window_pattern",
                                         "_attn_implementation_autoset",
                                         "attn_implementation",
                                         "_attn_implementation"};

bool has(const json& j, const char* key) { return j.contains(key) && !j[key].is_null(); }

template <typename T>
T value_or(const json& j, const char* key, T fallback) {
  return has(j, key) ? j[key].get<T>() : fallback;
}

/// Reads one file; remembers which keys it knew.
class Reader {
 public:
  Reader(const json& file, const std::string& source) : j_(file), source_(source), known_(kHarmless) {}

  ModelConfig read() {
    ModelConfig c = default_config(find_architecture(value_or<std::string>(j_, "model_type", ""), source_));
    c.architecture == Architecture::gpt2 ? read_gpt2(c) : read_llama_like(c);
    c.tie_word_embeddings = take("tie_word_embeddings", c.tie_word_embeddings);
    c.initializer_range = take("initializer_range", c.initializer_range);
    for (const auto& [key, value] : j_.items())
      if (!known_.count(key) && !value.is_null())
        throw UsageError(
            fmt::format("{}: the key {} is not known; it may change the mathematics, so it is refused", source_, key));
    c.validate();
    return c;
  }

 private:
  template <typename T>
  T take(const char* key, T fallback) {
    known_.insert(key);
    return value_or<T>(j_, key, fallback);
  }

  void require(const char* key, const json& only) {
    known_.insert(key);
    if (has(j_, key) && j_[key] != only)
      throw UsageError(fmt::format("{}: {} = {} is not supported; this model computes {} = {}", source_, key,
                                   j_[key].dump(), key, only.dump()));
  }

  void read_gpt2(ModelConfig& c) {
    for (const auto& [key, field] : kGpt2Sizes) c.*field = take(key, c.*field);
    if (!has(j_, "n_inner")) c.intermediate_size = 4 * c.hidden_size;
    c.num_key_value_heads = c.num_attention_heads;
    c.head_dim = c.num_attention_heads > 0 ? c.hidden_size / c.num_attention_heads : 0;
    c.norm_eps = take("layer_norm_epsilon", c.norm_eps);
    known_.insert("activation_function");
    const auto activation = value_or<std::string>(j_, "activation_function", "gelu_new");
    if (activation != "gelu_pytorch_tanh") require("activation_function", "gelu_new");
    require("scale_attn_weights", true);
    require("scale_attn_by_inverse_layer_idx", false);
    require("add_cross_attention", false);
    require("is_encoder_decoder", false);
  }

  void read_llama_like(ModelConfig& c) {
    for (const auto& [key, field] : kSizes) c.*field = take(key, c.*field);
    using A = Architecture;
    const A a = c.architecture;
    // Where the file is silent these follow from others, or the class has a number of its own.
    if (!has(j_, "num_key_value_heads") && (a == A::llama || j_.contains("num_key_value_heads")))
      c.num_key_value_heads = c.num_attention_heads;
    const bool own_head_dim = a == A::qwen3 || a == A::gemma2 || a == A::gemma3;
    if (!has(j_, "head_dim") && !own_head_dim && c.num_attention_heads > 0)
      c.head_dim = c.hidden_size / c.num_attention_heads;
    c.norm_eps = take("rms_norm_eps", c.norm_eps);
    const bool is_gemma = a == A::gemma2 || a == A::gemma3;
    if (is_gemma) {
      require("hidden_activation", "gelu_pytorch_tanh");
      known_.insert("hidden_act");  // older files carry it beside hidden_activation, which counts
      require("use_bidirectional_attention", false);
      const double scalar = take("query_pre_attn_scalar", 256.0);
      c.attention_scale = scalar == double(c.head_dim) ? 0 : 1 / std::sqrt(scalar);
      c.attention_softcap = take_cap("attn_logit_softcapping", c.attention_softcap);
      c.logit_softcap = take_cap("final_logit_softcapping", c.logit_softcap);
    } else {
      require("hidden_act", "silu");
    }
    if (a == A::llama || a == A::qwen3 || is_gemma)
      c.attention_bias = c.attention_out_bias = take("attention_bias", false);
    if (a == A::llama) c.mlp_bias = take("mlp_bias", false);
    if (a == A::mistral || a == A::qwen2) require("attention_bias", a == A::qwen2);
    if (a != A::llama) require("mlp_bias", false);
    require("rope_interleaved", false);
    read_windows(c);
    read_rope(c);
  }

  // A softcap of null is none; one that the file leaves out is the class's.
  double take_cap(const char* key, double fallback) {
    known_.insert(key);
    if (!j_.contains(key)) return fallback;
    return value_or(j_, key, 0.0);
  }

  void read_windows(ModelConfig& c) {
    using A = Architecture;
    const A a = c.architecture;
    if (a == A::llama) return;
    known_.insert("sliding_window");
    known_.insert("layer_types");
    if (a == A::qwen2 || a == A::qwen3) {
      const bool uses = take("use_sliding_window", false);
      c.sliding_window = uses ? (j_.contains("sliding_window") ? value_or<int64_t>(j_, "sliding_window", 0) : 4096) : 0;
    } else if (j_.contains("sliding_window")) {
      c.sliding_window = value_or<int64_t>(j_, "sliding_window", 0);
    }
    if (a == A::mistral) {
      require("layer_types", nullptr);
      return;
    }
    c.windowed.clear();
    if (has(j_, "layer_types")) {
      for (const json& type : j_["layer_types"]) {
        const std::string word = type.get<std::string>();
        if (word != "sliding_attention" && word != "full_attention")
          throw UsageError(
              fmt::format("{}: layer_types has '{}'; sliding_attention and full_attention are known", source_, word));
        c.windowed.push_back(word == "sliding_attention");
      }
      if (c.sliding_window == 0 && std::find(c.windowed.begin(), c.windowed.end(), true) != c.windowed.end())
        throw UsageError(fmt::format(
            "{}: layer_types names sliding_attention, but there is no sliding_window (or use_sliding_window is false)",
            source_));
    } else if (a == A::gemma2 || a == A::gemma3) {
      const int64_t pattern = a == A::gemma2 ? 2
                                             : value_or<int64_t>(j_, "sliding_window_pattern",
                                                                 value_or<int64_t>(j_, "_sliding_window_pattern", 6));
      if (pattern < 1)
        throw UsageError(fmt::format("{}: sliding_window_pattern is {}; it must be at least 1", source_, pattern));
      for (int64_t i = 0; i < std::min<int64_t>(c.num_hidden_layers, 1 << 20); ++i)
        c.windowed.push_back((i + 1) % pattern != 0);
    } else if (c.sliding_window > 0) {
      const int64_t first = value_or<int64_t>(j_, "max_window_layers", 28);
      for (int64_t i = 0; i < std::min<int64_t>(c.num_hidden_layers, 1 << 20); ++i) c.windowed.push_back(i >= first);
    }
    if (c.sliding_window == 0) c.windowed.clear();
  }

  void read_rope(ModelConfig& c) {
    c.rope_theta = take("rope_theta", c.rope_theta);
    for (const char* key : {"rope_scaling", "rope_parameters", "rope_local_base_freq"}) known_.insert(key);
    const bool local = c.architecture == Architecture::gemma3;
    if (local) c.rope_local_theta = value_or(j_, "rope_local_base_freq", c.rope_local_theta);
    for (const char* key : {"rope_scaling", "rope_parameters"}) {
      if (!has(j_, key)) continue;
      const json& rope = j_[key];
      if (local && (rope.contains("full_attention") || rope.contains("sliding_attention"))) {
        if (has(rope, "full_attention")) read_rope_entry(rope["full_attention"], c.rope_theta, c.rope_scaling, c);
        if (!has(rope, "sliding_attention")) continue;
        RopeScaling none;
        read_rope_entry(rope["sliding_attention"], c.rope_local_theta, none, c);
        if (none.type != RopeScaling::Type::none)
          throw UsageError(fmt::format("{}: {}.sliding_attention has a rope_type; blocks with a window are not scaled",
                                       source_, key));
      } else {
        read_rope_entry(rope, c.rope_theta, c.rope_scaling, c);
      }
    }
    if (local && c.sliding_window == 0) c.rope_local_theta = 0;
  }

  void read_rope_entry(const json& j, double& theta, RopeScaling& s, const ModelConfig& c) {
    theta = value_or(j, "rope_theta", theta);
    const std::string type = value_or<std::string>(j, "rope_type", value_or<std::string>(j, "type", "default"));
    s = {};
    s.type = rope_type(type);
    static const std::set<std::string> known = {"rope_type",
                                                "type",
                                                "rope_theta",
                                                "factor",
                                                "low_freq_factor",
                                                "high_freq_factor",
                                                "beta_fast",
                                                "beta_slow",
                                                "original_max_position_embeddings",
                                                "attention_factor",
                                                "partial_rotary_factor",
                                                "mscale",
                                                "mscale_all_dim",
                                                "truncate"};
    for (const auto& [key, value] : j.items())
      if (!known.count(key) && !value.is_null())
        throw UsageError(fmt::format("{}: the rotary setting {} is not known, so it is refused", source_, key));
    if (value_or(j, "partial_rotary_factor", 1.0) != 1.0)
      throw UsageError(fmt::format("{}: partial_rotary_factor = {} is not supported; whole heads are rotated", source_,
                                   j["partial_rotary_factor"].dump()));
    if (s.type == RopeScaling::Type::none) return;
    const bool by_wave = s.type == RopeScaling::Type::llama3;
    for (const char* key : {"factor", "low_freq_factor", "high_freq_factor"})
      if (!has(j, key) && (by_wave || std::string(key) == "factor"))
        throw UsageError(fmt::format("{}: rope type {} needs a {}, and there is none", source_, type, key));
    s.factor = value_or(j, "factor", s.factor);
    s.low_freq_factor = value_or(j, "low_freq_factor", s.low_freq_factor);
    s.high_freq_factor = value_or(j, "high_freq_factor", s.high_freq_factor);
    s.beta_fast = value_or(j, "beta_fast", s.beta_fast);
    s.beta_slow = value_or(j, "beta_slow", s.beta_slow);
    s.mscale = value_or(j, "mscale", s.mscale);
    s.mscale_all_dim = value_or(j, "mscale_all_dim", s.mscale_all_dim);
    s.truncate = value_or(j, "truncate", s.truncate);
    if (has(j, "attention_factor")) s.attention_factor = j["attention_factor"].get<double>();
    if (s.type == RopeScaling::Type::linear) return;
    s.original_max_position_embeddings =
        value_or(j, "original_max_position_embeddings", double(c.max_position_embeddings));
  }

  RopeScaling::Type rope_type(const std::string& word) const {
    for (const RopeType& t : kRopeTypes)
      if (word == t.word) return t.type;
    throw UsageError(
        fmt::format("{}: rope type {} is not supported; default, linear, llama3 and yarn are", source_, word));
  }

  const json& j_;
  const std::string& source_;
  std::set<std::string> known_;
};

}  // namespace

ModelConfig parse_hugging_face_config(const std::string& text, const std::string& source) try {
  json j = base::parse_json(text);
  if (!j.is_object()) throw UsageError(fmt::format("{} is not a usable config.json: it holds no object", source));
  // Gemma 3 with a vision half: the text half is a model of its own.
  const bool is_part = value_or<std::string>(j, "model_type", "") == "gemma3" && j.contains("text_config");
  if (is_part) {
    j = json(j["text_config"]);
    j["model_type"] = "gemma3_text";
  }
  ModelConfig c = Reader(j, source).read();
  if (!is_part) c.source_json = text;
  return c;
} catch (const json::exception& e) {
  throw UsageError(fmt::format("{} is not a usable config.json: {}", source, e.what()));
}

}  // namespace trireme::model
