// The machine's limits for a benchmark. Each is measured when it is first needed, and again at the end. The better
// figure counts, because other work on the machine disturbed it less.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/bench/report.h"
#include "trireme/costs/hardware.h"

namespace trireme::bench {

class Limits {
 public:
  explicit Limits(int threads) : threads_(threads) {}

  /// Each returns a name for Row::limit. Arithmetic in GFLOP/s; the others in GB/s, read plus written.
  std::string arithmetic(at::ScalarType dtype);
  /// `bytes`: the size of all buffers of all threads together; 0: a size beyond the caches.
  std::string copy(int64_t bytes = 0);

  /// The same for data updated in place: the better of a copy and an in-place pass over `bytes` / 2.
  std::string update(int64_t bytes = 0);

  /// The same for a pass that only reads.
  std::string read(int64_t bytes = 0);

  void again();  ///< measures all of them once more
  std::vector<Limit> all() const;

 private:
  struct Meter {
    Limit limit;
    std::function<double()> measure;
  };
  std::string name(std::string_view what, int64_t bytes) const;
  std::string add(std::string name, std::string unit, std::function<double()> measure);

  int threads_;
  std::vector<Meter> meters_;
};

/// "bf16", "fp32", "fp64".
using costs::dtype_name;

}  // namespace trireme::bench
