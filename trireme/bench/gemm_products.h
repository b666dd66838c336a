// The matrix products of a model, as `trireme bench gemm` times them.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/bench/limits.h"
#include "trireme/bench/report.h"

namespace trireme::bench {

struct Product {
  const char* name;
  int64_t in, out;
  int64_t times;  ///< in one micro-batch
  bool in_out;  ///< stored [in, out]
};

struct GemmBench {
  std::string model;
  std::vector<Product> products;
  at::ScalarType dtype;
  int threads;
  bool quick;
};

/// Adds rows for products of few rows with packed matrices (ops/products/packed.h), each beside the limit that is
/// nearer: memory or registers.
void add_packed_rows(Report& report, Limits& limits, const GemmBench& bench);

}  // namespace trireme::bench
