// Which share of the machine's peak arithmetic a run reaches. Counts what the model needs (model FLOPs,
// "MFU"): work done again by recomputation is not credited. The peak itself is measured elsewhere.
#pragma once

#include <cstdint>

namespace trireme::observe {

struct FlopsShape {
  int64_t matmul_parameters = 0;  ///< N: weights used in products, the head counted once, no embedding table
  int64_t heads = 0;              ///< H, query heads
  int64_t head_dim = 0;           ///< d
  /// K: keys that a query sees, on average, summed over the layers (model::ModelConfig::attended_keys). L S with all
  /// scores, as in PaLM and Megatron reports; L S / 2 with the half that a causal mask leaves; less with windows.
  double attended_keys = 0;
};

/// Floating-point operations to train on one token, forward and backward (a multiply-add counts 2): 6 N + 12 H d K.
/// Source: Chowdhery et al., PaLM (2022), appendix B.
double training_flops_per_token(const FlopsShape& shape);

/// In [0, 1] for an honest peak. `peak_flops_per_second` of the whole job: all ranks together.
double peak_fraction(double tokens_per_second, double flops_per_token, double peak_flops_per_second);

}  // namespace trireme::observe
