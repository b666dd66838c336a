// Reads a config.json. Unknown keys are refused: they may change the mathematics.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>

#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/model/hugging_face_keys.h"
#include "trireme/model/hugging_face_reader.h"

namespace trireme::model {
namespace {

using nlohmann::json;

// Keys that change nothing about the mathematics of training, or concern no text model. Among them are keys of dropout:
// a family's own are read (dropout_keys_of), and those of another family mean nothing in transformers either.
// clang-format off
const std::set<std::string> kHarmless = {
    "architectures", "model_type", "torch_dtype", "dtype", "transformers_version", "use_cache", "bos_token_id",
    "eos_token_id", "pad_token_id", "pretraining_tp", "attention_dropout", "_name_or_path", "task_specific_params",
    "return_dict", "output_hidden_states", "output_attentions", "id2label", "label2id", "problem_type",
    "chunk_size_feed_forward", "tokenizer_class", "cache_implementation", "is_llama_config", "transformers.js_config",
    "unsloth_fixed", "unsloth_version", "n_ctx", "resid_pdrop", "embd_pdrop", "attn_pdrop", "summary_type",
    "summary_use_proj", "summary_activation", "summary_proj_to_labels", "summary_first_dropout",
    "reorder_and_upcast_attn", "max_window_layers", "_sliding_window_pattern", "sliding_window_pattern",
    "_attn_implementation_autoset", "attn_implementation", "_attn_implementation", "hidden_dropout",
    "residual_dropout", "embedding_dropout",
};

// These concern other uses of a model (code of its own, classes, an encoder's output, a tokenizer, generation). They are
// passed over with one line.
const std::set<std::string> kOtherUses = {
    "auto_map", "num_labels", "finetuning_task", "classifier_dropout", "tie_encoder_decoder", "torchscript",
    "tf_legacy_loss", "use_bfloat16", "cross_attention_hidden_size", "decoder_start_token_id", "sep_token_id", "prefix",
    "forced_bos_token_id", "forced_eos_token_id", "max_length", "min_length", "do_sample", "early_stopping",
    "num_beams", "num_beam_groups", "diversity_penalty", "temperature", "top_k", "top_p", "typical_p",
    "repetition_penalty", "length_penalty", "no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "bad_words_ids",
    "num_return_sequences", "output_scores", "return_dict_in_generate", "remove_invalid_values",
    "exponential_decay_length_penalty", "suppress_tokens", "begin_suppress_tokens",
};
// clang-format on

// Keys that published files of a family have and transformers does not read, and switches that only its own code knows.
void read_leftovers(KeyReader& keys, Architecture a) {
  if (a == Architecture::starcoder2) {
    for (const char* key : {"activation_function", "layer_norm_epsilon", "scale_attention_softmax_in_fp32",
                            "attention_softmax_in_fp32", "scale_attn_weights"})
      keys.know(key);
    keys.require_or_null("norm_type", "layer_norm");
    keys.require_or_null("mlp_type", "default");
  } else if (a == Architecture::phi3) {
    keys.require_or_null("lm_head_bias", false);
    keys.require_or_null("full_attn_mod", 1);
    keys.require_or_null("interpolate_factor", 1);
  }
}

// Off in every model that is read here; programs write them all the same.
void require_switches_off(KeyReader& keys) {
  for (const char* key : {"is_decoder", "is_encoder_decoder", "add_cross_attention"}) keys.require_or_null(key, false);
  keys.require_or_null("pruned_heads", json::object());
}

// Of bitsandbytes' folders with weights in 4 bits, and of those with GGUF's blocks that convert writes; all others are
// refused.
base::BlockFormat read_quantization(KeyReader& keys) {
  keys.know("quantization_config");
  if (!keys.has("quantization_config")) return base::BlockFormat::none;
  const json& q = keys.at("quantization_config");
  const auto value = [&](const char* key, auto fallback) {
    const auto found = q.is_object() ? q.find(key) : q.end();
    using T = decltype(fallback);
    const bool fits =
        q.is_object() && found != q.end() && (std::is_same_v<T, bool> ? found->is_boolean() : found->is_string());
    return fits ? found->template get<T>() : fallback;
  };
  const std::string method = value("quant_method", std::string("bitsandbytes"));
  const bool four_bits = value("load_in_4bit", false) || value("_load_in_4bit", false);
  if (method == "bitsandbytes" && four_bits)
    if (const auto format = base::find_block_format(method, value("bnb_4bit_quant_type", std::string("fp4")),
                                                    value("bnb_4bit_use_double_quant", false)))
      return *format;
  if (const auto format = base::find_block_format(method, value("quant_type", std::string()), false);
      format && method != "bitsandbytes")
    return *format;
  throw UsageError(fmt::format(
      "{}: quantization_config: its weights are quantised by {}; folders of bitsandbytes in 4 bits are read, and those "
      "in q8_0 or q4_0 that trireme convert has written; it writes 8-bit floats with scales as bfloat16, and of other "
      "formats take the model in all its bits",
      keys.source(), method == "bitsandbytes" ? "bitsandbytes in 8 bits" : method));
}

// Of a plain MLP.
Activation read_activation(KeyReader& keys, const char* key, const char* fallback) {
  const auto word = keys.take<std::string>(key, fallback);
  for (const ActivationWord& known : kActivations)
    if (word == known.word) return known.activation;
  keys.refuse(key, "gelu_new, gelu_pytorch_tanh, gelu or relu");
}

ModelConfig read_gpt2(KeyReader& keys, ModelConfig c) {
  for (const auto& [key, field] : kGpt2Sizes)
    if (field != &ModelConfig::intermediate_size) c.*field = keys.take(key, c.*field);
  c.intermediate_size = keys.take("n_inner", 4 * c.hidden_size, 4 * c.hidden_size);
  c.num_key_value_heads = c.num_attention_heads;
  c.head_dim = c.num_attention_heads > 0 ? c.hidden_size / c.num_attention_heads : 0;
  c.norm_eps = keys.take("layer_norm_epsilon", c.norm_eps);
  c.activation = read_activation(keys, "activation_function", "gelu_new");
  keys.require("scale_attn_weights", true);
  keys.require("scale_attn_by_inverse_layer_idx", false);
  return c;
}

// If the file leaves a key out, or says null, its value follows from other keys or is the class's default. Which keys
// accept null depends on the class.
void read_heads(KeyReader& keys, ModelConfig& c) {
  using A = Architecture;
  const A a = c.architecture;
  const int64_t heads = c.num_attention_heads, shared = heads > 0 ? c.hidden_size / heads : 0;
  const bool kv_is_shared =
      a == A::llama || a == A::free_transformer || a == A::granite || a == A::phi3 || a == A::olmo2;
  const bool kv_may_be_null = kv_is_shared || a == A::qwen2 || a == A::qwen3 || a == A::smollm3;
  const int64_t kv = kv_is_shared ? heads : c.num_key_value_heads;
  c.num_key_value_heads =
      kv_may_be_null ? keys.take("num_key_value_heads", kv, heads) : keys.take("num_key_value_heads", kv);
  const bool own = a == A::qwen3 || a == A::gemma2 || a == A::gemma3 || a == A::gemma;
  const int64_t head_dim = own ? c.head_dim : shared;
  const bool dim_may_be_null = a == A::llama || a == A::mistral || a == A::free_transformer || a == A::starcoder2;
  c.head_dim = dim_may_be_null ? keys.take("head_dim", head_dim, shared) : keys.take("head_dim", head_dim);
}

// null: no softcap; left out: the class's default.
double read_cap(KeyReader& keys, const char* key, double fallback) {
  const double cap = keys.take(key, fallback, 0.0);
  if (keys.has(key) && !(cap >= 1e-18)) keys.refuse(key, "above 0, or null for none");
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

// Gemma 1 has no other keys than Llama, but words for its activation.
void read_gemma1(KeyReader& keys) {
  keys.know("hidden_activation");  // in some files; hidden_act counts, and "gelu" means the same there
  if (keys.take<std::string>("hidden_act", "gelu_pytorch_tanh") != "gelu")
    keys.require("hidden_act", "gelu_pytorch_tanh");
  keys.require_or_null("use_bidirectional_attention", false);
}

// 1: the block has rotary positions, 0: it has none. The list may be longer than the model.
void read_unrotated(KeyReader& keys, ModelConfig& c) {
  const int64_t interval = keys.take("no_rope_layer_interval", int64_t{4});
  keys.know("no_rope_layers");
  const int64_t blocks = std::min<int64_t>(c.num_hidden_layers, 1 << 20);
  if (!keys.has("no_rope_layers")) {
    if (interval < 1) keys.refuse("no_rope_layer_interval", "at least 1");
    for (int64_t i = 0; i < blocks; ++i) c.unrotated.push_back((i + 1) % interval == 0);
    return;
  }
  const json& rotated = keys.at("no_rope_layers");
  if (!rotated.is_array() || static_cast<int64_t>(rotated.size()) < c.num_hidden_layers)
    throw UsageError(
        fmt::format("{}: no_rope_layers must be a list of at least {} entries, one for each block "
                    "(num_hidden_layers)",
                    keys.source(), c.num_hidden_layers));
  for (int64_t i = 0; i < blocks; ++i) {
    const json& entry = rotated[static_cast<size_t>(i)];
    if (entry != 0 && entry != 1) keys.refuse("no_rope_layers", "a list of ones and zeros");
    c.unrotated.push_back(entry == 0);
  }
}

int64_t read_window(KeyReader& keys, const ModelConfig& c) {
  using A = Architecture;
  const A a = c.architecture;
  const bool has_switch = a == A::qwen2 || a == A::qwen3 || a == A::smollm3;
  keys.know("sliding_window");
  if (has_switch && !keys.take("use_sliding_window", false)) return 0;
  const int64_t fallback = a == A::qwen2 || a == A::qwen3 ? 4096 : c.sliding_window;
  const bool may_be_null = has_switch || a == A::mistral || a == A::starcoder2 || a == A::phi3;
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
  } else if (c.architecture == A::smollm3) {
    if (c.sliding_window > 0) windowed = c.unrotated;
  } else if (c.sliding_window > 0) {
    const int64_t first = keys.take("max_window_layers", int64_t{28});
    for (int64_t i = 0; i < blocks; ++i) windowed.push_back(i >= first);
  }
  return windowed;
}

void read_windows(KeyReader& keys, ModelConfig& c) {
  using A = Architecture;
  const A a = c.architecture;
  if (a == A::llama || a == A::free_transformer || a == A::gemma || a == A::granite || a == A::olmo2) return;
  c.sliding_window = read_window(keys, c);
  if (a == A::mistral || a == A::starcoder2 || a == A::phi3) return keys.require_or_null("layer_types", nullptr);
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
  c.norm_eps = keys.take(norm_key(a), c.norm_eps);
  const bool is_newer_gemma = a == A::gemma2 || a == A::gemma3;
  if (is_newer_gemma)
    read_gemma(keys, c);
  else if (a == A::gemma)
    read_gemma1(keys);
  else if (a == A::starcoder2)
    c.activation = read_activation(keys, "hidden_act", "gelu_pytorch_tanh");
  else
    keys.has("hidden_act") && keys.at("hidden_act") == "swish" ? keys.know("hidden_act")  // the same by another name
                                                               : keys.require("hidden_act", "silu");
  if (a == A::granite)
    for (const auto& [key, field] : kMultipliers) c.*field = keys.take_positive(key, c.*field);
  if (a == A::smollm3) read_unrotated(keys, c);
  if (a == A::starcoder2)
    c.attention_bias = c.attention_out_bias = c.mlp_bias = keys.take("use_bias", true);
  else if (a == A::mistral || a == A::qwen2 || a == A::phi3 || a == A::free_transformer)
    keys.require_or_null("attention_bias", a == A::qwen2);
  else
    c.attention_bias = c.attention_out_bias = keys.take("attention_bias", false);
  if (a == A::llama || a == A::smollm3 || a == A::granite)
    c.mlp_bias = keys.take("mlp_bias", false);
  else
    keys.require_or_null("mlp_bias", c.mlp_bias);
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

ModelConfig read_gpt_neox(KeyReader& keys, ModelConfig c) {
  for (const auto& [key, field] : kSizes)
    if (field != &ModelConfig::num_key_value_heads && field != &ModelConfig::head_dim)
      c.*field = keys.take(key, c.*field);
  c.num_key_value_heads = c.num_attention_heads;
  c.head_dim = c.num_attention_heads > 0 ? c.hidden_size / c.num_attention_heads : 0;
  c.norm_eps = keys.take(norm_key(c.architecture), c.norm_eps);
  c.activation = read_activation(keys, "hidden_act", "gelu");
  c.attention_bias = c.attention_out_bias = keys.take("attention_bias", true);
  c.parallel_residual = keys.take("use_parallel_residual", true);
  read_rope(keys, c);
  return c;
}

// GPT-2's class has 0.1 where the file says nothing, all others 0.
void read_dropout(KeyReader& keys, ModelConfig& c) {
  const double fallback = c.architecture == Architecture::gpt2 ? 0.1 : 0;
  for (const auto& [key, rate] : dropout_keys_of(c.architecture)) {
    c.dropout.*rate = keys.take(key, fallback, 0.0);
    if (!(c.dropout.*rate >= 0 && c.dropout.*rate < 1)) keys.refuse(key, "at least 0 and below 1");
  }
  c.dropout.mlp = c.dropout.residual;
}

ModelConfig read_config(const json& file, const std::string& source) {
  KeyReader keys(file, source, kHarmless);
  const std::string type = keys.has("model_type") ? keys.take<std::string>("model_type", "") : "";
  ModelConfig c = default_config(find_architecture(type, source));
  c = c.architecture == Architecture::gpt2       ? read_gpt2(keys, c)
      : c.architecture == Architecture::gpt_neox ? read_gpt_neox(keys, c)
      : c.bidirectional                          ? read_encoder(keys, c)
                                                 : read_llama_like(keys, c);
  if (c.architecture == Architecture::free_transformer) read_free(keys, c);
  c.tie_word_embeddings = keys.take("tie_word_embeddings", c.tie_word_embeddings);
  c.initializer_range = keys.take("initializer_range", c.initializer_range);
  read_labels(keys, c);
  read_dropout(keys, c);
  require_switches_off(keys);
  c.quantized = read_quantization(keys);
  read_leftovers(keys, c.architecture);
  std::ranges::copy(keys.pass_over(kOtherUses), std::back_inserter(c.passed_over));
  if (c.is_classifier()) std::erase(c.passed_over, "num_labels");
  keys.refuse_unknown();
  c.validate();
  return c;
}

// Vision models whose text half is read: the type of the whole, that of the half, and whether the head is tied if the
// outer file does not say.
struct TextHalf {
  const char *whole, *text;
  bool tied;
};
constexpr TextHalf kTextHalves[] = {{"gemma3", "gemma3_text", true},
                                    {"mistral3", "mistral", true},
                                    {"qwen2_vl", "qwen2", false},
                                    {"qwen2_5_vl", "qwen2", false}};

const TextHalf* find_text_half(const json& whole) {
  const auto type = whole.find("model_type");
  for (const TextHalf& half : kTextHalves)
    if (type != whole.end() && *type == half.whole) return &half;
  return nullptr;
}

// Positions of text are the same in all three directions, so that sections of the rotary frequencies change nothing.
void forget_sections(json& text) {
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    const auto rope = text.find(key);
    if (rope == text.end() || !rope->is_object()) continue;
    rope->erase("mrope_section");
    for (const char* type : {"type", "rope_type"})
      if (rope->contains(type) && (*rope)[type] == "mrope") (*rope)[type] = "default";
  }
}

// Only the text half is read. The outer config decides whether its head is tied. Older files of Qwen2-VL have the
// half's keys beside those of the whole.
json text_half(const json& whole, const TextHalf& half, const std::string& source) {
  json text = whole.contains("text_config") && whole.at("text_config").is_object() ? whole.at("text_config")
              : std::string_view(half.text) == "qwen2"                             ? whole
                                                                                   : json::object();
  KeyReader(text, source + ": text_config", {}).take("tie_word_embeddings", true);
  if (std::string_view(half.text) == "qwen2") {
    forget_sections(text);
    for (const char* key : {"vision_config", "vision_start_token_id", "vision_end_token_id", "vision_token_id",
                            "image_token_id", "video_token_id", "text_config"})
      text.erase(key);
  }
  const std::string whole_type = half.whole;
  if (const auto type = text.find("model_type"); type != text.end() && type->is_string())
    if (const auto word = type->get<std::string>();
        word != half.text && word != whole_type && word != whole_type + "_text")
      throw UsageError(
          fmt::format("{}: text_config is of type {}, and of a model of type {} only a half of type {} is read", source,
                      word, whole_type, half.text));
  text["model_type"] = half.text;
  // Of a classifier, the whole has the class and the labels.
  for (const char* key : {"architectures", "id2label", "label2id", "num_labels", "problem_type"})
    if (whole.contains(key) && !whole.at(key).is_null()) text[key] = whole.at(key);
  if (std::string_view(half.whole) == "gemma3") text["final_logit_softcapping"] = nullptr;  // not in the whole model
  if (const auto quantized = whole.find("quantization_config"); quantized != whole.end())
    text["quantization_config"] = *quantized;
  const auto tied = whole.find("tie_word_embeddings");
  text["tie_word_embeddings"] = tied == whole.end() ? json(half.tied) : tied->is_null() ? json(false) : *tied;
  return text;
}

// The whole's ids count, or else the half's.
json special_ids(const json& whole) {
  json ids = json::object();
  const json text = whole.contains("text_config") ? whole.at("text_config") : json::object();
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"})
    for (const json* file : {&whole, &text})
      if (file->is_object() && file->contains(key) && !file->at(key).is_null() && !ids.contains(key))
        ids[key] = file->at(key);
  return ids;
}

}  // namespace

ModelConfig parse_hugging_face_config(const std::string& text, const std::string& source) try {
  const json j = base::parse_json(text);
  if (!j.is_object()) throw UsageError(fmt::format("{} is not a usable config.json: it holds no object", source));
  const TextHalf* half = find_text_half(j);
  const bool is_part = half != nullptr && (j.contains("text_config") || std::string_view(half->text) == "qwen2");
  ModelConfig c = read_config(is_part ? text_half(j, *half, source) : j, source);
  c.is_text_half = is_part;
  if (is_part)
    c.special_ids_json = special_ids(j).dump();
  else
    c.source_json = text;
  return c;
} catch (const json::exception& e) {
  throw UsageError(fmt::format("{} is not a usable config.json: {}", source, base::json_reason(e)));
}

}  // namespace trireme::model
