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
    if (a != A::llama && a != A::free_transformer)
      j["sliding_window"] = c.sliding_window > 0 ? ordered_json(c.sliding_window) : ordered_json(nullptr);
    if (a == A::qwen2 || a == A::qwen3) j["use_sliding_window"] = c.sliding_window > 0;
    if (c.is_free()) {
      j["latent_dim"] = c.free.latent_bits;
      j["split_layer"] = c.free.split_layer;
      j["injection"] = c.free.injection == Injection::bits ? "bits" : "table";
      j["kappa_free_bits"] = c.free.free_nats();
      j["beta_kl"] = c.free.kl_weight;
    }
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

std::string ModelConfig::to_hugging_face_json(const std::string& dtype) const {
  if (source_json.empty()) {
    ordered_json j = keys_of(*this);
    j["torch_dtype"] = dtype;
    j["bos_token_id"] = nullptr;
    j["eos_token_id"] = nullptr;
    return j.dump(2) + "\n";
  }
  ordered_json j = base::parse_json<ordered_json>(source_json);
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
