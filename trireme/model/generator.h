// Generator: a model with all its weights in memory, one token at a time against a key/value cache.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <random>
#include <vector>

#include "trireme/model/model.h"

namespace trireme::model {

struct SamplingOptions {
  double temperature = 0.8;        ///< 0: always the likeliest token
  std::optional<int64_t> top_k;    ///< only the k likeliest
  double top_p = 1.0;              ///< only the likeliest that together reach this probability
  uint64_t seed = 42;
};

/// Draws a token from logits [V]. Errors: ShapeError when they hold no finite number.
int64_t sample_token(const at::Tensor& logits, const SamplingOptions& options, std::mt19937_64& random);

class Generator {
 public:
  /// Weights are given by `fill`, which is called once for each parameter with its name and the tensor to write
  /// (of the compute dtype).
  using Fill = std::function<void(const ParameterSpec& parameter, const at::Tensor& tensor)>;
  Generator(const ModelConfig& config, const Precision& precision, const Fill& fill);

  /// Logits [V] after one more token. When the context is full, its newest half is read again from position 0.
  /// Errors    UsageError for a token outside the vocabulary
  at::Tensor next_logits(int64_t token);

  /// Feeds `prompt`, then draws up to `max_new_tokens`; `emit` gets each new token and returns false to stop.
  void generate(const std::vector<int64_t>& prompt, int64_t max_new_tokens, const SamplingOptions& options,
                const std::function<bool(int64_t)>& emit);

  void reset();
  const ModelConfig& config() const { return model_.config; }

 private:
  at::Tensor logits_at(int64_t token, int64_t position);

  Model model_;
  Precision precision_;
  std::vector<std::vector<at::Tensor>> group_parameters_;
  std::vector<std::vector<at::Tensor>> unit_parameters_;
  std::vector<at::Tensor> k_cache_, v_cache_;   ///< per block [1, S_max, K*d]
  std::vector<int64_t> context_;
};

}  // namespace trireme::model
