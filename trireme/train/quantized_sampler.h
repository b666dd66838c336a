// The model that writes a rollout's answers from weights in 4 bits (grpo.rollout_quantize). Each rank has it whole,
// with adapters merged, and answers prompts of its own: so nothing is sent while answers are written, and they are the
// same on any mesh. It lies in memory of the run's plan that no value has between two steps
// (plan::StepRequest::lent_bytes), so each rollout quantizes the weights as they are then.
#pragma once

#include "trireme/generate/alone.h"
#include "trireme/train/session.h"

namespace trireme::train {

/// Bytes of its arena: weights, cache and work. 0 without grpo.rollout_quantize.
/// Errors    UsageError for models that cannot be kept in 4 bits
int64_t quantized_sampler_bytes(const Settings& settings, const model::ModelConfig& config);

class QuantizedSampler {
 public:
  explicit QuantizedSampler(Session& session);

  /// Quantizes the weights as they are now. They last until the run's engine runs a list. Every rank must call.
  ///
  /// Cost      a pass over the weights; sends them, where ranks divide them. Beside the plan, one matrix in float32
  ///           and in 4 bits, and collecting_bytes()
  /// Errors    CheckpointError naming a matrix with a value that is not finite
  void load();

  engine::Engine& engine() { return alone_.engine(); }

 private:
  Session& s_;
  generate::Alone alone_;
};

}  // namespace trireme::train
