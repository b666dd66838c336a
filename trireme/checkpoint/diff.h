// Compares two checkpoints or Hugging Face folders tensor by tensor. Values are compared even if the dtypes differ.
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
  double max_difference = 0;    ///< of values; NaN if A or B alone has a NaN somewhere
  double rms_difference = 0;
  double rms = 0;               ///< of A's values; compare rms_difference with it
};

struct DiffReport {
  std::vector<TensorDiff> tensors;  ///< all, by name
  int64_t count(TensorDiff::Kind kind) const;
  bool equal() const;           ///< every tensor has the same bytes in both
};

/// Reads both on `threads` threads. Verifies a checkpoint that has a manifest.
///
/// Cost      reads all tensors that exist in both; 3 MiB of buffers a thread
/// Errors    CheckpointError: no checkpoint, damage
DiffReport diff(const std::filesystem::path& a, const std::filesystem::path& b, int threads = 1);

}  // namespace trireme::checkpoint
