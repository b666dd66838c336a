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

  struct Text {
    std::vector<int64_t> tokens;
    int64_t label = -100;  ///< -100: not known
  };
  struct Judged {
    at::Tensor logits;         ///< [texts, num_labels], compute dtype
    std::vector<double> sums;  ///< over texts with labels: the loss, then ClassifierHead::measures()
  };
  /// Cost      one forward over texts x longest text; memory as the forward of one block
  /// Errors    UsageError for texts that are empty or longer than the positions
  Judged judge(std::span<const Text> texts) const;

  const ModelConfig& config() const { return model_.config; }

 private:
  Model model_;
  Precision precision_;
  std::vector<std::vector<at::Tensor>> weights_;
};

}  // namespace trireme::model
