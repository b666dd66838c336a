// The share of the machine's peak arithmetic that a run reaches ("model FLOPs utilization", MFU). It counts the
// operations that the model needs, without recomputation. train/pace.cpp measures the peak.
#pragma once

#include <cstdint>

namespace trireme::observe {

struct FlopsShape {
  int64_t matmul_parameters = 0;  ///< N: weights used in products, the head counted once, no embedding table
  int64_t frozen_parameters = 0;  ///< F: of these, weights without a gradient
  int64_t heads = 0;              ///< H, query heads
  int64_t head_dim = 0;           ///< d
  /// K: the mean number of keys that a query sees, summed over the layers (model::ModelConfig::attended_keys). If all
  /// scores count, as in PaLM and Megatron reports, K is L S; with a causal mask L S / 2; with windows less.
  double attended_keys = 0;
};

/// Floating-point operations to train on one token, forward and backward (a multiply-add counts 2):
/// 6 N - 2 F + 12 H d K.
/// Source: Chowdhery et al., PaLM (2022), appendix B.
inline double training_flops_per_token(const FlopsShape& shape) {
  // Scores and values are 2 products of 2 d operations a head and key; backward costs twice the forward.
  return 6.0 * static_cast<double>(shape.matmul_parameters) - 2.0 * static_cast<double>(shape.frozen_parameters) +
         12.0 * static_cast<double>(shape.heads) * static_cast<double>(shape.head_dim) * shape.attended_keys;
}

/// In [0, 1] if the peak was measured well. `peak_flops_per_second` is that of all ranks together.
inline double peak_fraction(double tokens_per_second, double flops_per_token, double peak_flops_per_second) {
  return tokens_per_second * flops_per_token / peak_flops_per_second;
}

}  // namespace trireme::observe
