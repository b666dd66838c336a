// The magnitudes of DoRA: the norms of the rows of W + scale * B A, one for each output. Training starts from those of
// the first A and B; merging divides by those of the last.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "trireme/adapt/resolve.h"
#include "trireme/checkpoint/load.h"
#include "trireme/checkpoint/naming.h"
#include "trireme/model/model.h"

namespace trireme::adapt {

/// scale * left right, in the shape of a stored matrix. Undefined factors: nothing.
struct LowRank {
  at::Tensor left, right;  ///< [rows, rank], [rank, columns]
  double scale = 1;
  /// piece += rows [row, row + rows) and columns [column, column + columns) of the product.
  void add_to(const at::Tensor& piece, int64_t row, int64_t rows, int64_t column, int64_t columns) const;
};

/// The norms [end - begin] of outputs begin..end-1 of the base's matrix plus `change`; 1 where all weights are zero.
///
/// Cost      reads these rows of the matrix, or all of it if a column is an output (embeddings, Conv1D); 1 Mi elements
///           in memory at a time
/// Numerics  squares are summed in float64
/// Errors    CheckpointError as read_piece()
at::Tensor output_norms(const checkpoint::Checkpoint& base, const std::string& tensor, const Module& module,
                        const LowRank& change, int64_t begin, int64_t end, checkpoint::Dtype dtype);

/// `base` with one more tensor for each adapter of `model` that has magnitudes, under the name of this parameter: the
/// norms with the first values that `seed` gives A and B. They are computed as they are read
/// (output_norms), in a shape of [outputs].
/// Errors    CheckpointError if the base lacks a matrix
checkpoint::Checkpoint with_magnitudes(checkpoint::Checkpoint base, const model::Model& model,
                                       const checkpoint::Naming& naming, uint64_t seed);

}  // namespace trireme::adapt
