// ModelConfig: the shape of a decoder-only transformer, in the words of a Hugging Face config.json.
// A shape has a name in the catalogue (model/catalogue.cpp) or comes from a file; `model.*` settings
// override single keys. Everything that changes the mathematics is a field here; nothing else is.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trireme::model {

enum class Architecture { llama, gpt2 };

struct ModelConfig {
  std::string name;                        ///< catalogue name, "" for a file
  Architecture architecture = Architecture::llama;
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

  /// Elements of all parameters, a tied one counted once.
  int64_t num_parameters() const;
  /// Parameters that take part in matrix products (blocks and head; a tied head counts as the head).
  int64_t num_product_parameters() const;
  /// The config.json that `transformers` reads; `dtype` is "float32" or "bfloat16".
  std::string to_hugging_face_json(const std::string& dtype) const;
  /// Errors  UsageError naming the key and the rule (heads divide width, kv heads divide heads, sizes > 0, ...)
  void validate() const;
};

/// Parses a config.json. Errors: UsageError for an architecture or a field that this model cannot honour.
ModelConfig parse_hugging_face_config(const std::string& json_text, const std::string& source);

/// The shape of a published or built-in name.
/// Errors    UsageError with the nearest names when there is none
ModelConfig catalogue_config(const std::string& name);
std::vector<std::string> catalogue_names();

}  // namespace trireme::model
