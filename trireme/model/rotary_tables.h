// RotaryTables: cosines and sines of the local positions, one pair of tables for all blocks of a model. The tables are
// filled on first use, so planning a model with long sequences costs no time or memory here. With dynamic scaling each
// length of a text has a table of its own: only a few are kept.
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
  /// `text` is the length of the longest text, from which dynamic and longrope frequencies follow, as in transformers.
  /// Several threads may call. The tables that were used last are kept.
  ///
  /// Errors    ShapeError for more tokens than the model has positions
  Table of(int64_t sequence, int64_t text, at::Device device = at::kCPU) const;
  /// The table of all positions 0, 1, ... of the sequence, on every rank: for tokens with position ids.
  Table whole(int64_t sequence, int64_t text, at::Device device = at::kCPU) const;

 private:
  struct Kept {
    Table table;
    int64_t used = 0;  ///< the larger, the later
  };
  Table table(const Parallel& parallel, int64_t sequence, int64_t text, at::Device device) const;
  Table filled(const Parallel& parallel, int64_t sequence, int64_t text) const;
  int64_t alike(int64_t text) const;
  int64_t rotary_dim_, max_positions_, longest_sequence_;
  double theta_;
  RopeScaling scaling_;
  at::ScalarType dtype_;
  Parallel parallel_;
  mutable std::mutex mutex_;
  mutable std::map<std::tuple<int64_t, int64_t, int, int>, Kept> tables_;  ///< by sequence, text, size of cp, GPU
  mutable int64_t uses_ = 0;
};

}  // namespace trireme::model
