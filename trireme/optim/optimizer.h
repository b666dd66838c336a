// Optimizers over one flat span of a sharding group: a single pass reads the gradient and updates master weights, the
// state of the rule and the copy in the compute dtype. Elements do not see each other, so the bits do not depend on how
// the group is cut into shards.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::optim {

enum class Rule {
  adamw,  ///< Loshchilov & Hutter, 2019; torch.optim.AdamW
  adam,  ///< Kingma & Ba, 2015; torch.optim.Adam: the weight decay is a part of the gradient
  sgd,  ///< with momentum, Nesterov's where asked for; torch.optim.SGD: the weight decay is a part of the gradient
  lion,  ///< Chen et al., 2023: the sign of an interpolated momentum, with AdamW's decay
};

struct OptimizerOptions {
  Rule rule = Rule::adamw;
  double lr;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.01;
  double momentum = 0;  ///< sgd's
  bool nesterov = false;  ///< sgd's
  int64_t step;  ///< 1 at the first update
  double gradient_scale = 1;  ///< gradients are multiplied by it first: the clip factor
};

/// The options of the optimizer called AdamW, Adam, SGD or Lion, with torch.optim's defaults (Lion: its paper's);
/// lr and step are 0.
/// Errors    UsageError for another name
OptimizerOptions options_of(std::string_view name);

/// Names of the tensors that the rule keeps between steps, as PyTorch calls them: exp_avg and exp_avg_sq, or
/// momentum_buffer, or none.
std::vector<std::string> state_names(const OptimizerOptions& options);

/// Elements [begin, end) of the span, with or without weight decay. Segments cover the span in order.
struct DecaySegment {
  int64_t begin;
  int64_t end;
  bool decay;
};

/// One update. With g = gradient * gradient_scale, and w = weight_decay where the segment decays, else 0:
///   adamw  m += (1 - beta1)(g - m);  v = beta2 v + (1 - beta2) g^2;  p *= 1 - lr w
///          p -= lr / (1 - beta1^step) * m / (sqrt(v) / sqrt(1 - beta2^step) + eps)
///   adam   the same with g + w p for g, and without the product
///   sgd    g += w p;  b = momentum b + g;  p -= lr * (b, or g + momentum b for nesterov, or g without momentum)
///   lion   p *= 1 - lr w;  p -= lr * sign(beta1 m + (1 - beta1) g);  m = beta2 m + (1 - beta2) g
/// and compute = p, rounded.
///
/// Shapes    all [n], n = the end of the last segment; `state` has a tensor for each of state_names
/// dtypes    master, state and gradient float32 (or all float64); compute undefined, bfloat16 or master's dtype
/// Cost      with s tensors of state reads 8 + 4 s, writes 6 + 4 s or 8 + 4 s bytes an element (float32)
/// Errors    ShapeError when a tensor or the segments do not fit
void optimizer_update(const at::Tensor& master, std::span<const at::Tensor> state, const at::Tensor& gradient,
                      const at::Tensor& compute, std::span<const DecaySegment> segments,
                      const OptimizerOptions& options);

/// Elements per partial of a norm; shards begin at its multiples, so that partials do not depend on the cut.
constexpr int64_t kNormBlock = 4096;

/// partials [ceil(n / 4096)] float64 = sum of squares of each block of gradient [n] (float32 or float64).
/// Numerics  32 lanes in float64 whatever the processor's vectors are, added pairwise: the bits are the same on
///           every instruction set and number of threads
void squared_norm_partials(const at::Tensor& partials, const at::Tensor& gradient);

}  // namespace trireme::optim
