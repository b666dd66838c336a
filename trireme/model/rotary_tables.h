// RotaryTables: cosines and sines of the local positions, one pair of tables for all blocks of a model. Filled on
// first use, so that a model can be described (planned, explained) without paying for its longest sequence.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <mutex>
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
  /// called from several threads; the tables live as long as this object.
  ///
  /// Errors    ShapeError for more tokens than the model has positions
  Table of(int64_t sequence) const;

 private:
  int64_t head_dim_, max_positions_;
  std::vector<double> frequencies_;
  double attention_factor_;
  at::ScalarType dtype_;
  Parallel parallel_;
  mutable std::mutex mutex_;
  mutable std::map<int64_t, Table> tables_;  ///< by sequence length
};

}  // namespace trireme::model
