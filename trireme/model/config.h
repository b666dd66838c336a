// ModelConfig: the shape of a decoder or of an encoder that classifies, in the words of a Hugging Face config.json. A
// shape has a name in the catalogue (model/catalogue.cpp) or comes from a file; `model.*` settings override single
// keys. Only what changes the mathematics is a field.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/block_format.h"
#include "trireme/model/rotary_frequencies.h"
#include "trireme/model/settings.h"

namespace trireme::model {

enum class Architecture {
  llama,
  mistral,
  qwen2,
  qwen3,
  gemma2,
  gemma3,
  gpt2,
  free_transformer,
  gemma,
  smollm3,
  granite,
  starcoder2,
  phi3,
  gpt_neox,
  olmo2,
  bert,
  roberta,
  distilbert,
  encoder  ///< ours: pre-norm or post-norm, without what BERT has around its blocks
};
/// A gated MLP has silu or gelu_tanh; gelu is the exact one.
enum class Activation { silu, gelu_tanh, gelu, relu };

/// The latent of a Free Transformer: an encoder before block `split_layer` draws bits for each token, which the keys
/// and values of that block see. Without bits, a model is a plain decoder.
struct FreeConfig {
  int64_t latent_bits = 0;  ///< 0: no latent
  int64_t split_layer = 0;  ///< blocks before it, which the encoder reads
  Injection injection = Injection::table;
  double free_bits = 0.5;   ///< divergence from the prior that costs nothing, bits a token
  double kl_weight = 1;     ///< of what exceeds it, in the loss
  double free_nats() const;
  bool operator==(const FreeConfig&) const = default;
};

/// A head that says which label a text has: a layer over the pooled hidden state (in BERT-like models), then one logit
/// for each label.
struct ClassifierConfig {
  enum class Pooler { none, tanh, relu };
  int64_t num_labels = 0;           ///< 0: the model has no such head
  std::vector<std::string> labels;  ///< their names
  Pooling pooling = Pooling::last;
  Pooler pooler = Pooler::none;  ///< activation of the layer before
  bool bias = false;
  bool operator==(const ClassifierConfig&) const = default;
};

/// The shares that training drops (model/dropout.h). Evaluation and generation drop nothing.
struct DropoutRates {
  double attention = 0;  ///< of attention weights, after the softmax
  double residual = 0;  ///< of the attention's output, before it is added
  double mlp = 0;  ///< of the MLP's output, likewise; as `residual` in models of transformers
  double embedding = 0;  ///< of the first block's input
  /// NEFTune: noise that is added to the tokens' embeddings, uniform in +-neftune / sqrt(sequence x width); no dropout
  double neftune = 0;
  bool any() const { return attention > 0 || branches() || embedding > 0; }
  bool branches() const { return residual > 0 || mlp > 0; }
  /// "0.1 of attention weights, 0.1 of embeddings"
  std::string describe() const;
  bool operator==(const DropoutRates&) const = default;
};

struct ModelConfig {
  std::string name;  ///< catalogue name; of a file, the folder that was named, or ""
  Architecture architecture = Architecture::llama;  ///< names of tensors and keys
  int64_t vocab_size = 256;
  int64_t hidden_size = 256;
  int64_t intermediate_size = 704;
  int64_t num_hidden_layers = 6;
  int64_t num_attention_heads = 4;
  int64_t num_key_value_heads = 4;
  int64_t head_dim = 64;
  int64_t max_position_embeddings = 256;  ///< GPT-2: also the number of learned positions
  double norm_eps = 1e-5;  ///< rms_norm_eps / layer_norm_epsilon
  double rope_theta = 10000.0;
  bool tie_word_embeddings = false;
  double initializer_range = 0.02;

  bool layer_norm = false;  ///< LayerNorm with biases (GPT-2); otherwise RMSNorm
  double norm_offset = 0;  ///< added to a norm's weight (Gemma: 1)
  Activation activation = Activation::silu;
  bool gated_mlp = true;
  bool learned_positions = false;  ///< instead of rotary ones
  double rotary_fraction = 1;  ///< of a head's width that is rotated: its first elements
  std::vector<bool> unrotated;  ///< blocks without positions (SmolLM3); empty: none
  RopeScaling rope_scaling;
  double rope_local_theta = 0;  ///< theta of windowed blocks, then without rope_scaling; 0: as other blocks
  bool attention_bias = false;  ///< q, k and v have biases
  bool attention_out_bias = false;
  bool mlp_bias = false;
  bool query_key_norm = false;  ///< normalises each head of q and k before the rotation
  bool wide_query_key_norm = false;  ///< normalises all heads of q together, and those of k (OLMo 2)
  bool pre_norms = true;  ///< normalises the inputs of attention and MLP
  bool post_norms = false;  ///< normalises the outputs of attention and MLP before they are added
  bool sum_norms = false;  ///< post-norm: normalises the sums of the residual stream and attention or MLP
  bool final_norm = true;  ///< normalises the last block's output
  bool bidirectional = false;  ///< a token sees later ones of its document too
  bool embedding_norm = false;  ///< LayerNorm of the embedding's rows
  int64_t first_position = 0;  ///< rows of the table of positions before that of position 0 (RoBERTa: 2)
  int64_t token_types = 0;  ///< rows of a further table, of which all tokens of a text get the first (BERT)
  bool parallel_residual = false;  ///< attention and MLP read the same input (GPT-NeoX)
  double embedding_multiplier = 1;  ///< of the embedding's rows (Granite)
  double residual_multiplier = 1;  ///< of the outputs of attention and MLP (Granite)
  double logit_divisor = 1;  ///< of the logits (Granite)
  bool scaled_embedding = false;  ///< multiplied by sqrt(hidden_size), rounded to the compute dtype
  double attention_scale = 0;  ///< 0: 1 / sqrt(head_dim)
  double attention_softcap = 0;  ///< scores become cap tanh(score / cap); 0: no cap
  double logit_softcap = 0;  ///< the same for the head's logits
  int64_t sliding_window = 0;  ///< keys that a query of a windowed block sees, itself included; 0: no window
  std::vector<bool> windowed;  ///< per block; empty: all blocks, if there is a window

  base::BlockFormat quantized = base::BlockFormat::none;  ///< of the matrices of all blocks, which are then frozen
  std::string quantized_by = "quantize";  ///< the setting that asks for it, for refusals
  /// Of the head's matrix, and of the embedding's if they are one. Only models that are not trained are kept so.
  base::BlockFormat quantized_head = base::BlockFormat::none;

  /// Of models that are not trained (build_model sets it): their matrices lie in the panel order of the product kernel
  /// for this dtype (ops/products/packed.h).
  std::optional<c10::ScalarType> packed;

  FreeConfig free;
  ClassifierConfig classifier;
  DropoutRates dropout;

  bool is_text_half = false;  ///< the text half of a vision model, without its vision tower
  std::vector<std::string> passed_over;  ///< keys of the file that change nothing here, but may surprise by that
  std::string source_json;  ///< the config.json that this was read from; "": none
  std::optional<int64_t> pad_token_id;  ///< what a saved config.json names if source_json names none
  std::string special_ids_json;  ///< of a text half: the ids of special tokens that a saved config.json has
  /// The token of padding that the file names, or a saved one will.
  std::optional<int64_t> padding() const;

  /// Elements of a head that are rotated.
  int64_t rotary_dim() const { return static_cast<int64_t>(static_cast<double>(head_dim) * rotary_fraction); }
  /// Whether block `layer` has rotary positions.
  bool rotates(int64_t layer) const {
    return !learned_positions && (unrotated.empty() || !unrotated[static_cast<size_t>(layer)]);
  }
  /// The longest sequence that the model is trained on: more than max_position_embeddings with dynamic scaling.
  int64_t longest_sequence() const;
  /// The longest text that generation writes: its cache keeps the rotations of older keys.
  int64_t longest_generation() const;
  /// The same for messages: "the model has 64 positions", and why there are no more if it is trained on longer ones.
  std::string generation_positions() const;
  /// Whether the rotary frequencies depend on the length of the text.
  bool rotates_by_length() const {
    return rope_scaling.type == RopeScaling::Type::dynamic || rope_scaling.type == RopeScaling::Type::longrope;
  }
  /// Keys that a query of block `layer` sees; 0: no limit.
  int64_t window(int64_t layer) const {
    return windowed.empty() || windowed[static_cast<size_t>(layer)] ? sliding_window : 0;
  }
  /// Mean number of keys that a query of block `layer` sees: half the sequence, or fewer in a window.
  double attended_keys(int64_t layer, int64_t sequence) const;
  /// The sum over blocks.
  double attended_keys(int64_t sequence) const;
  bool is_free() const { return free.latent_bits > 0; }
  bool is_classifier() const { return classifier.num_labels > 0; }
  /// One line for each thing of the file that is left out.
  std::vector<std::string> remarks() const;
  /// Whether both have the same mathematics and the same names of tensors.
  bool same_model(const ModelConfig& other) const;

  /// Elements of all parameters, a tied one counted once.
  int64_t num_parameters() const;
  /// Parameters that take part in matrix products (blocks and head; a tied head counts as the head).
  int64_t num_product_parameters() const;
  /// The config.json that `transformers` reads; `dtype` is "float32" or "bfloat16". A shape that was read from a file
  /// gives that file again, with the fields that have changed since.
  std::string to_hugging_face_json(const std::string& dtype) const;
  /// Errors  UsageError naming the key and the rule (heads divide width, kv heads divide heads, sizes > 0, ...)
  void validate() const;

  bool operator==(const ModelConfig&) const = default;
};

/// The values of keys that a config.json lacks: the defaults of transformers' classes.
ModelConfig default_config(Architecture architecture);

/// The architecture's model_type in config.json ("gemma3_text"); find_architecture is the inverse.
/// Errors    UsageError naming the known ones
const char* model_type(Architecture architecture);
/// The class in transformers, as config.json names it: "LlamaForCausalLM"; with a classification head
/// "LlamaForSequenceClassification".
std::string class_name(const ModelConfig& config);
Architecture find_architecture(const std::string& model_type, const std::string& source);

/// Sets the architecture's mathematics (norms, biases, activation, ...), but no sizes.
void set_architecture(ModelConfig& config, Architecture architecture);
/// Puts the norms of all blocks before attention and MLP, and one at the end; or behind the sums, and none at the end.
void place_norms(ModelConfig& config, NormPlacement placement);
/// Gives the model a head for these labels, in place of the one that it has.
void set_labels(ModelConfig& config, std::vector<std::string> labels);
/// Changes the number of blocks; new blocks continue the pattern of windows.
void set_num_hidden_layers(ModelConfig& config, int64_t blocks);

/// Parses a config.json. Errors: UsageError for an architecture or a field that is not supported
ModelConfig parse_hugging_face_config(const std::string& json_text, const std::string& source);

/// The shape that has this name in the catalogue.
/// Errors    UsageError with the nearest name if the name is unknown
ModelConfig catalogue_config(const std::string& name);
std::vector<std::string> catalogue_names();

}  // namespace trireme::model
