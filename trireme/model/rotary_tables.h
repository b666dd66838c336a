// RotaryTables: cosines and sines of the local positions, one pair of tables for all blocks of a model. Filled on
// first use, so that a model can be described (planned, explained) without paying for its longest sequence.
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
    at::Tensor cosine, sine;  ///< [local positions, d/2]
  };

  /// `windowed`: the table of blocks with a window, where these have frequencies of their own (rope_local_theta).
  enum class Blocks { all, windowed };
  RotaryTables(const ModelConfig& config, at::ScalarType state_dtype, const Parallel& parallel,
               Blocks blocks = Blocks::all);

  /// For a sequence of so many tokens: row i is the i-th position that this context-parallel rank holds. May be
  /// called from several threads; the tables live as long as this object, on each device that asked.
  ///
  /// Errors    ShapeError for more tokens than the model has positions
  Table of(int64_t sequence, at::Device device = at::kCPU) const;
  /// Likewise for all positions 0, 1, ... of the sequence, on every rank: where tokens have positions of their own.
  Table whole(int64_t sequence, at::Device device = at::kCPU) const;

 private:
  Table table(const Parallel& parallel, int64_t sequence, at::Device device) const;
  Table filled(const Parallel& parallel, int64_t sequence) const;
  int64_t head_dim_, max_positions_;
  std::vector<double> frequencies_;
  double attention_factor_;
  at::ScalarType dtype_;
  Parallel parallel_;
  mutable std::mutex mutex_;
  mutable std::map<std::tuple<int64_t, int, int>, Table> tables_;  ///< by sequence length, ranks that share it, GPU
};

}  // namespace trireme::model
