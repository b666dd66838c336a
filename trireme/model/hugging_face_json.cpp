// Writes a config.json: the file that the model came from, with its changes, or a new one.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "trireme/model/hugging_face_keys.h"

#include "trireme/base/json.h"

namespace trireme::model {
namespace {

using nlohmann::ordered_json;

ordered_json rope_json(const RopeScaling& s) {
  using Type = RopeScaling::Type;
  ordered_json j = {{"rope_type", std::ranges::find(kRopeTypes, s.type, &RopeType::type)->word}, {"factor", s.factor}};
  if (s.type == Type::linear || s.type == Type::dynamic) return j;
  j["original_max_position_embeddings"] = static_cast<int64_t>(s.original_max_position_embeddings);
  if (s.type == Type::longrope) {
    j["short_factor"] = s.short_factor;
    j["long_factor"] = s.long_factor;
    if (s.attention_factor) j["attention_factor"] = *s.attention_factor;
  } else if (s.type == Type::llama3) {
    j["low_freq_factor"] = s.low_freq_factor;
    j["high_freq_factor"] = s.high_freq_factor;
  } else {
    j["beta_fast"] = s.beta_fast;
    j["beta_slow"] = s.beta_slow;
    if (s.attention_factor) j["attention_factor"] = *s.attention_factor;
    if (s.mscale != 0) j["mscale"] = s.mscale;
    if (s.mscale_all_dim != 0) j["mscale_all_dim"] = s.mscale_all_dim;
    if (!s.truncate) j["truncate"] = false;
  }
  return j;
}

const char* plain_word(Activation activation) {
  return std::ranges::find(kActivations, activation, &ActivationWord::activation)->word;
}

void encoder_keys(ordered_json& j, const ModelConfig& c) {
  const Architecture a = c.architecture;
  if (a == Architecture::distilbert) {
    for (const auto& [key, field] : kDistilBertSizes) j[key] = c.*field;
    j["activation"] = plain_word(c.activation);
    for (const char* key : {"dropout", "attention_dropout", "seq_classif_dropout"}) j[key] = 0.0;
    return;
  }
  for (const auto& [key, field] : kSizes)
    if (field != &ModelConfig::num_key_value_heads && field != &ModelConfig::head_dim) j[key] = c.*field;
  j["max_position_embeddings"] = c.max_position_embeddings + c.first_position;
  j[norm_key(a)] = c.norm_eps;
  j["hidden_act"] = plain_word(c.activation);
  if (a == Architecture::encoder) {
    j["norm_placement"] = word_of(kPlacements, c.sum_norms ? NormPlacement::post : NormPlacement::pre);
    j["pooling"] = word_of(kPoolings, c.classifier.pooling);
    return;
  }
  j["type_vocab_size"] = c.token_types;
  j["pad_token_id"] = c.first_position > 0 ? c.first_position - 1 : 0;
  for (const char* key : {"hidden_dropout_prob", "attention_probs_dropout_prob"}) j[key] = 0.0;
}

// All keys that say what this model computes.
ordered_json keys_of(const ModelConfig& c) {
  using A = Architecture;
  const A a = c.architecture;
  ordered_json j = {{"architectures", {class_name(c)}}, {"model_type", model_type(a)}};
  if (c.is_classifier()) {
    j["id2label"] = j["label2id"] = ordered_json::object();
    for (size_t i = 0; i < c.classifier.labels.size(); ++i) {
      j["id2label"][std::to_string(i)] = c.classifier.labels[i];
      j["label2id"][c.classifier.labels[i]] = i;
    }
  }
  if (is_encoder(a)) {
    encoder_keys(j, c);
  } else if (a == A::gpt2) {
    for (const auto& [key, field] : kGpt2Sizes) j[key] = c.*field;
    j["n_ctx"] = c.max_position_embeddings;
    j[norm_key(a)] = c.norm_eps;
    j["activation_function"] = c.activation == Activation::gelu_tanh ? "gelu_new" : plain_word(c.activation);
  } else {
    const bool is_neox = a == A::gpt_neox;
    for (const auto& [key, field] : kSizes)
      if (!is_neox || (field != &ModelConfig::num_key_value_heads && field != &ModelConfig::head_dim))
        j[key] = c.*field;
    j[norm_key(a)] = c.norm_eps;
    j[is_neox ? "rotary_emb_base" : "rope_theta"] = c.rope_theta;
    if (is_neox) j["rotary_pct"] = c.rotary_fraction;
    if (is_neox) j["use_parallel_residual"] = c.parallel_residual;
    if (a == A::phi3) {
      j["partial_rotary_factor"] = c.rotary_fraction;
      j["original_max_position_embeddings"] = static_cast<int64_t>(c.rope_scaling.original_max_position_embeddings);
    }
    if (a == A::granite)
      for (const auto& [key, field] : kMultipliers) j[key] = c.*field;
    if (a == A::starcoder2) j["use_bias"] = c.mlp_bias;
    if (a == A::smollm3) {
      j["no_rope_layers"] = ordered_json::array();
      for (int64_t i = 0; i < c.num_hidden_layers; ++i) j["no_rope_layers"].push_back(c.rotates(i) ? 1 : 0);
    }
    if (c.rope_scaling.type != RopeScaling::Type::none) j["rope_scaling"] = rope_json(c.rope_scaling);
    if (a == A::gemma3) j["rope_local_base_freq"] = c.rope_local_theta > 0 ? c.rope_local_theta : c.rope_theta;
    const bool is_gemma = a == A::gemma2 || a == A::gemma3;
    j[is_gemma ? "hidden_activation" : "hidden_act"] =
        c.activation == Activation::silu ? "silu" : plain_word(c.activation);
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
    if (a != A::mistral && a != A::qwen2 && a != A::phi3 && a != A::starcoder2 && !c.is_free())
      j["attention_bias"] = c.attention_bias;
    if (a == A::llama || a == A::smollm3 || a == A::granite) j["mlp_bias"] = c.mlp_bias;
    const bool has_window =
        a != A::llama && !c.is_free() && a != A::gemma && a != A::granite && a != A::olmo2 && !is_neox;
    if (has_window) j["sliding_window"] = c.sliding_window > 0 ? ordered_json(c.sliding_window) : ordered_json(nullptr);
    if (a == A::qwen2 || a == A::qwen3 || a == A::smollm3) j["use_sliding_window"] = c.sliding_window > 0;
    if (c.is_free()) {
      j["latent_dim"] = c.free.latent_bits;
      j["split_layer"] = c.free.split_layer;
      j["injection"] = c.free.injection == Injection::bits ? "bits" : "table";
      j["kappa_free_bits"] = c.free.free_nats();
      j["beta_kl"] = c.free.kl_weight;
    }
    if (has_window && a != A::mistral && !c.windowed.empty()) {
      j["layer_types"] = ordered_json::array();
      for (const bool w : c.windowed) j["layer_types"].push_back(w ? "sliding_attention" : "full_attention");
    }
  }
  for (const auto& [key, rate] : dropout_keys_of(a))  // a GPT-2 without these keys would drop 0.1
    if (c.dropout.*rate > 0 || a == A::gpt2) j[key] = c.dropout.*rate;
  j["tie_word_embeddings"] = c.tie_word_embeddings;
  j["initializer_range"] = c.initializer_range;
  return j;
}

// Of these types, transformers assumes a token for padding that a smaller vocabulary does not have.
void name_no_pad(ordered_json& j, Architecture a) {
  const bool assumes_one = a == Architecture::phi3 || a == Architecture::smollm3;
  if (assumes_one && !j.contains("pad_token_id")) j["pad_token_id"] = nullptr;
}

}  // namespace

std::optional<int64_t> ModelConfig::padding() const {
  if (pad_token_id) return pad_token_id;
  const auto j = base::parse_json_if_sound<ordered_json>(source_json.empty() ? special_ids_json : source_json);
  if (!j.is_object() || !j.contains("pad_token_id") || !base::is_whole_number(j["pad_token_id"])) return std::nullopt;
  return j["pad_token_id"].get<int64_t>();
}

std::string ModelConfig::to_hugging_face_json(const std::string& dtype) const {
  if (source_json.empty()) {
    ordered_json j = keys_of(*this);
    j["torch_dtype"] = dtype;
    j["bos_token_id"] = nullptr;
    j["eos_token_id"] = nullptr;
    if (!special_ids_json.empty()) j.update(base::parse_json<ordered_json>(special_ids_json));
    if (pad_token_id) j["pad_token_id"] = *pad_token_id;
    name_no_pad(j, architecture);
    return j.dump(2) + "\n";
  }
  ordered_json j = base::parse_json<ordered_json>(source_json);
  const bool names_pad = pad_token_id && (!j.contains("pad_token_id") || j["pad_token_id"].is_null());
  if (names_pad) j["pad_token_id"] = *pad_token_id;
  const ModelConfig source = parse_hugging_face_config(source_json, "config.json");
  const bool unchanged = same_model(source);
  // Training alone reads these; a file has nats, which are not quite as many bits.
  const bool learns_otherwise =
      is_free() && (std::abs(free.free_bits - source.free.free_bits) > 1e-12 * free.free_bits ||
                    free.kl_weight != source.free.kl_weight);
  if (learns_otherwise) j["kappa_free_bits"] = free.free_nats(), j["beta_kl"] = free.kl_weight;
  const char* key = j.contains("torch_dtype") ? "torch_dtype" : "dtype";
  const std::string stated = j.contains(key) && j[key].is_string() ? j[key].get<std::string>() : "float32";
  // A model without a head ("LlamaModel") is saved with one.
  if (const auto classes = j.find("architectures"); classes != j.end() && classes->is_array() && !classes->empty()) {
    const std::string name = classes->front().is_string() ? classes->front().get<std::string>() : "";
    if (name.ends_with("Model") && name != class_name(*this)) {
      if (unchanged) j["architectures"] = {class_name(*this)};
      if (unchanged && stated == dtype) return j.dump(2) + "\n";
    }
  }
  if (unchanged && stated == dtype && !names_pad && !learns_otherwise) return source_json;
  if (!unchanged) {
    for (const char* stale : {"rope_parameters", "rope_scaling", "rope_theta", "layer_types", "max_window_layers",
                              "rotary_emb_base", "rotary_pct", "partial_rotary_factor"})
      j.erase(stale);
    for (const auto& [key, rate] : dropout_keys_of(architecture)) j.erase(key);
    j.update(keys_of(*this));
    name_no_pad(j, architecture);
  }
  j[key] = dtype;
  return j.dump(2) + "\n";
}

}  // namespace trireme::model
