// Optimizers work on one flat span of a sharding group. A single pass reads the gradient and updates the master
// weights, the rule's state and the copy in the compute dtype. Elements are independent, so the bits do not depend on
// how the group is divided into shards.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/optim/settings.h"

namespace trireme::model {
struct ParameterSpec;
}

namespace trireme::optim {

struct OptimizerOptions {
  Rule rule = Rule::adamw;
  double lr;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.01;
  double momentum = 0;  ///< for sgd, lars and muon
  bool nesterov = false;  ///< for sgd and muon
  double trust_coefficient = 1e-3;  ///< for lars
  std::array<double, 2> trust_bounds = {0.01, 10};  ///< for lamb
  bool match_rms = false;  ///< for muon: MuonRate::match_rms_adamw
  bool relative_step = false, scale_parameter = false, warmup_init = false;  ///< for adafactor
  double companion_rate = 1;  ///< for muon: what AdamW updates has this rate, times lr
  int64_t step;  ///< 1 at the first update
  double gradient_scale = 1;  ///< the clip factor: gradients are first multiplied by it
};

/// A rule's options with torch.optim's defaults (Lion: those of its paper); lr and step are 0.
OptimizerOptions options_of(Rule rule);

/// The same of any rule, by its name in settings: AdamW, SGD, Muon, ...
/// Errors    UsageError for another name
OptimizerOptions options_of(std::string_view name);

/// The options of a run's rule. The caller sets lr and step for each step.
OptimizerOptions options_of(const OptimizerSettings& settings);

/// The options of one group's rule, if the run's is `run`: AdamW's beside Muon.
OptimizerOptions options_of_group(const OptimizerOptions& run, Rule rule);

/// Names of the tensors that the rule keeps between steps, as PyTorch calls them: exp_avg and exp_avg_sq, or
/// momentum_buffer, sum, or none. These have the parameters' shapes; Adafactor's have not (whole_state).
std::vector<std::string> state_names(const OptimizerOptions& options);

/// Elements [begin, end) of the span, with or without weight decay. Segments cover the span in order.
struct DecaySegment {
  int64_t begin;
  int64_t end;
  bool decay;
  double rate = 1;  ///< times the learning rate
  std::optional<double> weight_decay = {};  ///< if the segment decays; absent: the options'
  const model::ParameterSpec* parameter = nullptr;  ///< null: padding
  int64_t untrained = 0;  ///< of the options' steps, those before the segment was trained: its state has not seen them
};

/// The step that the segment's state has come to.
inline int64_t step_of(const DecaySegment& segment, const OptimizerOptions& options) {
  return options.step - segment.untrained;
}

/// One update. With g = gradient * gradient_scale, and w = weight_decay where the segment decays, else 0:
///   adamw  m += (1 - beta1)(g - m);  v = beta2 v + (1 - beta2) g^2;  p *= 1 - lr w
///          p -= lr / (1 - beta1^step) * m / (sqrt(v) / sqrt(1 - beta2^step) + eps)
///   adam   the same with g + w p for g, and without the product
///   sgd    g += w p;  b = momentum b + g;  p -= lr * (b, or g + momentum b for nesterov, or g without momentum)
///   lars   b = momentum b + lr (g + w p);  p -= b, where lr has been multiplied by the tensor's rate
///   lamb   p -= lr sqrt(1 - beta2^step) / (1 - beta1^step) * (m / (sqrt(v) + eps) + w p), where m and v have been
///          updated (lamb_directions) and lr multiplied by the tensor's ratio
///   adagrad  g += w p;  s += g^2;  p -= lr * g / (sqrt(s) + eps)
///   lion   p *= 1 - lr w;  p -= lr * sign(beta1 m + (1 - beta1) g);  m = beta2 m + (1 - beta2) g
/// and compute = p, rounded. `step` is step_of() of each segment.
///
/// Shapes    all [n], n = the end of the last segment; `state` has a tensor for each of state_names
/// dtypes    master, state and gradient float32 (or all float64); compute undefined, bfloat16 or master's dtype
/// Cost      with s tensors of state reads 8 + 4 s, writes 6 + 4 s or 8 + 4 s bytes an element (float32)
/// Errors    ShapeError when a tensor or the segments do not fit
void optimizer_update(const at::Tensor& master, std::span<const at::Tensor> state, const at::Tensor& gradient,
                      const at::Tensor& compute, std::span<const DecaySegment> segments,
                      const OptimizerOptions& options);

/// The first half of LAMB's step of one segment: updates both moments, and sets partials [ceil(n / 4096)] float64 to
/// the sums of squares of blocks of the direction m / (sqrt(v) + eps) + w p.
void lamb_directions(const at::Tensor& master, std::span<const at::Tensor> state, const at::Tensor& gradient,
                     const DecaySegment& segment, const OptimizerOptions& options, const at::Tensor& partials);

/// Elements per partial of a norm. Shards begin at multiples of it, so that partials do not depend on the sharding.
constexpr int64_t kNormBlock = 4096;

/// partials [ceil(n / 4096)] float64 = sum of squares of each block of gradient [n] (float32 or float64).
/// Numerics  always 32 lanes in float64, added pairwise: the bits are the same for every instruction set and number of
///           threads
void squared_norm_partials(const at::Tensor& partials, const at::Tensor& gradient);
/// Adds the terms [n] float64 to limbs [ExactSum::kLimbs] int64, both on a GPU, as ExactSum does on the host.
void add_exactly(const at::Tensor& limbs, const at::Tensor& terms);

}  // namespace trireme::optim
