// ParameterSpec: what a rank holds of one parameter, its initial values, and its place in the whole parameter.
#pragma once

#include <c10/util/accumulate.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "trireme/ops/blocks/part.h"
#include "trireme/ops/products/packed_blocks.h"

namespace trireme::model {

struct Initializer {
  enum class Kind { normal, uniform, ones, zeros } kind = Kind::normal;
  double stddev = 0.02;  ///< of normal; for uniform the largest absolute value
};

/// Elements [begin, end) of one dimension.
struct Piece {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const Piece&) const = default;
};

/// What one rank holds of a parameter; without tensor parallelism, all of it.
struct ParameterSpec {
  std::string name;             ///< as in Hugging Face's files
  std::vector<int64_t> shape;   ///< of this rank's part; dimensions in Hugging Face's order
  Initializer init;
  bool decay = true;            ///< weight decay applies: to matrices, not to norms and biases
  double rate = 1;              ///< times the learning rate
  std::optional<double> weight_decay = {};  ///< if it decays; absent: as the optimizer says
  bool joined = false;          ///< follows the previous parameter without a gap: both form one matrix
  // Tensor parallel: this rank holds `pieces` of dimension `split_dim` of `full_shape`, one after the other. A piece
  // may reach beyond the full dimension (a padded vocabulary): the padding stays zero and is in no file.
  std::vector<int64_t> full_shape = {};  ///< empty: `shape`
  int split_dim = -1;                    ///< -1: every tensor-parallel rank holds all of it
  std::vector<Piece> pieces = {};
  bool may_be_new = false;  ///< training may start from files without it: a classification head's
  bool counted = true;  ///< false: another tensor-parallel rank has the same elements, and counts and saves them
  ops::BlockPart quantized =
      {};  ///< kept in blocks of a few bits, as one record of bytes; without a format: as numbers
  bool quantized_as_read = false;  ///< files may hold it with all its bits beside others in blocks
  bool is_quantized() const { return quantized.format != base::BlockFormat::none; }
  /// A matrix in the panel order of a product kernel, as one record of bytes.
  struct Packed {
    int64_t n, k;  ///< the product's columns, and the depth of its sums
    c10::ScalarType dtype;
    bool in_out = false;  ///< the matrix is [k,n], otherwise [n,k]
    base::BlockFormat blocks = base::BlockFormat::none;  ///< kept in such blocks
    int64_t record_bytes() const {
      return blocks == base::BlockFormat::none ? ops::packed_bytes(n, k, dtype) : ops::packed_block_bytes(n, k, blocks);
    }
  };
  std::optional<Packed> packed = {};
  bool is_record() const { return is_quantized() || packed; }
  int64_t record_bytes() const { return packed ? packed->record_bytes() : quantized.record_bytes(); }
  int64_t numel() const { return c10::multiply_integers(shape); }
  const std::vector<int64_t>& whole_shape() const { return full_shape.empty() ? shape : full_shape; }
};

/// Divides the held elements [begin, end) into runs that are contiguous in the full parameter too, without padding.
/// Calls visit(local, full, count) for each: the row-major index of its first element in both, and its length.
void for_each_run(const ParameterSpec& parameter, int64_t begin, int64_t end,
                  const std::function<void(int64_t local, int64_t full, int64_t count)>& visit);

}  // namespace trireme::model
