// ModelConfig: the shape of a decoder-only transformer, in the words of a Hugging Face config.json.
// A shape has a name in the catalogue (model/catalogue.cpp) or comes from a file; `model.*` settings
// override single keys. Everything that changes the mathematics is a field here; nothing else is.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/model/rotary_frequencies.h"

namespace trireme::model {

enum class Architecture { llama, mistral, qwen2, qwen3, gemma2, gemma3, gpt2 };
enum class Activation { silu, gelu_tanh };

struct ModelConfig {
  std::string name;                        ///< catalogue name, "" for a file
  Architecture architecture = Architecture::llama;  ///< names of tensors and of keys; the mathematics is below
  int64_t vocab_size = 256;
  int64_t hidden_size = 256;
  int64_t intermediate_size = 704;
  int64_t num_hidden_layers = 6;
  int64_t num_attention_heads = 4;
  int64_t num_key_value_heads = 4;
  int64_t head_dim = 64;
  int64_t max_position_embeddings = 256;   ///< GPT-2: also the number of learned positions
  double norm_eps = 1e-5;                  ///< rms_norm_eps / layer_norm_epsilon
  double rope_theta = 10000.0;
  bool tie_word_embeddings = false;
  double initializer_range = 0.02;

  bool layer_norm = false;                 ///< norms center, and have biases (GPT-2); else RMSNorm
  double norm_offset = 0;                  ///< what is added to a norm's weight (Gemma: 1)
  Activation activation = Activation::silu;
  bool gated_mlp = true;
  bool learned_positions = false;          ///< instead of rotary ones
  RopeScaling rope_scaling;
  double rope_local_theta = 0;             ///< of blocks with a window, which are not scaled then; 0: as the others
  bool attention_bias = false;             ///< of q, k and v
  bool attention_out_bias = false;
  bool mlp_bias = false;
  bool query_key_norm = false;             ///< each head of q and k is normalised before its rotation
  bool post_norms = false;                 ///< attention and MLP are normalised before they join the residual stream
  bool scaled_embedding = false;           ///< times sqrt(hidden_size), rounded to the compute dtype
  double attention_scale = 0;              ///< 0: 1 / sqrt(head_dim)
  double attention_softcap = 0;            ///< scores become cap tanh(score / cap); 0: they stay
  double logit_softcap = 0;                ///< the head's logits likewise
  int64_t sliding_window = 0;  ///< keys that a query of a windowed block sees, itself included; 0: none is
  std::vector<bool> windowed;  ///< per block; empty: all of them, where there is a window

  bool is_text_half = false;  ///< of a model that sees, too: its vision tower is left out
  std::string source_json;  ///< the config.json this was read from, "" for none

  /// Keys that a query of block `layer` sees; 0: no limit.
  int64_t window(int64_t layer) const {
    return windowed.empty() || windowed[static_cast<size_t>(layer)] ? sliding_window : 0;
  }
  /// Keys that a query of block `layer` sees, on average over a sequence: half of it, or fewer in a window.
  double attended_keys(int64_t layer, int64_t sequence) const;
  /// The sum over blocks.
  double attended_keys(int64_t sequence) const;
  /// Same mathematics and same names of tensors.
  bool same_model(const ModelConfig& other) const;

  /// Elements of all parameters, a tied one counted once.
  int64_t num_parameters() const;
  /// Parameters that take part in matrix products (blocks and head; a tied head counts as the head).
  int64_t num_product_parameters() const;
  /// The config.json that `transformers` reads; `dtype` is "float32" or "bfloat16". Where this was read from a file,
  /// that file again, with what was changed since.
  std::string to_hugging_face_json(const std::string& dtype) const;
  /// Errors  UsageError naming the key and the rule (heads divide width, kv heads divide heads, sizes > 0, ...)
  void validate() const;

  bool operator==(const ModelConfig&) const = default;
};

/// What config.json leaves out, for each architecture: the values of transformers' classes.
ModelConfig default_config(Architecture architecture);

/// The word for it in config.json ("gemma3_text"), and back.
/// Errors    UsageError naming what is known
const char* model_type(Architecture architecture);
Architecture find_architecture(const std::string& model_type, const std::string& source);

/// Takes over the architecture's mathematics (norms, biases, activation, ...), and leaves sizes alone.
void set_architecture(ModelConfig& config, Architecture architecture);
/// Changes the number of blocks: those beyond the last follow the pattern of windows.
void set_num_hidden_layers(ModelConfig& config, int64_t blocks);

/// Parses a config.json. Errors: UsageError for an architecture or a field that this model cannot honour.
ModelConfig parse_hugging_face_config(const std::string& json_text, const std::string& source);

/// The shape of a published or built-in name.
/// Errors    UsageError with the nearest names when there is none
ModelConfig catalogue_config(const std::string& name);
std::vector<std::string> catalogue_names();

}  // namespace trireme::model
