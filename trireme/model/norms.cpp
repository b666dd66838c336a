#include "trireme/model/norms.h"

#include "trireme/ops/ops.h"

namespace trireme::model {

void norm_forward(const Norm& norm, const at::Tensor& y, const NormStatistics& s, const at::Tensor& x, const Tensors& p,
                  double eps) {
  if (norm.centered())
    ops::layer_norm_forward(y, s.mean, s.rstd, x, p[norm.weight], p[norm.bias], eps);
  else
    ops::rms_norm_forward(y, s.rstd, x, p[norm.weight], eps, norm.offset);
}

void add_norm_forward(const Norm& norm, const at::Tensor& sum, const at::Tensor& y, const NormStatistics& s,
                      const at::Tensor& x, const at::Tensor& residual, const Tensors& p, double eps) {
  if (norm.centered())
    ops::add_layer_norm_forward(sum, y, s.mean, s.rstd, x, residual, p[norm.weight], p[norm.bias], eps);
  else
    ops::add_rms_norm_forward(sum, y, s.rstd, x, residual, p[norm.weight], eps, norm.offset);
}

void norm_backward(const Norm& norm, const at::Tensor& dx, const NormGradients& g, const at::Tensor& y,
                   const at::Tensor& dy, const at::Tensor& x, const Tensors& p, const NormStatistics& s,
                   const at::Tensor& d_residual) {
  if (norm.centered())
    ops::layer_norm_backward(dx, g.weight, g.bias, y, dy, x, p[norm.weight], p[norm.bias], s.mean, s.rstd, d_residual);
  else
    ops::rms_norm_backward(dx, g.weight, y, dy, x, p[norm.weight], s.rstd, d_residual, norm.offset);
}

}  // namespace trireme::model
