// Two checkpoints side by side, tensor by tensor, whoever wrote them: values are compared whatever the dtypes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "trireme/checkpoint/dtype.h"

namespace trireme::checkpoint {

struct TensorDiff {
  enum class Kind { equal, values, shape, only_a, only_b };
  std::string name;
  Kind kind = Kind::equal;
  Dtype dtype_a = Dtype::f32, dtype_b = Dtype::f32;
  std::vector<int64_t> shape_a, shape_b;
  bool same_bytes = false;      ///< same dtype, shape and bytes
  double max_difference = 0;    ///< of values; NaN where one has a NaN that the other has not
  double rms_difference = 0;
  double rms = 0;               ///< of the values of A, to compare with
};

struct DiffReport {
  std::vector<TensorDiff> tensors;  ///< all, by name
  int64_t count(TensorDiff::Kind kind) const;
  bool equal() const;           ///< every tensor has the same bytes in both
};

/// Reads both (verified where there is a manifest), on `threads` threads (0: one a core).
///
/// Cost      reads all tensors that both have; 3 MiB of buffers a thread
/// Errors    CheckpointError: no checkpoint, damage
DiffReport diff(const std::filesystem::path& a, const std::filesystem::path& b, int threads = 0);

}  // namespace trireme::checkpoint
