// A model that is alone on this rank and not trained: its own plan, arena and engine, for texts.
#pragma once

#include <optional>
#include <span>

#include "trireme/generate/generator.h"
#include "trireme/model/unit_weights.h"

namespace trireme::generate {

class Alone {
 public:
  /// `fill` writes the weights: one call for each parameter. Empty: they are the same small number.
  /// @param longest_prompt  of a Free Transformer
  /// @param memory  EngineOptions::memory
  /// Errors    UsageError for an invalid configuration; Error without the memory
  Alone(const model::ModelConfig& config, const model::Precision& precision, const model::FillWeights& fill,
        const Room& room, int64_t longest_prompt = 0, std::span<char> memory = {});

  /// Writes the weights anew.
  void refill(const model::FillWeights& fill);

  /// Made by the first call; a caller that has its own needs none.
  Generator& generator();
  engine::Engine& engine() { return engine_; }
  const model::ModelConfig& config() const { return model_.config; }
  /// Logits [N,V] after each of `tokens`, which begin a text and are read `at_a_time`; 0: as many as a run has room
  /// for. No other text may be under way. A Free Transformer's codes are uniform, from seed 0. Errors    UsageError for
  /// more tokens than the cache holds
  at::Tensor logits(std::span<const int64_t> tokens, int64_t at_a_time = 0);

 private:
  model::Model model_;
  engine::Engine engine_;
  Room room_;
  std::optional<Generator> generator_;
};

/// Bytes of Alone's arena.
int64_t alone_bytes(const model::ModelConfig& config, const model::Precision& precision, const Room& room);

}  // namespace trireme::generate
