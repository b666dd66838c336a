// The limits of a run, measured when first asked for and once more at its end: the better figure counts, because
// whatever slowed the machine down meanwhile slowed the rows down too.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "trireme/bench/report.h"

namespace trireme::bench {

class Limits {
 public:
  explicit Limits(int threads) : threads_(threads) {}

  /// Names for Row::limit. Arithmetic in GFLOP/s; copies in GB/s moved (read plus written).
  std::string arithmetic(at::ScalarType dtype);
  /// Of buffers that are read and written, `bytes` together, by all threads; 0: beyond the caches.
  std::string copy(int64_t bytes = 0);

  /// The same for what is updated in place: the better of a copy and a pass in place over `bytes` / 2.
  std::string update(int64_t bytes = 0);

  /// The same when nothing is written.
  std::string read(int64_t bytes = 0);

  void again();  ///< measures all of them once more
  std::vector<Limit> all() const;

 private:
  struct Meter {
    Limit limit;
    std::function<double()> measure;
  };
  std::string add(std::string name, std::string unit, std::function<double()> measure);

  int threads_;
  std::vector<Meter> meters_;
};

/// "bf16", "fp32", "fp64".
std::string dtype_name(at::ScalarType dtype);

}  // namespace trireme::bench
