// One rank of collectives_bench: the shared-memory and gloo backends and c10d's own ProcessGroupGloo.
#pragma once

#include "benchmarks/collectives_timing.h"

namespace bench {

struct RankOptions {
  int rank = 0, size = 2;
  uint16_t store_port = 0;
  std::vector<int64_t> sizes;
  bool shm_only = false;
};

/// Checks, then times; rank 0 prints a line per measurement.
/// Errors    std::runtime_error for a result that is wrong
void run_rank(const RankOptions& options);

}  // namespace bench
