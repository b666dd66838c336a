// What one rank holds of a matrix in blocks: some rows whole, or some columns of all rows. It is one record of bytes,
// which is gathered and sharded like any other parameter:
//
//   codes | scales of every block that the part touches | nested: scales and offset of the whole matrix
//
// Scales are floats, halves (GGUF's formats) or bytes (nested).
//
// The blocks stay those of the whole matrix, so scales are found by a block's global number. With columns of its own, a
// rank may touch a part of a block only; both ranks then have its scale.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/block_format.h"
#include "trireme/ops/blocks/matrix.h"
#include "trireme/ops/blocks/quantize.h"

namespace trireme::ops {

struct BlockPart {
  struct Span {
    int64_t begin = 0, end = 0;
    int64_t size() const { return end - begin; }
    bool operator==(const Span&) const = default;
  };
  base::BlockFormat format = base::BlockFormat::none;
  int64_t rows = 0, columns = 0;  ///< of the whole matrix
  std::vector<Span> row_spans = {};  ///< held rows, one span after the other
  Span column_span = {};  ///< held columns; all of them if there are several spans of rows
  bool operator==(const BlockPart&) const = default;

  int64_t num_rows() const;
  int64_t num_columns() const { return column_span.size(); }
  int64_t record_bytes() const;
};

/// All of a matrix.
BlockPart whole_part(base::BlockFormat format, int64_t rows, int64_t columns);

/// Why these blocks cannot be divided like this, and the way out, as the end of a sentence; "" if they can: what holds
/// several elements of one row, a byte of bitsandbytes' formats or a block of GGUF's, stays whole. `setting` asks for
/// blocks.
std::string cannot_divide(const BlockPart& part, std::string_view setting);

/// Writes the part's record_bytes() of a quantized matrix.
void write_record(const Quantized& matrix, const BlockPart& part, uint8_t* record);

/// The matrix in some records, one below the other; they must outlive it.
class BlockRecords {
 public:
  BlockRecords() = default;
  BlockRecords(BlockRecords&&) = default;
  BlockRecords(const BlockRecords&) = delete;
  void add(const BlockPart& part, const uint8_t* record);
  const BlockMatrix& matrix() const { return matrix_; }

 private:
  std::vector<BlockRows> rows_;
  BlockMatrix matrix_;
};

}  // namespace trireme::ops
