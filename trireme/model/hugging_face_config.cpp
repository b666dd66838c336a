// Reads a config.json. Unknown keys are refused: they may change the mathematics.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/model/hugging_face_keys.h"
#include "trireme/model/hugging_face_reader.h"

namespace trireme::model {
namespace {

using nlohmann::json;

// Keys that change nothing about the mathematics of training (there is no dropout), or concern no text model.
// clang-format off
const std::set<std::string> kHarmless = {
    "architectures", "model_type", "torch_dtype", "dtype", "transformers_version", "use_cache", "bos_token_id",
    "eos_token_id", "pad_token_id", "pretraining_tp", "attention_dropout", "_name_or_path", "task_specific_params",
    "return_dict", "output_hidden_states", "output_attentions", "id2label", "label2id", "problem_type",
    "chunk_size_feed_forward", "tokenizer_class", "cache_implementation", "is_llama_config", "transformers.js_config",
    "unsloth_fixed", "unsloth_version", "n_ctx", "resid_pdrop", "embd_pdrop", "attn_pdrop", "summary_type",
    "summary_use_proj", "summary_activation", "summary_proj_to_labels", "summary_first_dropout",
    "reorder_and_upcast_attn", "max_window_layers", "_sliding_window_pattern", "sliding_window_pattern",
    "_attn_implementation_autoset", "attn_implementation", "_attn_implementation",
};
// clang-format on

ModelConfig read_gpt2(KeyReader& keys, ModelConfig c) {
  for (const auto& [key, field] : kGpt2Sizes)
    if (field != &ModelConfig::intermediate_size) c.*field = keys.take(key, c.*field);
  c.intermediate_size = keys.take("n_inner", 4 * c.hidden_size, 4 * c.hidden_size);
  c.num_key_value_heads = c.num_attention_heads;
  c.head_dim = c.num_attention_heads > 0 ? c.hidden_size / c.num_attention_heads : 0;
  c.norm_eps = keys.take("layer_norm_epsilon", c.norm_eps);
  if (keys.take<std::string>("activation_function", "gelu_new") != "gelu_pytorch_tanh")
    keys.require("activation_function", "gelu_new");
  keys.require("scale_attn_weights", true);
  keys.require("scale_attn_by_inverse_layer_idx", false);
  keys.require("add_cross_attention", false);
  keys.require("is_encoder_decoder", false);
  return c;
}

// If the file leaves a key out, or says null, its value follows from other keys or is the class's default. Which keys
// accept null depends on the class.
void read_heads(KeyReader& keys, ModelConfig& c) {
  using A = Architecture;
  const A a = c.architecture;
  const int64_t heads = c.num_attention_heads, shared = heads > 0 ? c.hidden_size / heads : 0;
  const bool kv_may_be_null = a == A::llama || a == A::qwen2 || a == A::qwen3 || a == A::free_transformer;
  const int64_t kv = a == A::llama || a == A::free_transformer ? heads : c.num_key_value_heads;
  c.num_key_value_heads =
      kv_may_be_null ? keys.take("num_key_value_heads", kv, heads) : keys.take("num_key_value_heads", kv);
  const bool own = a == A::qwen3 || a == A::gemma2 || a == A::gemma3;
  const int64_t head_dim = own ? c.head_dim : shared;
  const bool dim_may_be_null = a == A::llama || a == A::mistral || a == A::free_transformer;
  c.head_dim = dim_may_be_null ? keys.take("head_dim", head_dim, shared) : keys.take("head_dim", head_dim);
}

// null: no softcap; left out: the class's default.
double read_cap(KeyReader& keys, const char* key, double fallback) {
  const double cap = keys.take(key, fallback, 0.0);
  if (keys.has(key) && !(cap > 0)) keys.refuse(key, "above 0, or null for none");
  return cap;
}

void read_gemma(KeyReader& keys, ModelConfig& c) {
  keys.require("hidden_activation", "gelu_pytorch_tanh");
  keys.know("hidden_act");  // older files have both; hidden_activation counts
  keys.require_or_null("use_bidirectional_attention", false);
  const double scalar = keys.take_positive("query_pre_attn_scalar", 256.0);
  c.attention_scale = scalar == double(c.head_dim) ? 0 : 1 / std::sqrt(scalar);
  // Gemma 3's configuration has a cap for attention scores too, but its attention ignores it.
  if (c.architecture == Architecture::gemma3)
    keys.know("attn_logit_softcapping");
  else
    c.attention_softcap = read_cap(keys, "attn_logit_softcapping", c.attention_softcap);
  c.logit_softcap = read_cap(keys, "final_logit_softcapping", c.logit_softcap);
}

int64_t read_window(KeyReader& keys, const ModelConfig& c) {
  using A = Architecture;
  const bool is_qwen = c.architecture == A::qwen2 || c.architecture == A::qwen3;
  keys.know("sliding_window");
  if (is_qwen && !keys.take("use_sliding_window", false)) return 0;
  const int64_t fallback = is_qwen ? 4096 : c.sliding_window;
  const bool may_be_null = is_qwen || c.architecture == A::mistral;
  const int64_t window =
      may_be_null ? keys.take("sliding_window", fallback, int64_t{0}) : keys.take("sliding_window", fallback);
  if (keys.has("sliding_window") && window < 1)
    keys.refuse("sliding_window", may_be_null ? "at least 1, or null for none" : "at least 1");
  return window;
}

// Which blocks have the window: as listed, or by a rule of the architecture.
std::vector<bool> read_windowed(KeyReader& keys, const ModelConfig& c) {
  using A = Architecture;
  std::vector<bool> windowed;
  keys.know("layer_types");
  if (keys.has("layer_types")) {
    const json& types = keys.at("layer_types");
    if (!types.is_array() || static_cast<int64_t>(types.size()) != c.num_hidden_layers)
      throw UsageError(
          fmt::format("{}: layer_types must be a list of {} entries, one for each block (num_hidden_layers)",
                      keys.source(), c.num_hidden_layers));
    for (const json& type : types) {
      if (type != "sliding_attention" && type != "full_attention")
        throw UsageError(fmt::format("{}: layer_types has {}; sliding_attention and full_attention are known",
                                     keys.source(), type.dump()));
      windowed.push_back(type == "sliding_attention");
    }
    if (c.sliding_window == 0 && std::find(windowed.begin(), windowed.end(), true) != windowed.end())
      throw UsageError(fmt::format(
          "{}: layer_types names sliding_attention, but there is no sliding_window (or use_sliding_window is false)",
          keys.source()));
    return windowed;
  }
  const int64_t blocks = std::min<int64_t>(c.num_hidden_layers, 1 << 20);
  if (c.architecture == A::gemma2 || c.architecture == A::gemma3) {
    const int64_t pattern = c.architecture == A::gemma2 ? 2 : keys.take("sliding_window_pattern", int64_t{6});
    if (pattern < 1) keys.refuse("sliding_window_pattern", "at least 1");
    for (int64_t i = 0; i < blocks; ++i) windowed.push_back((i + 1) % pattern != 0);
  } else if (c.sliding_window > 0) {
    const int64_t first = keys.take("max_window_layers", int64_t{28});
    for (int64_t i = 0; i < blocks; ++i) windowed.push_back(i >= first);
  }
  return windowed;
}

void read_windows(KeyReader& keys, ModelConfig& c) {
  if (c.architecture == Architecture::llama || c.architecture == Architecture::free_transformer) return;
  c.sliding_window = read_window(keys, c);
  if (c.architecture == Architecture::mistral) return keys.require_or_null("layer_types", nullptr);
  c.windowed = read_windowed(keys, c);
  if (c.sliding_window == 0) c.windowed.clear();
}

ModelConfig read_llama_like(KeyReader& keys, ModelConfig c) {
  using A = Architecture;
  const A a = c.architecture;
  for (const auto& [key, field] : kSizes)
    if (field != &ModelConfig::num_key_value_heads && field != &ModelConfig::head_dim)
      c.*field = keys.take(key, c.*field);
  read_heads(keys, c);
  c.norm_eps = keys.take("rms_norm_eps", c.norm_eps);
  const bool is_gemma = a == A::gemma2 || a == A::gemma3;
  is_gemma ? read_gemma(keys, c) : keys.require("hidden_act", "silu");
  if (a == A::llama || a == A::qwen3 || is_gemma)
    c.attention_bias = c.attention_out_bias = keys.take("attention_bias", false);
  else
    keys.require_or_null("attention_bias", a == A::qwen2);
  if (a == A::llama)
    c.mlp_bias = keys.take("mlp_bias", false);
  else
    keys.require_or_null("mlp_bias", false);
  keys.require_or_null("rope_interleaved", false);
  read_windows(keys, c);
  read_rope(keys, c);
  return c;
}

// Keys as udapy/free-transformer names them; kappa in nats, as there and in the paper.
void read_free(KeyReader& keys, ModelConfig& c) {
  c.free.latent_bits = keys.take("latent_dim", c.free.latent_bits);
  c.free.split_layer = keys.take("split_layer", c.num_hidden_layers / 2, c.num_hidden_layers / 2);
  const std::string way = keys.take<std::string>("injection", "table");
  if (way != "table" && way != "bits") keys.refuse("injection", "\"table\" or \"bits\"");
  c.free.injection = way == "bits" ? Injection::bits : Injection::table;
  c.free.free_bits = keys.take("kappa_free_bits", c.free.free_nats()) / std::log(2.0);
  c.free.kl_weight = keys.take("beta_kl", c.free.kl_weight);
}

ModelConfig read_config(const json& file, const std::string& source) {
  KeyReader keys(file, source, kHarmless);
  const std::string type = keys.has("model_type") ? keys.take<std::string>("model_type", "") : "";
  ModelConfig c = default_config(find_architecture(type, source));
  c = c.architecture == Architecture::gpt2 ? read_gpt2(keys, c) : read_llama_like(keys, c);
  if (c.architecture == Architecture::free_transformer) read_free(keys, c);
  c.tie_word_embeddings = keys.take("tie_word_embeddings", c.tie_word_embeddings);
  c.initializer_range = keys.take("initializer_range", c.initializer_range);
  keys.refuse_unknown();
  c.validate();
  return c;
}

// Gemma 3 with a vision tower: only the text half is read. The outer config decides whether its head is tied; its
// logits have no softcap.
json text_half(const json& whole, const std::string& source) {
  json text = whole.at("text_config").is_object() ? whole.at("text_config") : json::object();
  KeyReader(text, source + ": text_config", {}).take("tie_word_embeddings", true);
  text["model_type"] = "gemma3_text";
  text["final_logit_softcapping"] = nullptr;
  const auto tied = whole.find("tie_word_embeddings");
  text["tie_word_embeddings"] = tied == whole.end() ? json(true) : tied->is_null() ? json(false) : *tied;
  return text;
}

}  // namespace

ModelConfig parse_hugging_face_config(const std::string& text, const std::string& source) try {
  const json j = base::parse_json(text);
  if (!j.is_object()) throw UsageError(fmt::format("{} is not a usable config.json: it holds no object", source));
  const auto type = j.find("model_type");
  const bool is_part = type != j.end() && *type == "gemma3" && j.contains("text_config");
  ModelConfig c = read_config(is_part ? text_half(j, source) : j, source);
  c.is_text_half = is_part;
  if (!is_part) c.source_json = text;
  return c;
} catch (const json::exception& e) {
  throw UsageError(fmt::format("{} is not a usable config.json: {}", source, e.what()));
}

}  // namespace trireme::model
