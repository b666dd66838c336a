#include "trireme/observe/peak.h"

namespace trireme::observe {

double training_flops_per_token(const FlopsShape& shape) {
  // Scores and values are 2 products of 2 d operations a head and key; backward costs twice the forward.
  return 6.0 * static_cast<double>(shape.matmul_parameters) +
         12.0 * static_cast<double>(shape.heads) * static_cast<double>(shape.head_dim) * shape.attended_keys;
}

double peak_fraction(double tokens_per_second, double flops_per_token, double peak_flops_per_second) {
  return tokens_per_second * flops_per_token / peak_flops_per_second;
}

}  // namespace trireme::observe
