#include "trireme/ops/blocks/part.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "trireme/base/error.h"
#include "trireme/base/round_up.h"
#include "trireme/ops/blocks/codes.h"
#include "trireme/ops/storage.h"

namespace trireme::ops {
namespace {

/// One span of rows: where its blocks are.
struct SpanBlocks {
  int64_t origin;  ///< the first element, in the whole matrix
  int64_t scales_per_row;  ///< 0: the blocks of all rows follow each other
  int64_t count;  ///< of scales
};

SpanBlocks blocks_of(const BlockPart& part, const BlockPart::Span& rows) {
  const int64_t values = base::traits_of(part.format).values;
  const int64_t origin = rows.begin * part.columns + part.column_span.begin;
  if (part.num_columns() == part.columns) {
    const int64_t end = rows.end * part.columns;
    return {origin, 0, end > origin ? (end - 1) / values - origin / values + 1 : 0};
  }
  // Rows that begin at different places of a block touch different numbers of blocks: each has room for the most.
  const bool aligned = part.columns % values == 0;
  const int64_t before = aligned ? part.column_span.begin % values : values - 1;
  const int64_t per_row = (before + part.num_columns() + values - 1) / values;
  return {origin, per_row, per_row * rows.size()};
}

/// Offsets in a record, bytes.
struct RecordLayout {
  int64_t scales, nested, offset, end;
};

RecordLayout layout_of(const BlockPart& part) {
  RecordLayout l{};
  const base::BlockFormatTraits& format = base::traits_of(part.format);
  l.scales = base::round_up(part.num_rows() * part.num_columns() * format.bits / 8, 4);
  l.nested = l.scales;
  for (const BlockPart::Span& rows : part.row_spans) l.nested += blocks_of(part, rows).count * format.scale_bytes;
  l.nested = base::round_up(l.nested, 4);
  const int64_t nested_scales =
      format.nested ? num_nested_scales(num_blocks(part.format, part.rows * part.columns)) : 0;
  l.offset = l.nested + 4 * nested_scales;
  l.end = l.offset + (format.nested ? 4 : 0);
  return l;
}

/// A whole matrix's scales as records keep them.
std::vector<uint8_t> kept_scales(const Quantized& m) {
  const int scale_bytes = base::traits_of(m.format).scale_bytes;
  if (scale_bytes == 1) return m.nested_codes;
  std::vector<uint8_t> bytes(m.scales.size() * static_cast<size_t>(scale_bytes));
  for (size_t i = 0; i < m.scales.size() && scale_bytes == 2; ++i) {
    const float16 half = narrow<float16>(m.scales[i]);
    std::memcpy(bytes.data() + 2 * i, &half.bits, 2);
  }
  if (scale_bytes == 4) std::memcpy(bytes.data(), m.scales.data(), bytes.size());
  return bytes;
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

std::string cannot_divide(const BlockPart& part, std::string_view setting) {
  const base::BlockFormatTraits& format = base::traits_of(part.format);
  const int64_t together = format.in_rows() ? format.values : 2;
  const char* what = format.in_rows() ? "a block" : "a byte";
  if (part.columns % together != 0)
    return fmt::format("has rows of {} elements, and {} holds {} of one row; {}leave {} out", part.columns, what,
                       together, format.in_rows() ? "take a format of bitsandbytes such as bnb.nf4, or " : "", setting);
  for (const int64_t column : {part.column_span.begin, part.column_span.end})
    if (column % together != 0)
      return fmt::format(
          "would be cut before its column {}, inside {}, which holds {} elements; use a mesh.tp that leaves each rank "
          "a multiple of {} columns",
          column, what, together, together);
  return "";
}

void write_record(const Quantized& m, const BlockPart& part, uint8_t* record) {
  check_invariant(m.format == part.format && m.elements == part.rows * part.columns, "a record of this matrix");
  const RecordLayout l = layout_of(part);
  const base::BlockFormatTraits& format = base::traits_of(part.format);
  const int64_t width = part.num_columns(), blocks = num_blocks(m.format, m.elements);
  const int64_t scale_bytes = format.scale_bytes;
  std::memset(record, 0, static_cast<size_t>(l.end));
  const std::vector<uint8_t> scales = kept_scales(m);
  const auto bytes_of = [&](int64_t elements) { return elements * format.bits / 8; };
  uint8_t *codes = record, *to = record + l.scales;
  for (const BlockPart::Span& rows : part.row_spans) {
    const SpanBlocks span = blocks_of(part, rows);
    const auto copy_codes = [&](int64_t from, int64_t count) {
      std::memcpy(codes, m.codes.data() + bytes_of(from), static_cast<size_t>(bytes_of(count)));
    };
    const auto copy_scales = [&](int64_t first, int64_t count) {
      count = std::min(count, blocks - first);
      std::memcpy(to, scales.data() + first * scale_bytes, static_cast<size_t>(count * scale_bytes));
    };
    if (span.scales_per_row == 0) {
      copy_codes(span.origin, rows.size() * width);
      copy_scales(span.origin / format.values, span.count);
      codes += bytes_of(rows.size() * width), to += span.count * scale_bytes;
      continue;
    }
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      const int64_t first = row * part.columns + part.column_span.begin;
      copy_codes(first, width);
      copy_scales(first / format.values, span.scales_per_row);
      codes += bytes_of(width), to += span.scales_per_row * scale_bytes;
    }
  }
  if (l.end == l.nested) return;
  std::memcpy(record + l.nested, m.nested_scales.data(), m.nested_scales.size() * 4);
  std::memcpy(record + l.offset, &m.offset, 4);
}

void BlockRecords::add(const BlockPart& part, const uint8_t* record) {
  const RecordLayout l = layout_of(part);
  const base::BlockFormatTraits& format = base::traits_of(part.format);
  matrix_.columns = part.num_columns();
  matrix_.bits = format.bits;
  matrix_.numbers = format.in_rows();
  matrix_.block_shift = std::countr_zero(static_cast<uint64_t>(format.values));
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
    if (format.nested) {
      held.nested_codes = scales;
      held.nested_scales = reinterpret_cast<const float*>(record + l.nested);
      std::memcpy(&held.offset, record + l.offset, 4);
    } else if (format.scale_bytes == 2) {
      held.half_scales = reinterpret_cast<const uint16_t*>(scales);
    } else {
      held.scales = reinterpret_cast<const float*>(scales);
    }
    rows_.push_back(held);
    matrix_.rows += held.count;
    codes += held.count * matrix_.columns * format.bits / 8;
    scales += span.count * format.scale_bytes;
  }
  matrix_.parts = rows_.data();
  matrix_.num_parts = std::ssize(rows_);
}

}  // namespace trireme::ops
