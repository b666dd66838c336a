#include "trireme/observe/peak.h"

namespace trireme::observe {

double training_flops_per_token(const FlopsShape& shape, AttentionCount count) {
  // Scores and values are 2 products of 2 a d s operations a layer; backward costs twice the forward.
  const double attention = static_cast<double>(shape.layers) * static_cast<double>(shape.heads) *
                           static_cast<double>(shape.head_dim) * static_cast<double>(shape.sequence);
  const double factor = count == AttentionCount::full_square ? 12.0 : 6.0;
  return 6.0 * static_cast<double>(shape.matmul_parameters) + factor * attention;
}

double peak_fraction(double tokens_per_second, double flops_per_token, double peak_flops_per_second) {
  return tokens_per_second * flops_per_token / peak_flops_per_second;
}

}  // namespace trireme::observe
