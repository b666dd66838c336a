// Rotary settings of a config.json: `rope_theta` and `rope_scaling`, as transformers 4 wrote them, or
// `rope_parameters`, as transformers 5 does. If a file has both, they are read as transformers 5 reads them.
#include "trireme/model/hugging_face_keys.h"
#include "trireme/model/hugging_face_reader.h"

namespace trireme::model {
namespace {

using nlohmann::json;

constexpr const char* kFull = "full_attention";
constexpr const char* kSliding = "sliding_attention";

RopeScaling::Type type_of(const std::string& source, const std::string& word) {
  for (const RopeType& t : kRopeTypes)
    if (word == t.word) return t.type;
  throw UsageError(fmt::format(
      "{}: rope type {} is not supported; default, linear, llama3, yarn, dynamic and longrope are", source, word));
}

std::vector<double> read_factors(KeyReader& keys, const char* key) {
  if (!keys.has(key) || !keys.at(key).is_array())
    throw UsageError(fmt::format("{}: rope type longrope needs a list {}, and there is none", keys.source(), key));
  std::vector<double> factors;
  for (const json& factor : keys.at(key)) {
    if (!factor.is_number()) keys.refuse(key, "a list of numbers");
    factors.push_back(factor.get<double>());
  }
  return factors;
}

void read_longrope(KeyReader& keys, const ModelConfig& c, RopeScaling& s) {
  s.short_factor = read_factors(keys, "short_factor");
  s.long_factor = read_factors(keys, "long_factor");
  // `s` has those of a Phi-3 file already: its own key counts before that of the entry.
  if (c.architecture != Architecture::phi3)
    s.original_max_position_embeddings =
        keys.take("original_max_position_embeddings", double(c.max_position_embeddings));
  const double implied = double(c.max_position_embeddings) / s.original_max_position_embeddings;
  s.factor = keys.take("factor", implied, implied);
  if (keys.has("attention_factor")) s.attention_factor = keys.take("attention_factor", 0.0);
}

RopeScaling read_scaling(KeyReader& keys, ModelConfig& c) {
  using A = Architecture;
  RopeScaling s;
  if (c.architecture == A::phi3) s.original_max_position_embeddings = c.rope_scaling.original_max_position_embeddings;
  const auto older = keys.take<std::string>("type", "default");
  auto type = keys.take<std::string>("rope_type", older);
  if (keys.has("type") && older != type)
    throw UsageError(
        fmt::format("{}: type is {} and rope_type is {}; leave one of them out", keys.source(), older, type));
  const bool is_phi3 = c.architecture == A::phi3;
  if (is_phi3 && (type == "su" || type == "yarn")) type = "longrope";  // as older files name it
  s.type = type_of(keys.source(), type);
  if (is_phi3 && s.type != RopeScaling::Type::none && s.type != RopeScaling::Type::longrope)
    throw UsageError(fmt::format("{}: models of type phi3 have no rope type {}; default and longrope are theirs",
                                 keys.source(), type));
  for (const char* key : {"rope_theta", "factor", "low_freq_factor", "high_freq_factor", "beta_fast", "beta_slow",
                          "original_max_position_embeddings", "attention_factor", "mscale", "mscale_all_dim",
                          "truncate", "short_factor", "long_factor"})
    keys.know(key);
  const double fraction = keys.take("partial_rotary_factor", c.rotary_fraction, 1.0);
  if (is_phi3 || c.architecture == A::gpt_neox) {
    if (!(fraction > 0 && fraction <= 1)) keys.refuse("partial_rotary_factor", "above 0 and at most 1");
    c.rotary_fraction = fraction;
  } else if (fraction != 1.0)
    throw UsageError(fmt::format("{}: partial_rotary_factor = {} is not supported; whole heads are rotated",
                                 keys.source(), keys.at("partial_rotary_factor").dump()));
  keys.refuse_unknown();
  if (s.type == RopeScaling::Type::none) return s;
  if (s.type == RopeScaling::Type::longrope) {
    read_longrope(keys, c, s);
    return s;
  }
  const bool by_wave = s.type == RopeScaling::Type::llama3;
  const bool follows = s.type == RopeScaling::Type::yarn && keys.contains("factor") && !keys.has("factor");  // null
  for (const char* key : {"factor", "low_freq_factor", "high_freq_factor"})
    if (!keys.has(key) && (by_wave || (std::string(key) == "factor" && !follows)))
      throw UsageError(fmt::format("{}: rope type {} needs a {}, and there is none", keys.source(), type, key));
  s.factor = keys.take("factor", s.factor, s.factor);
  if (s.type == RopeScaling::Type::linear) return s;
  if (s.type == RopeScaling::Type::dynamic) {
    s.original_max_position_embeddings = double(c.max_position_embeddings);
    return s;
  }
  s.original_max_position_embeddings = keys.take("original_max_position_embeddings", double(c.max_position_embeddings));
  if (by_wave) {
    s.low_freq_factor = keys.take("low_freq_factor", s.low_freq_factor);
    s.high_freq_factor = keys.take("high_freq_factor", s.high_freq_factor);
    return s;
  }
  if (follows) s.factor = double(c.max_position_embeddings) / s.original_max_position_embeddings;
  s.beta_fast = keys.take("beta_fast", s.beta_fast, s.beta_fast);
  s.beta_slow = keys.take("beta_slow", s.beta_slow, s.beta_slow);
  s.mscale = keys.take("mscale", s.mscale, s.mscale);
  s.mscale_all_dim = keys.take("mscale_all_dim", s.mscale_all_dim, s.mscale_all_dim);
  s.truncate = keys.take("truncate", s.truncate);
  if (keys.has("attention_factor")) s.attention_factor = keys.take("attention_factor", 0.0);
  return s;
}

/// `theta` is the file's rope_theta; the entry's own replaces it.
RopeScaling read_entry(const json& entry, const std::string& source, double& theta, ModelConfig& c) {
  KeyReader keys(entry, source, {});
  theta = keys.take("rope_theta", theta);
  return read_scaling(keys, c);
}

json object_or_empty(KeyReader& keys, const char* key) {
  keys.know(key);
  if (!keys.has(key)) return json::object();
  if (!keys.at(key).is_object()) keys.refuse(key, "an object, or null");
  return keys.at(key);
}

/// Gemma 3 has settings for blocks with and without a window; `rope_scaling` adds to those without.
void read_gemma3(KeyReader& keys, ModelConfig& c) {
  json both = object_or_empty(keys, "rope_parameters");
  const json scaling = object_or_empty(keys, "rope_scaling");
  if (scaling.contains("type") && !scaling.contains("rope_type"))
    throw UsageError(
        fmt::format("{}: rope_scaling.type is read by transformers 4 and ignored by transformers 5; name it rope_type",
                    keys.source()));
  const std::string source = keys.source() + ": rope_parameters";
  for (const auto& [key, value] : both.items())
    if (key != kFull && key != kSliding)
      throw UsageError(fmt::format("{} of Gemma 3 has the key {}; it holds {} and {}", source, key, kFull, kSliding));
  for (const char* key : {kFull, kSliding})
    if (!both.contains(key) || both[key].is_null()) both[key] = {{"rope_type", "default"}};
  if (!both[kFull].is_object()) throw UsageError(fmt::format("{}.{} is no JSON object", source, kFull));
  both[kFull].update(scaling);
  c.rope_theta = keys.take("rope_theta", c.rope_theta);
  c.rope_local_theta = keys.take("rope_local_base_freq", c.rope_local_theta);
  c.rope_scaling = read_entry(both[kFull], source + "." + kFull, c.rope_theta, c);
  const RopeScaling local = read_entry(both[kSliding], source + "." + kSliding, c.rope_local_theta, c);
  if (local.type != RopeScaling::Type::none)
    throw UsageError(fmt::format("{}.{} has a rope_type; blocks with a window are not scaled", source, kSliding));
  if (!c.rope_scaling.truncate)
    throw UsageError(
        fmt::format("{}.{}: truncate = false is not supported; Gemma 3 computes truncate = true", source, kFull));
}

}  // namespace

void read_rope(KeyReader& keys, ModelConfig& c) {
  if (c.architecture == Architecture::gemma3) return read_gemma3(keys, c);
  const json parameters = object_or_empty(keys, "rope_parameters");
  const json scaling = object_or_empty(keys, "rope_scaling");
  keys.know("rope_local_base_freq");
  const bool is_neox = c.architecture == Architecture::gpt_neox;
  c.rope_theta = keys.take(is_neox ? "rotary_emb_base" : "rope_theta", c.rope_theta);
  const char* const fraction = is_neox ? "rotary_pct" : "partial_rotary_factor";
  if (is_neox || c.architecture == Architecture::phi3) c.rotary_fraction = keys.take(fraction, c.rotary_fraction);
  if (c.architecture == Architecture::phi3)
    c.rope_scaling.original_max_position_embeddings = keys.take("original_max_position_embeddings", 4096.0);
  const char* const name = scaling.empty() ? "rope_parameters" : "rope_scaling";
  c.rope_scaling =
      read_entry(scaling.empty() ? parameters : scaling, fmt::format("{}: {}", keys.source(), name), c.rope_theta, c);
}

}  // namespace trireme::model
