// Generator holds a model's weights and a key/value cache; it computes logits and draws tokens. Each tensor-parallel
// rank holds its part of every matrix and of the cache. Each pipeline stage holds its blocks. All ranks call with the
// same tokens, and all get the token that was drawn.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <random>
#include <span>
#include <vector>

#include "trireme/model/model.h"
#include "trireme/model/unit_weights.h"

namespace trireme::model {

struct SamplingOptions {
  double temperature = 0.8;        ///< 0: always the most likely token
  std::optional<int64_t> top_k;    ///< only the k most likely tokens
  double top_p = 1.0;              ///< only the most likely tokens that together reach this probability
  uint64_t seed = 42;
};

/// Draws a token from logits [V]. Errors: ShapeError if the largest is not finite
int64_t sample_token(const at::Tensor& logits, const SamplingOptions& options, std::mt19937_64& random);

/// This rank's place among the ranks that generate together. No context or sequence parallelism.
struct GeneratorRanks {
  Parallel parallel;
  int stage = 0, num_stages = 1;
  comm::Communicator* tp = nullptr;      ///< of the tensor-parallel ranks
  comm::Communicator* stages = nullptr;  ///< of the pipeline stages, in their order
};

class Generator {
 public:
  /// `fill` writes the weights: one call for each parameter of this rank's units.
  /// @param capacity  tokens in the cache; 0: all positions of the model
  Generator(const ModelConfig& config, const Precision& precision, const FillWeights& fill,
            const GeneratorRanks& ranks = {}, int64_t capacity = 0);

  /// Logits [V] after the last of `tokens`; undefined except on the last stage. A Free Transformer's encoder reads
  /// tokens at position 0 and those with them. `tokens` follow those of earlier calls. When the cache is full, its
  /// newest half is computed again from position 0.
  ///
  /// Cost      one pass over the weights for every 512 tokens
  /// Errors    UsageError for a token outside the vocabulary
  at::Tensor next_logits(std::span<const int64_t> tokens);
  at::Tensor next_logits(int64_t token) { return next_logits({&token, 1}); }

  /// The same after each of `tokens`: [N,V]. The tokens must fit into the cache. A Free Transformer draws codes from
  /// the prior: the encoder's would tell of the tokens that are judged.
  at::Tensor all_logits(std::span<const int64_t> tokens);

  /// Feeds `prompt`, then draws up to `max_new_tokens`. `emit` gets each new token and returns false to stop. It must
  /// stop every rank at the same token.
  void generate(std::span<const int64_t> prompt, int64_t max_new_tokens, const SamplingOptions& options,
                const std::function<bool(int64_t)>& emit);

  /// Forgets all tokens except the first `kept`.
  void reset(int64_t kept = 0) { context_.resize(static_cast<size_t>(kept)); }
  /// The code of every new token of a Free Transformer from now on; otherwise each is drawn.
  /// Errors    UsageError if the model has no latent, or none of so many codes
  void fix_latent(int64_t code);
  /// Codes are drawn from this seed from now on, whatever SamplingOptions::seed says: texts share them.
  /// Errors    UsageError if the model has no latent
  void seed_latent(uint64_t seed);
  int64_t num_tokens() const { return static_cast<int64_t>(context_.size()); }
  const ModelConfig& config() const { return model_.config; }
  int64_t capacity() const { return capacity_; }

 private:
  bool is_last_stage() const { return ranks_.stage + 1 == ranks_.num_stages; }
  void check(std::span<const int64_t> tokens) const;
  enum class Codes { from_encoder, from_prior };
  at::Tensor feed(std::span<const int64_t> tokens, bool all, Codes codes);
  at::Tensor prior_codes(int64_t count) const;
  int64_t tokens_at_once() const;
  int64_t draw(const at::Tensor& logits, const SamplingOptions& options, std::mt19937_64& random);

  Model model_;
  Precision precision_;
  GeneratorRanks ranks_;
  int64_t capacity_;
  int first_unit_ = 0, last_unit_ = 0;  ///< of this stage: [first, last)
  std::vector<std::vector<at::Tensor>> unit_parameters_;  ///< by unit of the model; empty if another stage has it
  std::vector<at::Tensor> k_cache_, v_cache_;  ///< by unit of the model [capacity, K*d]
  std::vector<int64_t> context_;
  std::optional<int64_t> fixed_latent_;
  uint64_t latent_seed_ = 0;
  bool has_own_latent_seed_ = false;
};

}  // namespace trireme::model
