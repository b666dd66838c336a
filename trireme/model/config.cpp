#include "trireme/model/config.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>

#include "trireme/base/error.h"

namespace trireme::model {
namespace {

using nlohmann::json;

// Keys that say nothing about the mathematics of training, or that we write ourselves.
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
                                         "initializer_range",
                                         "vocab_size",
                                         "hidden_size",
                                         "intermediate_size",
                                         "num_hidden_layers",
                                         "num_attention_heads",
                                         "num_key_value_heads",
                                         "head_dim",
                                         "max_position_embeddings",
                                         "rms_norm_eps",
                                         "rope_theta",
                                         "rope_parameters",
                                         "tie_word_embeddings",
                                         "hidden_act",
                                         "attention_bias",
                                         "mlp_bias",
                                         "attention_dropout",
                                         "rope_scaling",
                                         "_name_or_path",
                                         "n_embd",
                                         "n_layer",
                                         "n_head",
                                         "n_positions",
                                         "n_ctx",
                                         "n_inner",
                                         "activation_function",
                                         "layer_norm_epsilon",
                                         "resid_pdrop",
                                         "embd_pdrop",
                                         "attn_pdrop",
                                         "task_specific_params",
                                         "summary_type",
                                         "summary_use_proj",
                                         "summary_activation",
                                         "summary_proj_to_labels",
                                         "summary_first_dropout",
                                         "scale_attn_weights",
                                         "scale_attn_by_inverse_layer_idx",
                                         "reorder_and_upcast_attn",
                                         "add_cross_attention",
                                         "return_dict",
                                         "output_hidden_states",
                                         "output_attentions",
                                         "id2label",
                                         "label2id",
                                         "problem_type",
                                         "is_encoder_decoder",
                                         "chunk_size_feed_forward",
                                         "tokenizer_class"};

template <typename T>
T value_or(const json& j, const char* key, T fallback) {
  return j.contains(key) && !j[key].is_null() ? j[key].get<T>() : fallback;
}

// Refuses a key whose value is not the only one this model honours.
template <typename T>
void require(const json& j, const char* key, T only, const std::string& source) {
  if (j.contains(key) && !j[key].is_null() && j[key].get<T>() != only)
    throw UsageError(fmt::format("{}: {} = {} is not supported; this model computes {} = {}", source, key,
                                 j[key].dump(), key, json(only).dump()));
}

}  // namespace

ModelConfig parse_hugging_face_config(const std::string& text, const std::string& source) try {
  const json j = json::parse(text);
  const std::string type = value_or<std::string>(j, "model_type", "");
  ModelConfig c;
  for (const auto& [key, value] : j.items())
    if (!kHarmless.count(key) && !value.is_null())
      throw UsageError(
          fmt::format("{}: the key {} is not known; it may change the mathematics, so it is refused", source, key));
  if (type == "llama") {
    c.architecture = Architecture::llama;
    c.vocab_size = value_or<int64_t>(j, "vocab_size", 32000);
    c.hidden_size = value_or<int64_t>(j, "hidden_size", 4096);
    c.intermediate_size = value_or<int64_t>(j, "intermediate_size", 11008);
    c.num_hidden_layers = value_or<int64_t>(j, "num_hidden_layers", 32);
    c.num_attention_heads = value_or<int64_t>(j, "num_attention_heads", 32);
    c.num_key_value_heads = value_or<int64_t>(j, "num_key_value_heads", c.num_attention_heads);
    c.max_position_embeddings = value_or<int64_t>(j, "max_position_embeddings", 2048);
    c.norm_eps = value_or<double>(j, "rms_norm_eps", 1e-6);
    c.rope_theta = value_or<double>(j, "rope_theta", 10000.0);
    c.tie_word_embeddings = value_or<bool>(j, "tie_word_embeddings", false);
    require<std::string>(j, "hidden_act", "silu", source);
    require<bool>(j, "attention_bias", false, source);
    require<bool>(j, "mlp_bias", false, source);
    for (const char* key : {"rope_scaling", "rope_parameters"}) {
      if (!j.contains(key) || j[key].is_null()) continue;
      const std::string rope =
          value_or<std::string>(j[key], "rope_type", value_or<std::string>(j[key], "type", "default"));
      if (rope != "default")
        throw UsageError(fmt::format("{}: rope type {} is not supported; default is", source, rope));
      c.rope_theta = value_or<double>(j[key], "rope_theta", c.rope_theta);
    }
  } else if (type == "gpt2") {
    c.architecture = Architecture::gpt2;
    c.vocab_size = value_or<int64_t>(j, "vocab_size", 50257);
    c.hidden_size = value_or<int64_t>(j, "n_embd", 768);
    c.intermediate_size = value_or<int64_t>(j, "n_inner", 4 * c.hidden_size);
    c.num_hidden_layers = value_or<int64_t>(j, "n_layer", 12);
    c.num_attention_heads = value_or<int64_t>(j, "n_head", 12);
    c.num_key_value_heads = c.num_attention_heads;
    c.max_position_embeddings = value_or<int64_t>(j, "n_positions", 1024);
    c.norm_eps = value_or<double>(j, "layer_norm_epsilon", 1e-5);
    c.rope_theta = 0;
    c.tie_word_embeddings = value_or<bool>(j, "tie_word_embeddings", true);
    require<std::string>(j, "activation_function", "gelu_new", source);
    require<bool>(j, "scale_attn_weights", true, source);
    require<bool>(j, "scale_attn_by_inverse_layer_idx", false, source);
    require<bool>(j, "add_cross_attention", false, source);
  } else {
    throw UsageError(fmt::format("{}: model_type {} is not supported; llama and gpt2 are", source,
                                 type.empty() ? "(absent)" : type));
  }
  c.head_dim = value_or<int64_t>(j, "head_dim", c.num_attention_heads > 0 ? c.hidden_size / c.num_attention_heads : 0);
  c.initializer_range = value_or<double>(j, "initializer_range", 0.02);
  c.validate();
  return c;
} catch (const json::exception& e) {
  throw UsageError(fmt::format("{} is not a usable config.json: {}", source, e.what()));
}

void ModelConfig::validate() const {
  const struct {
    const char* key;
    int64_t value;
  } positive[] = {{"vocab_size", vocab_size},
                  {"hidden_size", hidden_size},
                  {"intermediate_size", intermediate_size},
                  {"num_hidden_layers", num_hidden_layers},
                  {"num_attention_heads", num_attention_heads},
                  {"num_key_value_heads", num_key_value_heads},
                  {"head_dim", head_dim},
                  {"max_position_embeddings", max_position_embeddings}};
  for (const auto& [key, value] : positive)
    if (value < 1) throw UsageError(fmt::format("model.{} is {}; it must be at least 1", key, value));
  if (num_attention_heads % num_key_value_heads != 0)
    throw UsageError(fmt::format("model.num_key_value_heads {} does not divide model.num_attention_heads {}",
                                 num_key_value_heads, num_attention_heads));
  if (head_dim % 2 != 0)
    throw UsageError(fmt::format("model.head_dim {} is odd; rotary positions need pairs", head_dim));
  if (architecture == Architecture::gpt2 && num_attention_heads * head_dim != hidden_size)
    throw UsageError(fmt::format("model.num_attention_heads {} does not divide model.hidden_size {} (GPT-2)",
                                 num_attention_heads, hidden_size));
}

int64_t ModelConfig::num_parameters() const {
  const int64_t heads = num_attention_heads * head_dim, kv = num_key_value_heads * head_dim;
  const bool llama = architecture == Architecture::llama;
  const int64_t products =
      hidden_size * (heads + 2 * kv) + heads * hidden_size + (llama ? 3 : 2) * hidden_size * intermediate_size;
  const int64_t biases = llama ? 0 : (heads + 2 * kv) + 2 * hidden_size + intermediate_size;
  const int64_t norm = (llama ? 1 : 2) * hidden_size;
  const int64_t embedding = (vocab_size + (llama ? 0 : max_position_embeddings)) * hidden_size;
  return num_hidden_layers * (products + biases + 2 * norm) + norm + embedding +
         (tie_word_embeddings ? 0 : vocab_size * hidden_size);
}

int64_t ModelConfig::num_product_parameters() const {
  const int64_t heads = num_attention_heads * head_dim, kv = num_key_value_heads * head_dim;
  const int64_t mlp = (architecture == Architecture::llama ? 3 : 2) * hidden_size * intermediate_size;
  return num_hidden_layers * (hidden_size * (heads + 2 * kv) + heads * hidden_size + mlp) + vocab_size * hidden_size;
}

std::string ModelConfig::to_hugging_face_json(const std::string& dtype) const {
  nlohmann::ordered_json j;
  if (architecture == Architecture::llama) {
    j = {{"architectures", {"LlamaForCausalLM"}},
         {"model_type", "llama"},
         {"vocab_size", vocab_size},
         {"hidden_size", hidden_size},
         {"intermediate_size", intermediate_size},
         {"num_hidden_layers", num_hidden_layers},
         {"num_attention_heads", num_attention_heads},
         {"num_key_value_heads", num_key_value_heads},
         {"head_dim", head_dim},
         {"max_position_embeddings", max_position_embeddings},
         {"rms_norm_eps", norm_eps},
         {"rope_theta", rope_theta},
         {"hidden_act", "silu"},
         {"attention_bias", false},
         {"mlp_bias", false}};
  } else {
    j = {{"architectures", {"GPT2LMHeadModel"}},
         {"model_type", "gpt2"},
         {"vocab_size", vocab_size},
         {"n_embd", hidden_size},
         {"n_inner", intermediate_size},
         {"n_layer", num_hidden_layers},
         {"n_head", num_attention_heads},
         {"n_positions", max_position_embeddings},
         {"n_ctx", max_position_embeddings},
         {"layer_norm_epsilon", norm_eps},
         {"activation_function", "gelu_new"},
         {"resid_pdrop", 0.0},
         {"embd_pdrop", 0.0},
         {"attn_pdrop", 0.0}};
  }
  j["tie_word_embeddings"] = tie_word_embeddings;
  j["initializer_range"] = initializer_range;
  j["torch_dtype"] = dtype;
  j["bos_token_id"] = nullptr;
  j["eos_token_id"] = nullptr;
  return j.dump(2) + "\n";
}

}  // namespace trireme::model
