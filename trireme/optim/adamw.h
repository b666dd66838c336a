// AdamW (Loshchilov & Hutter, 2019; the formula of torch.optim.AdamW) over one flat span of a sharding group:
// a single pass reads the gradient and updates master weights, both moments and the copy in the compute dtype.
// Elements do not see each other, so the bits do not depend on how the group is cut into shards.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

namespace trireme::optim {

struct AdamWOptions {
  double lr;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.01;
  int64_t step;               ///< 1 at the first update
  double gradient_scale = 1;  ///< gradients are multiplied by it first: the clip factor
};

/// Elements [begin, end) of the span, with or without weight decay. Segments cover the span in order.
struct DecaySegment {
  int64_t begin;
  int64_t end;
  bool decay;
};

/// With g = gradient * gradient_scale:
///   m += (1 - beta1)(g - m);  v = beta2 v + (1 - beta2) g^2;  p *= 1 - lr weight_decay (where the segment decays);
///   p -= lr / (1 - beta1^step) * m / (sqrt(v) / sqrt(1 - beta2^step) + eps);  compute = p, rounded
///
/// Shapes    all [n], n = the end of the last segment
/// dtypes    master, moments and gradient float32 (or all float64); compute undefined, bfloat16 or master's dtype
/// Cost      reads 16, writes 12 to 14 bytes an element (float32)
/// Errors    ShapeError when a tensor or the segments do not fit
void adamw_update(const at::Tensor& master, const at::Tensor& exp_avg, const at::Tensor& exp_avg_sq,
                  const at::Tensor& gradient, const at::Tensor& compute, std::span<const DecaySegment> segments,
                  const AdamWOptions& options);

/// Elements per partial of a norm; shards begin at its multiples, so that partials do not depend on the cut.
constexpr int64_t kNormBlock = 4096;

/// partials [ceil(n / 4096)] float64 = sum of squares of each block of gradient [n] (float32 or float64).
/// Numerics  32 lanes in float64 whatever the processor's vectors are, added pairwise: the bits are the same on
///           every instruction set and number of threads
void squared_norm_partials(const at::Tensor& partials, const at::Tensor& gradient);

}  // namespace trireme::optim
