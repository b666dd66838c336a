// The norm of an architecture, as data: LayerNorm where there is a bias, RMSNorm where there is none.
#pragma once

#include <vector>

#include "trireme/ops/ops.h"

namespace trireme::model {

struct Norm {
  int weight = -1;  ///< index among a unit's parameters; -1: there is no such norm
  int bias = -1;   ///< -1: RMSNorm
  double offset = 0;  ///< added to the weight (Gemma: 1)
  bool present() const { return weight >= 0; }
  bool centered() const { return bias >= 0; }
};

/// What a norm keeps of each row; mean is undefined for RMSNorm.
struct NormStatistics {
  at::Tensor mean, rstd;
};

/// Where a norm's gradients go; bias is undefined for RMSNorm.
struct NormGradients {
  ops::Gradient weight, bias;
};

using Tensors = std::vector<at::Tensor>;

/// y = norm(x)
void norm_forward(const Norm& norm, const at::Tensor& y, const NormStatistics& statistics, const at::Tensor& x,
                  const Tensors& parameters, double eps);
/// sum = x + residual; y = norm(sum)
void add_norm_forward(const Norm& norm, const at::Tensor& sum, const at::Tensor& y, const NormStatistics& statistics,
                      const at::Tensor& x, const at::Tensor& residual, const Tensors& parameters, double eps);
/// dx = gradient through the norm + d_residual; y is emitted again (may be dy).
void norm_backward(const Norm& norm, const at::Tensor& dx, const NormGradients& gradients, const at::Tensor& y,
                   const at::Tensor& dy, const at::Tensor& x, const Tensors& parameters,
                   const NormStatistics& statistics, const at::Tensor& d_residual);

}  // namespace trireme::model
