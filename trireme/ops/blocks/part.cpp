#include "trireme/ops/blocks/part.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "trireme/base/error.h"
#include "trireme/ops/blocks/codes.h"

namespace trireme::ops {
namespace {

using base::kBlockValues;

int64_t round_up(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

/// One span of rows: where its blocks are.
struct SpanBlocks {
  int64_t origin;  ///< the first element, in the whole matrix
  int64_t scales_per_row;  ///< 0: the blocks of all rows follow each other
  int64_t count;  ///< of scales
};

SpanBlocks blocks_of(const BlockPart& part, const BlockPart::Span& rows) {
  const int64_t origin = rows.begin * part.columns + part.column_span.begin;
  if (part.num_columns() == part.columns) {
    const int64_t end = rows.end * part.columns;
    return {origin, 0, end > origin ? (end - 1) / kBlockValues - origin / kBlockValues + 1 : 0};
  }
  // Rows that begin at different places of a block touch different numbers of blocks: each has room for the most.
  const bool aligned = part.columns % kBlockValues == 0;
  const int64_t before = aligned ? part.column_span.begin % kBlockValues : kBlockValues - 1;
  const int64_t per_row = (before + part.num_columns() + kBlockValues - 1) / kBlockValues;
  return {origin, per_row, per_row * rows.size()};
}

/// Offsets in a record, bytes.
struct RecordLayout {
  int64_t scale_bytes, scales, nested, offset, end;
};

RecordLayout layout_of(const BlockPart& part) {
  RecordLayout l{};
  const bool nested = base::traits_of(part.format).nested;
  l.scale_bytes = nested ? 1 : 4;
  l.scales = round_up(part.num_rows() * part.num_columns() / 2, 4);
  l.nested = l.scales;
  for (const BlockPart::Span& rows : part.row_spans) l.nested += blocks_of(part, rows).count * l.scale_bytes;
  l.nested = round_up(l.nested, 4);
  l.offset = l.nested + (nested ? 4 * num_nested_scales(num_blocks(part.rows * part.columns)) : 0);
  l.end = l.offset + (nested ? 4 : 0);
  return l;
}

/// Copies `count` nibbles of a matrix from element `from` on. Both places are even.
void copy_codes(const Quantized& m, int64_t from, uint8_t* to, int64_t count) {
  std::memcpy(to, m.codes.data() + from / 2, static_cast<size_t>(count / 2));
}

}  // namespace

int64_t BlockPart::num_rows() const {
  int64_t sum = 0;
  for (const Span& span : row_spans) sum += span.size();
  return sum;
}

int64_t BlockPart::record_bytes() const { return layout_of(*this).end; }

BlockPart whole_part(base::BlockFormat format, int64_t rows, int64_t columns) {
  return {.format = format, .rows = rows, .columns = columns, .row_spans = {{0, rows}}, .column_span = {0, columns}};
}

std::string cannot_divide(const BlockPart& part) {
  if (part.columns % 2 != 0)
    return fmt::format("has rows of {} elements, and a byte holds two of one row", part.columns);
  if (part.column_span.begin % 2 != 0 || part.column_span.end % 2 != 0)
    return fmt::format("would be cut before its column {}, inside a byte, which holds two elements",
                       part.column_span.begin % 2 != 0 ? part.column_span.begin : part.column_span.end);
  return "";
}

void write_record(const Quantized& m, const BlockPart& part, uint8_t* record) {
  check_invariant(m.format == part.format && m.elements == part.rows * part.columns, "a record of this matrix");
  const RecordLayout l = layout_of(part);
  const int64_t width = part.num_columns(), blocks = num_blocks(m.elements);
  std::memset(record, 0, static_cast<size_t>(l.end));
  const auto* scales = m.scales.empty() ? m.nested_codes.data() : reinterpret_cast<const uint8_t*>(m.scales.data());
  uint8_t *codes = record, *to = record + l.scales;
  for (const BlockPart::Span& rows : part.row_spans) {
    const SpanBlocks span = blocks_of(part, rows);
    const auto copy_scales = [&](int64_t first, int64_t count) {
      count = std::min(count, blocks - first);
      std::memcpy(to, scales + first * l.scale_bytes, static_cast<size_t>(count * l.scale_bytes));
    };
    if (span.scales_per_row == 0) {
      copy_codes(m, span.origin, codes, rows.size() * width);
      copy_scales(span.origin / kBlockValues, span.count);
      codes += rows.size() * width / 2, to += span.count * l.scale_bytes;
      continue;
    }
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      const int64_t first = row * part.columns + part.column_span.begin;
      copy_codes(m, first, codes, width);
      copy_scales(first / kBlockValues, span.scales_per_row);
      codes += width / 2, to += span.scales_per_row * l.scale_bytes;
    }
  }
  if (l.end == l.nested) return;
  std::memcpy(record + l.nested, m.nested_scales.data(), m.nested_scales.size() * 4);
  std::memcpy(record + l.offset, &m.offset, 4);
}

void BlockRecords::add(const BlockPart& part, const uint8_t* record) {
  const RecordLayout l = layout_of(part);
  const bool nested = base::traits_of(part.format).nested;
  matrix_.columns = part.num_columns();
  matrix_.code = four_bit_code(part.format).data();
  matrix_.nested_code = dynamic_code(true).data();
  const uint8_t *codes = record, *scales = record + l.scales;
  for (const BlockPart::Span& rows : part.row_spans) {
    const SpanBlocks span = blocks_of(part, rows);
    BlockRows held{.first = matrix_.rows,
                   .count = rows.size(),
                   .codes = codes,
                   .origin = span.origin,
                   .row_stride = part.columns,
                   .scales_per_row = span.scales_per_row};
    if (nested) {
      held.nested_codes = scales;
      held.nested_scales = reinterpret_cast<const float*>(record + l.nested);
      std::memcpy(&held.offset, record + l.offset, 4);
    } else {
      held.scales = reinterpret_cast<const float*>(scales);
    }
    rows_.push_back(held);
    matrix_.rows += held.count;
    codes += held.count * matrix_.columns / 2;
    scales += span.count * l.scale_bytes;
  }
  matrix_.parts = rows_.data();
  matrix_.num_parts = std::ssize(rows_);
}

}  // namespace trireme::ops
