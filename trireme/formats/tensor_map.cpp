#include "trireme/formats/tensor_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "trireme/base/error.h"
#include "trireme/formats/vocabulary.h"
#include "trireme/ops/blocks/gguf.h"

namespace trireme::formats {
namespace {

constexpr size_t kZeros = SIZE_MAX;
constexpr int64_t kReadBufferBytes = 1 << 20;

int64_t rows_of(const TensorSpec& tensor) { return tensor.shape.empty() ? 1 : tensor.shape.front(); }

/// Elements of one row; 1 for a scalar.
int64_t row_elements(const TensorSpec& tensor) {
  if (tensor.shape.empty()) return 1;
  return num_elements(std::span(tensor.shape).subspan(1));
}

[[noreturn]] void fail_target(const TensorSpec& target, const std::string& problem) {
  throw CheckpointError(fmt::format("tensor '{}' {} {}", target.name, shape_text(target.shape), problem), "",
                        target.name);
}

void check_piece(const TensorSpec& target, const RowPiece& piece, const TensorSpec* source, bool transpose) {
  const int64_t count = piece.end - piece.begin;
  if (piece.begin < 0 || count < 0 || piece.split < 1 || count % piece.split != 0)
    fail_target(target, fmt::format("asks for rows {} to {} in {} lines, which is impossible", piece.begin, piece.end,
                                    piece.split));
  if (!source) return;
  if (piece.end > rows_of(*source))
    fail_target(target, fmt::format("needs rows {} to {} of '{}', which has the shape {}", piece.begin, piece.end,
                                    piece.source, shape_text(source->shape)));
  const bool fits = transpose ? target.shape.size() == 2 && source->shape.size() == 2 &&
                                    target.shape[0] == source->shape[1] && target.shape[1] == source->shape[0]
                              : row_elements(*source) == row_elements(target);
  if (!fits)
    fail_target(target,
                fmt::format("cannot be made of '{}', which has the shape {}", piece.source, shape_text(source->shape)));
}

}  // namespace

MappedTensor renamed(const TensorSpec& source, const std::string& name) {
  MappedTensor mapped{.target = source, .pieces = {{.source = source.name, .begin = 0, .end = rows_of(source)}}};
  mapped.target.name = name;
  return mapped;
}

MappedSource::MappedSource(const TensorSource& source, std::vector<MappedTensor> map) : source_(source) {
  for (const MappedTensor& mapped : map) {
    tensors_.push_back(mapped.target);
    targets_.push_back(resolve(mapped));
  }
}

MappedSource::Target MappedSource::resolve(const MappedTensor& mapped) const {
  Target result{.row_elements = row_elements(mapped.target), .transpose = mapped.transpose, .add = mapped.add};
  const std::vector<TensorSpec>& sources = source_.tensors();
  int64_t row = 0;
  for (const RowPiece& rows : mapped.pieces) {
    Piece piece{.source = kZeros, .first = row * result.row_elements, .last = 0, .rows = rows};
    const TensorSpec* source = nullptr;
    if (!rows.source.empty()) {
      const auto found = std::find_if(sources.begin(), sources.end(),
                                      [&](const TensorSpec& tensor) { return tensor.name == rows.source; });
      if (found == sources.end())
        fail_target(mapped.target, fmt::format("needs '{}', which is not there", rows.source));
      source = &*found;
      piece.source = static_cast<size_t>(found - sources.begin());
      result.source_row_elements = row_elements(*source);
    }
    check_piece(mapped.target, rows, source, mapped.transpose);
    row += rows.end - rows.begin;
    piece.last = row * result.row_elements;
    result.pieces.push_back(std::move(piece));
  }
  const bool whole = mapped.transpose ? mapped.pieces.size() == 1 && mapped.target.shape.size() == 2 &&
                                            row == mapped.target.shape[1] && result.pieces[0].source != kZeros
                                      : row == rows_of(mapped.target);
  if (!whole) fail_target(mapped.target, fmt::format("is not filled by its {} rows of other tensors", row));
  return result;
}

void MappedSource::read(size_t tensor, int64_t begin, int64_t end, void* data, Dtype dtype) const {
  const Target& target = targets_[tensor];
  auto* const bytes = static_cast<std::byte*>(data);
  const auto fill = [&](int64_t from, int64_t to, std::byte* out, Dtype as) {
    if (target.transpose)
      read_transposed(target, from, to, out, as);
    else
      read_plain(target, from, to, out, {.dtype = as});
  };
  if (target.add == 0) return fill(begin, end, bytes, dtype);
  std::vector<double> buffer(std::min(end - begin, kReadBufferBytes / 8));
  for (int64_t from = begin; from < end; from += kReadBufferBytes / 8) {
    const int64_t to = std::min(end, from + kReadBufferBytes / 8);
    fill(from, to, reinterpret_cast<std::byte*>(buffer.data()), Dtype::f64);
    for (double& value : buffer) value += target.add;
    checkpoint::convert(buffer.data(), Dtype::f64, bytes + (from - begin) * size_of(dtype), dtype, to - from);
  }
}

base::BlockFormat MappedSource::blocks_of(size_t tensor) const {
  const Target& target = targets_[tensor];
  const bool reordered =
      !target.transpose && target.add == 0 && !target.pieces.empty() && target.pieces.front().source != kZeros;
  const base::BlockFormat format =
      reordered ? source_.blocks_of(target.pieces.front().source) : base::BlockFormat::none;
  const bool alike = std::ranges::all_of(target.pieces, [&](const Piece& piece) {
    return piece.source != kZeros && source_.blocks_of(piece.source) == format;
  });
  return alike ? format : base::BlockFormat::none;
}

void MappedSource::read_blocks(size_t tensor, int64_t begin, int64_t end, std::byte* to) const {
  read_plain(targets_[tensor], begin, end, to, {.blocks = blocks_of(tensor)});
}

int64_t MappedSource::Reading::bytes(int64_t elements) const {
  if (blocks == base::BlockFormat::none) return elements * size_of(dtype);
  return elements / base::traits_of(blocks).values * ops::gguf_block_bytes(blocks);
}

void MappedSource::Reading::read(const TensorSource& source, size_t tensor, int64_t begin, int64_t end,
                                 std::byte* data) const {
  if (blocks == base::BlockFormat::none)
    source.read(tensor, begin, end, data, dtype);
  else
    source.read_blocks(tensor, begin, end, data);
}

void MappedSource::read_plain(const Target& target, int64_t begin, int64_t end, std::byte* data,
                              const Reading& as) const {
  for (const Piece& piece : target.pieces) {
    const int64_t from = std::max(begin, piece.first), to = std::min(end, piece.last);
    if (from < to) read_piece(target, piece, from, to, data + as.bytes(from - begin), as);
  }
}

void MappedSource::read_piece(const Target& target, const Piece& piece, int64_t begin, int64_t end, std::byte* data,
                              const Reading& as) const {
  if (piece.source == kZeros) {
    std::memset(data, 0, static_cast<size_t>(as.bytes(end - begin)));
    return;
  }
  const int64_t row_size = target.row_elements, start = piece.rows.begin * row_size - piece.first;
  if (piece.rows.split == 1) return as.read(source_, piece.source, begin + start, end + start, data);
  const int64_t columns = (piece.rows.end - piece.rows.begin) / piece.rows.split;
  while (begin < end) {
    const int64_t row = (begin - piece.first) / row_size, column = (begin - piece.first) % row_size;
    const int64_t count = std::min(end - begin, row_size - column);
    const int64_t from = piece.rows.begin + row % piece.rows.split * columns + row / piece.rows.split;
    as.read(source_, piece.source, from * row_size + column, from * row_size + column + count, data);
    data += as.bytes(count);
    begin += count;
  }
}

void MappedSource::read_transposed(const Target& target, int64_t begin, int64_t end, std::byte* data,
                                   Dtype dtype) const {
  const int64_t width = target.row_elements, height = target.source_row_elements;
  const auto element = static_cast<size_t>(size_of(dtype));
  std::vector<std::byte> strip;
  // One rectangle at a time: the rest of a row, then as many whole rows as fit into a strip of the source.
  while (begin < end) {
    const int64_t row = begin / width, column = begin % width;
    const int64_t whole_rows = column == 0 ? (end - begin) / width : 0;
    const int64_t rows = std::clamp<int64_t>(whole_rows, 1, kReadBufferBytes / 8);
    const int64_t columns = whole_rows > 0 ? width : std::min(width - column, end - begin);
    strip.resize(static_cast<size_t>(rows) * element);
    for (int64_t c = 0; c < columns; ++c) {
      const int64_t first = (column + c) * height + row;
      source_.read(target.pieces[0].source, first, first + rows, strip.data(), dtype);
      for (int64_t r = 0; r < rows; ++r)
        std::memcpy(data + static_cast<size_t>(r * columns + c) * element,
                    strip.data() + static_cast<size_t>(r) * element, element);
    }
    data += static_cast<size_t>(rows * columns) * element;
    begin += rows * columns;
  }
}

}  // namespace trireme::formats
