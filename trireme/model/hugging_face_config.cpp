// config.json: keys of each architecture as tables, read into a ModelConfig and written from one. A key that is not
// in a table is refused: it may change the mathematics.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "trireme/base/error.h"
#include "trireme/model/config.h"

namespace trireme::model {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

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

struct IntegerKey {
  const char* key;
  int64_t ModelConfig::* field;
};

constexpr IntegerKey kSizes[] = {{"vocab_size", &ModelConfig::vocab_size},
                                 {"hidden_size", &ModelConfig::hidden_size},
                                 {"intermediate_size", &ModelConfig::intermediate_size},
                                 {"num_hidden_layers", &ModelConfig::num_hidden_layers},
                                 {"num_attention_heads", &ModelConfig::num_attention_heads},
                                 {"num_key_value_heads", &ModelConfig::num_key_value_heads},
                                 {"head_dim", &ModelConfig::head_dim},
                                 {"max_position_embeddings", &ModelConfig::max_position_embeddings}};
constexpr IntegerKey kGpt2Sizes[] = {
    {"vocab_size", &ModelConfig::vocab_size},      {"n_embd", &ModelConfig::hidden_size},
    {"n_inner", &ModelConfig::intermediate_size},  {"n_layer", &ModelConfig::num_hidden_layers},
    {"n_head", &ModelConfig::num_attention_heads}, {"n_positions", &ModelConfig::max_position_embeddings}};

struct RopeType {
  const char* word;
  RopeScaling::Type type;
};
constexpr RopeType kRopeTypes[] = {{"default", RopeScaling::Type::none},
                                   {"linear", RopeScaling::Type::linear},
                                   {"llama3", RopeScaling::Type::llama3},
                                   {"yarn", RopeScaling::Type::yarn}};

const char* rope_type_name(RopeScaling::Type type) {
  for (const RopeType& t : kRopeTypes)
    if (type == t.type) return t.word;
  return "";
}

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
        throw UsageError(
            fmt::format("{}: layer_types names sliding_attention, but there is no sliding_window", source_));
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

const char* class_name(Architecture a) {
  switch (a) {
    case Architecture::llama:
      return "LlamaForCausalLM";
    case Architecture::mistral:
      return "MistralForCausalLM";
    case Architecture::qwen2:
      return "Qwen2ForCausalLM";
    case Architecture::qwen3:
      return "Qwen3ForCausalLM";
    case Architecture::gemma2:
      return "Gemma2ForCausalLM";
    case Architecture::gemma3:
      return "Gemma3ForCausalLM";
    case Architecture::gpt2:
      return "GPT2LMHeadModel";
  }
  return "";
}

ordered_json rope_json(const RopeScaling& s) {
  using Type = RopeScaling::Type;
  ordered_json j = {{"rope_type", rope_type_name(s.type)}, {"factor", s.factor}};
  if (s.type == Type::linear) return j;
  j["original_max_position_embeddings"] = static_cast<int64_t>(s.original_max_position_embeddings);
  if (s.type == Type::llama3) {
    j["low_freq_factor"] = s.low_freq_factor;
    j["high_freq_factor"] = s.high_freq_factor;
  } else {
    j["beta_fast"] = s.beta_fast;
    j["beta_slow"] = s.beta_slow;
    if (s.attention_factor) j["attention_factor"] = *s.attention_factor;
    if (s.mscale > 0) j["mscale"] = s.mscale;
    if (s.mscale_all_dim > 0) j["mscale_all_dim"] = s.mscale_all_dim;
    if (!s.truncate) j["truncate"] = false;
  }
  return j;
}

// All keys that say what this model computes.
ordered_json keys_of(const ModelConfig& c) {
  using A = Architecture;
  const A a = c.architecture;
  ordered_json j = {{"architectures", {class_name(a)}}, {"model_type", model_type(a)}};
  if (a == A::gpt2) {
    for (const auto& [key, field] : kGpt2Sizes) j[key] = c.*field;
    j["n_ctx"] = c.max_position_embeddings;
    j["layer_norm_epsilon"] = c.norm_eps;
    j["activation_function"] = "gelu_new";
    for (const char* key : {"resid_pdrop", "embd_pdrop", "attn_pdrop"}) j[key] = 0.0;
  } else {
    for (const auto& [key, field] : kSizes) j[key] = c.*field;
    j["rms_norm_eps"] = c.norm_eps;
    j["rope_theta"] = c.rope_theta;
    if (c.rope_scaling.type != RopeScaling::Type::none) j["rope_scaling"] = rope_json(c.rope_scaling);
    if (a == A::gemma3) j["rope_local_base_freq"] = c.rope_local_theta > 0 ? c.rope_local_theta : c.rope_theta;
    const bool is_gemma = a == A::gemma2 || a == A::gemma3;
    j[is_gemma ? "hidden_activation" : "hidden_act"] = is_gemma ? "gelu_pytorch_tanh" : "silu";
    if (is_gemma) {
      const double scalar = c.attention_scale > 0 ? 1 / (c.attention_scale * c.attention_scale) : double(c.head_dim);
      const double whole = std::round(scalar);
      if (std::abs(scalar - whole) < 1e-9 * whole)
        j["query_pre_attn_scalar"] = static_cast<int64_t>(whole);
      else
        j["query_pre_attn_scalar"] = scalar;
      const auto cap = [](double value) { return value > 0 ? ordered_json(value) : ordered_json(nullptr); };
      j["attn_logit_softcapping"] = cap(c.attention_softcap);
      j["final_logit_softcapping"] = cap(c.logit_softcap);
    }
    if (a == A::llama || a == A::qwen3 || is_gemma) j["attention_bias"] = c.attention_bias;
    if (a == A::llama) j["mlp_bias"] = c.mlp_bias;
    if (a != A::llama)
      j["sliding_window"] = c.sliding_window > 0 ? ordered_json(c.sliding_window) : ordered_json(nullptr);
    if (a == A::qwen2 || a == A::qwen3) j["use_sliding_window"] = c.sliding_window > 0;
    if (a != A::llama && a != A::mistral && !c.windowed.empty()) {
      j["layer_types"] = ordered_json::array();
      for (const bool w : c.windowed) j["layer_types"].push_back(w ? "sliding_attention" : "full_attention");
    }
  }
  j["tie_word_embeddings"] = c.tie_word_embeddings;
  j["initializer_range"] = c.initializer_range;
  return j;
}

}  // namespace

ModelConfig parse_hugging_face_config(const std::string& text, const std::string& source) try {
  const json j = json::parse(text);
  if (!j.is_object()) throw UsageError(fmt::format("{} is not a usable config.json: it holds no object", source));
  ModelConfig c = Reader(j, source).read();
  c.source_json = text;
  return c;
} catch (const json::exception& e) {
  throw UsageError(fmt::format("{} is not a usable config.json: {}", source, e.what()));
}

std::string ModelConfig::to_hugging_face_json(const std::string& dtype) const {
  if (source_json.empty()) {
    ordered_json j = keys_of(*this);
    j["torch_dtype"] = dtype;
    j["bos_token_id"] = nullptr;
    j["eos_token_id"] = nullptr;
    return j.dump(2) + "\n";
  }
  ordered_json j = ordered_json::parse(source_json);
  const bool unchanged = same_model(parse_hugging_face_config(source_json, "config.json"));
  const char* key = j.contains("torch_dtype") ? "torch_dtype" : "dtype";
  const std::string stated = j.contains(key) && j[key].is_string() ? j[key].get<std::string>() : "float32";
  if (unchanged && stated == dtype) return source_json;
  if (!unchanged) {
    for (const char* stale : {"rope_parameters", "rope_scaling", "rope_theta", "layer_types", "max_window_layers"})
      j.erase(stale);
    j.update(keys_of(*this));
  }
  j[key] = dtype;
  return j.dump(2) + "\n";
}

}  // namespace trireme::model
