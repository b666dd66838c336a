// Keys of config.json as tables; private to hugging_face_*.cpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include "trireme/model/config.h"

namespace trireme::model {

struct IntegerKey {
  const char* key;
  int64_t ModelConfig::* field;
};

inline constexpr IntegerKey kSizes[] = {{"vocab_size", &ModelConfig::vocab_size},
                                        {"hidden_size", &ModelConfig::hidden_size},
                                        {"intermediate_size", &ModelConfig::intermediate_size},
                                        {"num_hidden_layers", &ModelConfig::num_hidden_layers},
                                        {"num_attention_heads", &ModelConfig::num_attention_heads},
                                        {"num_key_value_heads", &ModelConfig::num_key_value_heads},
                                        {"head_dim", &ModelConfig::head_dim},
                                        {"max_position_embeddings", &ModelConfig::max_position_embeddings}};
inline constexpr IntegerKey kGpt2Sizes[] = {
    {"vocab_size", &ModelConfig::vocab_size},      {"n_embd", &ModelConfig::hidden_size},
    {"n_inner", &ModelConfig::intermediate_size},  {"n_layer", &ModelConfig::num_hidden_layers},
    {"n_head", &ModelConfig::num_attention_heads}, {"n_positions", &ModelConfig::max_position_embeddings}};

inline constexpr IntegerKey kDistilBertSizes[] = {{"vocab_size", &ModelConfig::vocab_size},
                                                  {"dim", &ModelConfig::hidden_size},
                                                  {"hidden_dim", &ModelConfig::intermediate_size},
                                                  {"n_layers", &ModelConfig::num_hidden_layers},
                                                  {"n_heads", &ModelConfig::num_attention_heads},
                                                  {"max_position_embeddings", &ModelConfig::max_position_embeddings}};

struct RopeType {
  const char* word;
  RopeScaling::Type type;
};
inline constexpr RopeType kRopeTypes[] = {
    {"default", RopeScaling::Type::none},    {"linear", RopeScaling::Type::linear},
    {"llama3", RopeScaling::Type::llama3},   {"yarn", RopeScaling::Type::yarn},
    {"dynamic", RopeScaling::Type::dynamic}, {"longrope", RopeScaling::Type::longrope}};

struct ActivationWord {
  const char* word;
  Activation activation;
};
/// The first word of an activation is the one that is written.
inline constexpr ActivationWord kActivations[] = {{"gelu_pytorch_tanh", Activation::gelu_tanh},
                                                  {"gelu_new", Activation::gelu_tanh},
                                                  {"gelu", Activation::gelu},
                                                  {"relu", Activation::relu}};

/// Words of our own encoder's keys.
template <typename Enum>
struct EnumWord {
  const char* word;
  Enum value;
};
inline constexpr EnumWord<NormPlacement> kPlacements[] = {{"pre", NormPlacement::pre}, {"post", NormPlacement::post}};
inline constexpr EnumWord<Pooling> kPoolings[] = {
    {"mean", Pooling::mean}, {"cls", Pooling::cls}, {"last", Pooling::last}};
template <typename Enum, size_t kCount>
const char* word_of(const EnumWord<Enum> (&words)[kCount], Enum value) {
  return std::ranges::find(words, value, &EnumWord<Enum>::value)->word;
}

/// BERT, its relatives, and our own encoder.
inline bool is_encoder(Architecture a) {
  return a == Architecture::bert || a == Architecture::roberta || a == Architecture::distilbert ||
         a == Architecture::encoder;
}

/// The key of the norms' epsilon.
inline const char* norm_key(Architecture a) {
  return a == Architecture::gpt2         ? "layer_norm_epsilon"
         : a == Architecture::starcoder2 ? "norm_epsilon"
         : a == Architecture::gpt_neox   ? "layer_norm_eps"
         : is_encoder(a)                 ? "layer_norm_eps"
                                         : "rms_norm_eps";
}
/// Granite's multipliers.
struct NumberKey {
  const char* key;
  double ModelConfig::* field;
};
inline constexpr NumberKey kMultipliers[] = {{"embedding_multiplier", &ModelConfig::embedding_multiplier},
                                             {"residual_multiplier", &ModelConfig::residual_multiplier},
                                             {"attention_multiplier", &ModelConfig::attention_scale},
                                             {"logits_scaling", &ModelConfig::logit_divisor}};

/// The keys of dropout that transformers' class of a family reads. gpt_neox has one for branches and embeddings.
/// BERT's relatives have none: their classes also drop before the classifier, which settings do not say.
struct DropoutKey {
  const char* key;
  double DropoutRates::* rate;
};
inline std::span<const DropoutKey> dropout_keys_of(Architecture a) {
  static constexpr DropoutKey kGpt2[] = {{"attn_pdrop", &DropoutRates::attention},
                                         {"resid_pdrop", &DropoutRates::residual},
                                         {"embd_pdrop", &DropoutRates::embedding}};
  static constexpr DropoutKey kNeox[] = {{"attention_dropout", &DropoutRates::attention},
                                         {"hidden_dropout", &DropoutRates::embedding},
                                         {"hidden_dropout", &DropoutRates::residual}};
  static constexpr DropoutKey kStarcoder2[] = {{"attention_dropout", &DropoutRates::attention},
                                               {"residual_dropout", &DropoutRates::residual},
                                               {"embedding_dropout", &DropoutRates::embedding}};
  static constexpr DropoutKey kPhi3[] = {{"attention_dropout", &DropoutRates::attention},
                                         {"resid_pdrop", &DropoutRates::residual}};  // its embd_pdrop is not read
  static constexpr DropoutKey kOthers[] = {{"attention_dropout", &DropoutRates::attention}};
  if (a == Architecture::gpt2) return kGpt2;
  if (a == Architecture::gpt_neox) return kNeox;
  if (a == Architecture::starcoder2 || a == Architecture::encoder) return kStarcoder2;
  if (a == Architecture::phi3) return kPhi3;
  if (is_encoder(a)) return {};
  return kOthers;
}

}  // namespace trireme::model
