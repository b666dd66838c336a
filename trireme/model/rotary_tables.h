// RotaryTables: cosines and sines of the local positions, one pair of tables for all blocks of a model. The tables are
// filled on first use, so planning a model with long sequences costs no time or memory here.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <mutex>
#include <tuple>
#include <vector>

#include "trireme/model/config.h"
#include "trireme/model/unit.h"

namespace trireme::model {

class RotaryTables {
 public:
  struct Table {
    at::Tensor cosine, sine;  ///< [local positions, half of what is rotated of a head]
  };

  /// The blocks that use the table. `windowed`: blocks with a window that have their own rope_local_theta.
  enum class Blocks { all, windowed };
  RotaryTables(const ModelConfig& config, at::ScalarType state_dtype, const Parallel& parallel,
               Blocks blocks = Blocks::all);

  /// The table for a sequence of `sequence` tokens. Row i belongs to the i-th position on this context-parallel rank.
  /// Several threads may call. The table of each device lives as long as this object.
  ///
  /// Errors    ShapeError for more tokens than the model has positions
  Table of(int64_t sequence, at::Device device = at::kCPU) const;
  /// The table of all positions 0, 1, ... of the sequence, on every rank: for tokens with position ids.
  Table whole(int64_t sequence, at::Device device = at::kCPU) const;

 private:
  Table table(const Parallel& parallel, int64_t sequence, at::Device device) const;
  Table filled(const Parallel& parallel, int64_t sequence) const;
  int64_t rotary_dim_, max_positions_, longest_sequence_;
  double theta_;
  RopeScaling scaling_;
  at::ScalarType dtype_;
  Parallel parallel_;
  mutable std::mutex mutex_;
  mutable std::map<std::tuple<int64_t, int, int>, Table> tables_;  ///< by sequence length, size of cp, GPU
};

}  // namespace trireme::model
