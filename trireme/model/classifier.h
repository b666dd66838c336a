// Classifier holds the weights of a model with labels, and computes the logits of texts. It runs the units' own
// forward, so its logits are those of training.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "trireme/model/unit_weights.h"

namespace trireme::model {

class Classifier {
 public:
  /// Errors    UsageError if the model has no labels
  Classifier(const ModelConfig& config, const Precision& precision, const FillWeights& fill);

  /// Logits [texts, num_labels] in the compute dtype.
  ///
  /// Cost      one forward over texts x longest text; memory as the forward of one block
  /// Errors    UsageError for a token outside the vocabulary, and texts that are empty or longer than the positions
  at::Tensor logits(std::span<const std::vector<int64_t>> texts) const;

  const ModelConfig& config() const { return model_.config; }

 private:
  Model model_;
  Precision precision_;
  std::vector<std::vector<at::Tensor>> weights_;
};

}  // namespace trireme::model
