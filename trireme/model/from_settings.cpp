#include "trireme/model/from_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/text.h"
#include "trireme/model/quantized.h"

namespace trireme::model {
namespace {

namespace fs = std::filesystem;

ModelConfig named_model(const std::string& name) {
  if (fs::exists(fs::path(name) / "config.json"))
    return parse_hugging_face_config(base::read_side_file(fs::path(name) / "config.json"), name + "/config.json");
  if (fs::exists(fs::path(name) / "adapter_config.json"))
    throw UsageError(an_adapters_folder(
        name, fmt::format("name its base, and --lora.initial_adapter {} trains it on", base::shell_quoted(name))));
  const bool is_shape = std::ranges::count(catalogue_names(), name) > 0;
  if (fs::is_regular_file(name) && !is_shape) throw UsageError(base::make_a_folder_of(name));
  if (fs::is_directory(name) && !is_shape)
    throw UsageError(
        fmt::format("the folder {} has no config.json, which describes a model; if it holds weights of another "
                    "program, trireme convert {} OUT makes a model's folder of it",
                    name, base::shell_quoted(name)));
  return catalogue_config(name);
}

// A Llama becomes a Free Transformer by its bits; one that is read from a folder keeps what is not given.
void take_latent(ModelConfig& c, const FreeSettings& s) {
  if (s.latent_bits) {
    if (!c.is_free() && c.architecture != Architecture::llama)
      throw UsageError(fmt::format(
          "free.latent_bits makes a Llama a Free Transformer, and {} is no Llama; take one, for instance llama-5m",
          model_type(c.architecture)));
    if (!c.is_free()) {
      if (c.attention_bias || c.attention_out_bias || c.mlp_bias)
        throw UsageError("free.latent_bits: a Free Transformer's blocks have no biases, and this Llama's have");
      c.architecture = Architecture::free_transformer;
      c.source_json.clear();
      c.free.split_layer = c.num_hidden_layers / 2;
    }
    if (*s.latent_bits > kMostTableBits && c.free.latent_bits != *s.latent_bits) c.free.injection = Injection::bits;
    c.free.latent_bits = *s.latent_bits;
  }
  if (!c.is_free()) {
    for (const auto& [given, name] : {std::pair(s.split_layer.has_value(), "split_layer"),
                                      {s.injection != Injection::automatic, "injection"},
                                      {s.free_bits.has_value(), "free_bits"},
                                      {s.kl_weight.has_value(), "kl_weight"}})
      if (given)
        throw UsageError(
            fmt::format("free.{} is for a Free Transformer, and this model is none; give free.latent_bits", name));
    return;
  }
  if (s.split_layer) c.free.split_layer = *s.split_layer;
  if (s.injection != Injection::automatic) c.free.injection = s.injection;
  if (s.free_bits) c.free.free_bits = *s.free_bits;
  if (s.kl_weight) c.free.kl_weight = *s.kl_weight;
}

// A named shape becomes an encoder of its sizes.
void take_encoder(ModelConfig& c, const ModelSettings& s) {
  if (s.bidirectional && !*s.bidirectional && c.bidirectional)
    throw UsageError(fmt::format("model.bidirectional is false, and models of type {} are bidirectional; leave it out",
                                 model_type(c.architecture)));
  if (s.bidirectional.value_or(false) && !c.bidirectional) {
    if (!c.source_json.empty())
      throw UsageError(
          fmt::format("model.bidirectional true makes a new model, and {} is a folder of a causal one; name a shape, "
                      "for instance llama-5m, or leave it out",
                      s.name));
    set_architecture(c, Architecture::encoder);
  }
  if (c.architecture != Architecture::encoder) {
    for (const auto& [given, name] : {std::pair(s.norm_placement.has_value(), "norm_placement"),
                                      {s.hidden_act.has_value(), "hidden_act"},
                                      {s.pooling.has_value(), "pooling"}})
      if (given)
        throw UsageError(
            fmt::format("model.{} is for models of type encoder, and this one is {}; give "
                        "model.bidirectional true, or leave it out",
                        name, model_type(c.architecture)));
    return;
  }
  if (s.norm_placement) place_norms(c, *s.norm_placement);
  if (s.pooling) c.classifier.pooling = *s.pooling;
  if (!s.hidden_act) return;
  c.activation = *s.hidden_act == EncoderActivation::relu       ? Activation::relu
                 : *s.hidden_act == EncoderActivation::gelu_new ? Activation::gelu_tanh
                                                                : Activation::gelu;
}

// The head's labels: named; or numbered, unless the folder's head has as many with names.
void take_labels(ModelConfig& c, const ModelSettings& s) {
  if (s.labels) {
    const auto count = static_cast<int64_t>(s.labels->size());
    if (s.num_labels && *s.num_labels != count)
      throw UsageError(fmt::format("model.labels names {}, and model.num_labels is {}; give one of the two",
                                   base::plural(count, "label"), *s.num_labels));
    return set_labels(c, *s.labels);
  }
  if (!s.num_labels || *s.num_labels == c.classifier.num_labels) return;
  std::vector<std::string> labels;
  for (int64_t i = 0; i < *s.num_labels; ++i) labels.push_back(std::to_string(i));
  set_labels(c, std::move(labels));
}

}  // namespace

void quantize(ModelConfig& c, const ModelSettings& s, const std::string& folder) {
  if (s.quantize != base::BlockFormat::none) quantize(c, s.quantize, folder);
  c.quantized_head = s.quantize_head;
}

std::string an_adapters_folder(const std::string& name, const std::string& way_out) {
  return fmt::format(
      "{} is an adapter, and a model's folder is named here: {}; or make a model of both first: trireme merge_lora {} "
      "--out FOLDER",
      name, way_out, base::shell_quoted(name));
}

ModelConfig config_of(const ModelSettings& m) {
  if (m.name.empty())
    throw UsageError(
        "no model is named; name a folder with a config.json behind the command, or for new weights a shape such as "
        "llama-5m");
  ModelConfig c = named_model(m.name);
  c.name = m.name;  // reports and pictures tell models of folders apart by it
  const auto take = [](auto& field, const auto& given) {
    if (given) field = *given;
  };
  if (m.model_type) set_architecture(c, find_architecture(*m.model_type, "model.model_type"));
  take_encoder(c, m);
  const bool width_changed = m.hidden_size || m.num_attention_heads;
  take(c.vocab_size, m.vocab_size);
  take(c.hidden_size, m.hidden_size);
  take(c.intermediate_size, m.intermediate_size);
  if (m.num_hidden_layers) set_num_hidden_layers(c, *m.num_hidden_layers);
  take(c.num_attention_heads, m.num_attention_heads);
  if (m.num_attention_heads && !m.num_key_value_heads) c.num_key_value_heads = c.num_attention_heads;
  take(c.num_key_value_heads, m.num_key_value_heads);
  if (width_changed && !m.head_dim && c.num_attention_heads > 0) {
    if (c.hidden_size % c.num_attention_heads != 0)
      throw UsageError(
          fmt::format("model.num_attention_heads {} does not divide model.hidden_size {}; set model.head_dim "
                      "or take a divisor",
                      c.num_attention_heads, c.hidden_size));
    c.head_dim = c.hidden_size / c.num_attention_heads;
  }
  take(c.head_dim, m.head_dim);
  take(c.max_position_embeddings, m.max_position_embeddings);
  // Files of this type have one number for both, from which the saved model is read again.
  if (c.rope_scaling.type == RopeScaling::Type::dynamic)
    c.rope_scaling.original_max_position_embeddings = double(c.max_position_embeddings);
  take(c.norm_eps, m.rms_norm_eps);
  take(c.rope_theta, m.rope_theta);
  take(c.tie_word_embeddings, m.tie_word_embeddings);
  take(c.initializer_range, m.initializer_range);
  take(c.dropout.attention, m.attention_dropout);
  take(c.dropout.residual, m.residual_dropout);
  take(c.dropout.mlp, m.mlp_dropout ? m.mlp_dropout : m.residual_dropout);
  take(c.dropout.embedding, m.embedding_dropout);
  take_latent(c, m.free);
  take_labels(c, m);
  quantize(c, m, m.name);
  c.validate();
  return c;
}

Precision precision_of(const PrecisionSettings& settings, NumberFormat format) {
  check_invariant(format != NumberFormat::automatic, "the number format has been chosen");
  if (format == NumberFormat::fp64_true) return {at::kDouble, at::kDouble};
  if (format == NumberFormat::fp32_true) return {};
  const bool half = format == NumberFormat::fp16_mixed || format == NumberFormat::fp16_true;
  return {.compute = half ? at::kHalf : at::kBFloat16,
          .float8 = format == NumberFormat::fp8_mixed,
          .narrow_weights = has_narrow_weights(format),
          .narrow_gradients = has_narrow_gradients(settings, format),
          .wide_slots = settings.reduce == GradientDtype::fp32,
          .rounding = settings.rounding};
}

Grouping grouping_of(const WrapSettings& settings) {
  return {.by = settings.by,
          .min_num_params = settings.min_num_params,
          .own_group = settings.units.value_or(std::vector<std::string>{})};
}

}  // namespace trireme::model
