#include "trireme/ops/products/packed_blocks.h"
#include "trireme/ops/announce.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "trireme/base/error.h"
#include "trireme/base/meter.h"
#include "trireme/base/processor.h"
#include "trireme/ops/blocks/codes.h"
#include "trireme/ops/blocks/widen-inl.h"
#include "trireme/ops/checks.h"
#include "trireme/ops/parallel.h"
#include "trireme/ops/products/library.h"
#include "trireme/ops/products/products.h"
#include "trireme/ops/products/team.h"
#include "trireme/ops/storage.h"

namespace trireme::ops {
namespace {

const GemmKernel* kernel_of(const PackedBlocks& m) {
  if (m.bytes.is_cuda() || (m.dtype == at::kBFloat16 && base::processor().amx_bf16)) return nullptr;
  const auto kernels = gemm_kernels(m.dtype);
  return kernels.empty() ? nullptr : kernels.front();
}

const base::BlockFormatTraits& traits(const PackedBlocks& m) { return base::traits_of(m.format); }

PanelCode panel_code(base::BlockFormat format) {
  const base::BlockFormatTraits& row = base::traits_of(format);
  return !row.in_rows() ? PanelCode::values : row.bits == 8 ? PanelCode::bytes : PanelCode::nibbles;
}

void check_packed(const char* operation, const PackedBlocks& m) {
  const int64_t bytes = packed_block_bytes(m.n, m.k, m.format);
  if (m.k % traits(m).values != 0 || m.bytes.scalar_type() != at::kByte || m.bytes.dim() != 1 ||
      m.bytes.numel() != bytes || !m.bytes.is_contiguous() ||
      reinterpret_cast<uintptr_t>(m.bytes.const_data_ptr()) % 64 != 0)
    throw ShapeError(
        fmt::format("{}: a packed matrix [{}, {}] in {} has {} contiguous bytes from a multiple of 64 on, and rows of "
                    "whole blocks of {}; there are {} bytes",
                    operation, m.n, m.k, traits(m).name, bytes, traits(m).values, m.bytes.numel()));
}

void check_pack(const PackedBlocks& to, const BlockMatrix& w, int64_t first) {
  check_packed("pack", to);
  const base::BlockFormatTraits& format = traits(to);
  bool fits = w.bits == format.bits && int64_t{1} << w.block_shift == format.values;
  for (int64_t i = 0; i < w.num_parts; ++i)
    fits &= w.parts[i].origin % format.values == 0 && w.parts[i].row_stride % format.values == 0;
  if (w.columns != to.k || first < 0 || first + w.rows > to.n || !fits)
    throw ShapeError(
        fmt::format("pack: rows {} to {} of a packed matrix [{}, {}] in {} need blocks of {} that lie in their rows; "
                    "there are rows of {}",
                    first, first + w.rows, to.n, to.k, format.name, format.values, w.columns));
}

/// Row `row` of W as dense codes and scales; a row that does not exist has scales of 0.
struct Row {
  const uint8_t* codes = nullptr;
  const BlockMatrix* w = nullptr;
  const BlockRows* part = nullptr;
  int64_t own = 0;

  Row(const BlockMatrix& matrix, int64_t row) {
    if (row >= matrix.rows) return;
    w = &matrix, part = &part_of(matrix, row), own = row - part->first;
    codes = part->codes + own * matrix.columns * matrix.bits / 8;
  }
  float scale(int64_t block) const {
    if (w == nullptr) return 0;
    return scale_at(*w, *part, own, part->origin + own * part->row_stride + (block << w->block_shift));
  }
  /// As float16, which it was.
  uint16_t half_scale(int64_t block) const { return narrow<float16>(scale(block)).bits; }
  /// Eight elements from element `k` on.
  uint32_t eight(int64_t k) const {
    uint32_t all = 0;
    if (codes != nullptr) std::memcpy(&all, codes + k / 2, 4);
    return all;
  }
  /// A whole number's code.
  uint8_t code(int64_t k) const {
    if (codes == nullptr) return 0;
    if (w->bits == 8) return codes[k];
    return k % 2 == 0 ? codes[k / 2] >> 4 : codes[k / 2] & 15;
  }
};

/// A scale with which all 16 values of a block are the same bfloat16 numbers, whether halves are rounded up or to even.
/// One in 8,000 scales makes a half that must be rounded down; it moves by the last bit or a few.
float scale_without_halves(const float* code, float scale) {
  uint32_t halves = 0;
  for (int i = 0; i < 16; ++i) halves += (std::bit_cast<uint32_t>(code[i] * scale) & 0x1ffff) == 0x8000;
  if (halves == 0) return scale;
  const auto same = [&](float other) {
    for (int i = 0; i < 16; ++i) {
      const float value = code[i] * scale, now = code[i] * other;
      if (narrow<bfloat16>(value).bits != static_cast<uint16_t>((std::bit_cast<uint32_t>(now) + 0x8000) >> 16))
        return false;
    }
    return true;
  };
  float less = scale, more = scale;
  for (int i = 0; i < 1000; ++i) {
    if (same(less)) return less;
    if (same(more)) return more;
    less = std::nextafter(less, 0.0f), more = std::nextafter(more, std::numeric_limits<float>::infinity());
  }
  return scale;  // so small that its values are next to the smallest there are
}

/// Elements [first, first + depth) of a row in column `column` of CodeOrder::quarters, whose codes begin at `to`: of
/// four elements, 0 and 2 are in one byte, 1 and 3 eight bytes later.
void pack_quarters(uint8_t* to, const Row& row, int64_t column, int64_t columns, int64_t first, int64_t depth) {
  const int64_t lane = column % 16;
  to += 2 * (column - lane) + lane / 4 % 2 * 16 + lane / 8 * 4 + lane % 4;
  for (int64_t k = first; k < first + depth; k += 4, to += 2 * columns) {
    to[0] = static_cast<uint8_t>(row.code(k) | row.code(k + 2) << 4);
    to[8] = static_cast<uint8_t>(row.code(k + 1) | row.code(k + 3) << 4);
  }
}

/// Eight elements of a column of CodeOrder::pairs, which has the given place among the 16 columns that begin at `to`.
void pack_pairs(uint32_t* to, int64_t lane, uint32_t eight) {
  constexpr uint32_t kLow = 0x0f0f0f0f;
  uint32_t* pair = to + lane % 8 * 2;
  const int shift = lane < 8 ? 0 : 4;
  const uint32_t keep = ~(kLow << shift);
  pair[0] = (pair[0] & keep) | (eight >> 4 & kLow) << shift;
  pair[1] = (pair[1] & keep) | (eight & kLow) << shift;
}

/// Writes a row into column `column` of a panel; the kernel's each_code() says where its nibbles lie.
void pack_values(const GemmKernel& kernel, uint8_t* panel, const Row& row, int64_t column, int64_t k) {
  const int64_t columns = kernel.panel_columns, lane = column % 16;
  constexpr PanelBlocks kBlocks = blocks_of(PanelCode::values);
  for (int64_t block = 0; block < k / kBlocks.depth; ++block, panel += kBlocks.bytes(columns)) {
    const float scale = row.scale(block);
    reinterpret_cast<float*>(panel)[column] =
        kernel.rounds_half_up && scale != 0 ? scale_without_halves(row.w->code, scale) : scale;
    if (kernel.code_order == CodeOrder::quarters) {
      pack_quarters(panel + columns * 4, row, column, columns, block * kBlocks.depth, kBlocks.depth);
      continue;
    }
    auto* to = reinterpret_cast<uint32_t*>(panel + columns * 4) + column - lane;
    for (int64_t i = 0; i < kBlocks.depth; i += 8, to += columns) {
      const uint32_t all = row.eight(block * kBlocks.depth + i);
      if (kernel.code_order == CodeOrder::lanes)
        to[lane] = all;
      else
        pack_pairs(to, lane, all);
    }
  }
}

/// The same of whole numbers; each_number() of code_panels-inl.h says where they lie (in 4 bits of CodeOrder::pairs: as
/// values).
void pack_numbers(const GemmKernel& kernel, uint8_t* panel, const Row& row, int64_t column, int64_t k, PanelCode code) {
  const PanelBlocks& blocks = blocks_of(code);
  const int64_t columns = kernel.panel_columns, lane = column % 16;
  for (int64_t first = 0; first < k; first += blocks.depth, panel += blocks.bytes(columns)) {
    const uint16_t scale = row.half_scale(first / blocks.depth);
    std::memcpy(panel + 2 * column, &scale, 2);
    if (kernel.code_order == CodeOrder::quarters && blocks.bits == 4) {
      pack_quarters(panel + 2 * columns, row, column, columns, first, blocks.depth);
      continue;
    }
    if (kernel.code_order == CodeOrder::pairs && blocks.bits == 4) {
      auto* to = reinterpret_cast<uint32_t*>(panel + 2 * columns) + column - lane;
      for (int64_t i = 0; i < blocks.depth; i += 8, to += columns) pack_pairs(to, lane, row.eight(first + i));
      continue;
    }
    for (int64_t i = 0; i < blocks.depth; ++i) {
      // Two elements of 16 columns lie together: which of these 32 is it?
      const int64_t place = kernel.code_order == CodeOrder::pairs ? 2 * lane + i % 2 : i % 2 * 16 + lane;
      uint8_t* both = panel + 2 * columns + (i / 2 * columns + column - lane) * blocks.bits / 4;
      const uint8_t number = row.code(first + i);
      if (blocks.bits == 8) {
        both[place] = number;
        continue;
      }
      const int shift = place < 16 ? 0 : 4;
      uint8_t& byte = both[place % 16];
      byte = static_cast<uint8_t>((byte & ~(15 << shift)) | number << shift);
    }
  }
}

/// Where a code of a panel lies: a byte behind the block's scales, and the shift of its bits.
struct CodePlace {
  int64_t byte;
  int shift;
};

/// Of element `i` of a block in column `column`: what pack_values() and pack_numbers() have written there.
CodePlace code_place(const GemmKernel& kernel, PanelCode code, int64_t column, int64_t i) {
  const int bits = blocks_of(code).bits;
  const int64_t columns = kernel.panel_columns, lane = column % 16;
  if (kernel.code_order == CodeOrder::quarters && bits == 4)
    return {2 * (i / 4 * columns + column - lane) + lane / 4 % 2 * 16 + lane / 8 * 4 + lane % 4 + i % 2 * 8,
            i % 4 < 2 ? 0 : 4};
  if (kernel.code_order == CodeOrder::pairs && bits == 4)
    return {4 * (i / 8 * columns + column - lane + lane % 8 * 2 + i % 2) + i % 8 / 2, lane < 8 ? 0 : 4};
  if (code == PanelCode::values) return {4 * (i / 8 * columns + column) + i % 8 / 2, i % 2 == 0 ? 4 : 0};
  const int64_t place = kernel.code_order == CodeOrder::pairs ? 2 * lane + i % 2 : i % 2 * 16 + lane,
                both = (i / 2 * columns + column - lane) * bits / 4;
  if (bits == 8) return {both + place, 0};
  return {both + place % 16, place < 16 ? 0 : 4};
}

/// Where LibTorch multiplies: the codes of all rows, and then their scales.
uint8_t* scales_of(const PackedBlocks& m) { return m.bytes.data_ptr<uint8_t>() + m.n * m.k * traits(m).bits / 8; }

void pack_rows(const PackedBlocks& to, const BlockMatrix& w, int64_t first) {
  const int64_t blocks = to.k / traits(to).values, row_bytes = to.k * traits(to).bits / 8;
  for (int64_t r = 0; r < w.rows; ++r) {
    const Row row(w, r);
    std::memcpy(to.bytes.data_ptr<uint8_t>() + (first + r) * row_bytes, row.codes, static_cast<size_t>(row_bytes));
    for (int64_t block = 0; block < blocks; ++block) {
      const int64_t at = (first + r) * blocks + block;
      if (traits(to).in_rows())
        reinterpret_cast<uint16_t*>(scales_of(to))[at] = row.half_scale(block);
      else
        reinterpret_cast<float*>(scales_of(to))[at] = row.scale(block);
    }
  }
}

}  // namespace

bool packs_blocks(const BlockPart& part) {
  const int64_t values = base::traits_of(part.format).values;
  return part.columns % values == 0 && part.column_span.begin % values == 0 && part.num_columns() % values == 0;
}

int64_t packed_block_bytes(int64_t n, int64_t k, base::BlockFormat format) {
  const PanelBlocks& blocks = blocks_of(panel_code(format));
  return (n + 63) / 64 * blocks.bytes(64) * (k / blocks.depth) + kPackedTail;
}

void pack_by(const GemmKernel& kernel, const PackedBlocks& to, const BlockMatrix& w, int64_t first) {
  check_pack(to, w, first);
  if (w.rows == 0) return;
  const PanelCode code = panel_code(to.format);
  const int64_t columns = kernel.panel_columns,
                panel_bytes = to.k / blocks_of(code).depth * blocks_of(code).bytes(columns);
  // The last rows are followed by such of scale 0, which fill their panel.
  const int64_t rows = first + w.rows == to.n ? (to.n + columns - 1) / columns * columns - first : w.rows;
  const int64_t begin = first / columns, end = (first + rows + columns - 1) / columns;
  auto* bytes = to.bytes.data_ptr<uint8_t>();
  parallel_rows(end - begin, row_grain(to.k * columns), [&](int64_t from, int64_t until) {
    for (int64_t panel = begin + from; panel < begin + until; ++panel)
      for (int64_t row = std::max(first, panel * columns); row < std::min(first + rows, (panel + 1) * columns); ++row) {
        uint8_t* const at = bytes + panel * panel_bytes;
        const Row from(w, row - first);
        if (code == PanelCode::values)
          pack_values(kernel, at, from, row - panel * columns, to.k);
        else
          pack_numbers(kernel, at, from, row - panel * columns, to.k, code);
      }
  });
}

void pack(const PackedBlocks& to, const BlockMatrix& w, int64_t first) {
  check_pack(to, w, first);
  const GemmKernel* kernel = kernel_of(to);
  kernel != nullptr ? pack_by(*kernel, to, w, first) : pack_rows(to, w, first);
}

void pack(const PackedMatrix& to, const BlockMatrix& w, int64_t first) {
  constexpr int64_t kRows = 256;
  const at::Tensor wide = at::empty({std::min(kRows, w.rows), w.columns}, at::TensorOptions(to.dtype));
  for (int64_t row = 0; row < w.rows; row += kRows) {
    const at::Tensor now = wide.narrow(0, 0, std::min(kRows, w.rows - row));
    widen(now, w, row);
    pack(to, now.t(), first + row);
  }
}

namespace {

/// Reads one row of W: element k is code * scale, as products widen it.
class RowReader {
 public:
  RowReader(const GemmKernel* kernel, const PackedBlocks& b)
      : kernel_(kernel), b_(b), code_(panel_code(b.format)), values_(four_bit_code(b.format).data()) {}

  template <class T>
  void read(int64_t row, T* to) const {
    const int64_t depth = traits(b_).values;
    for (int64_t first = 0; first < b_.k; first += depth) {
      const float scale = scale_of(row, first / depth);
      for (int64_t i = 0; i < depth; ++i) to[first + i] = narrow<T>(value_of(row, first, i) * scale);
    }
  }

 private:
  const uint8_t* bytes() const { return static_cast<const uint8_t*>(b_.bytes.const_data_ptr()); }
  const uint8_t* block_of(int64_t row, int64_t block) const {
    const PanelBlocks& blocks = blocks_of(code_);
    const int64_t columns = kernel_->panel_columns;
    return bytes() + (row / columns * (b_.k / blocks.depth) + block) * blocks.bytes(columns);
  }
  float scale_of(int64_t row, int64_t block) const {
    const int64_t bytes = blocks_of(code_).scale_bytes;
    const uint8_t* at = kernel_ == nullptr ? scales_of(b_) + (row * (b_.k / traits(b_).values) + block) * bytes
                                           : block_of(row, block) + row % kernel_->panel_columns * bytes;
    if (bytes == 2) {
      float16 half;
      std::memcpy(&half.bits, at, 2);
      return widen(half);
    }
    float scale = 0;
    std::memcpy(&scale, at, 4);
    return scale;
  }
  float value_of(int64_t row, int64_t first, int64_t i) const {
    const int bits = traits(b_).bits;
    uint8_t byte = 0;
    int shift = 0;
    if (kernel_ == nullptr) {
      byte = bytes()[(row * b_.k + first + i) * bits / 8];
      shift = i % 2 == 0 ? 4 : 0;
    } else {
      const PanelBlocks& blocks = blocks_of(code_);
      const CodePlace place = code_place(*kernel_, code_, row % kernel_->panel_columns, i);
      byte = block_of(row, first / blocks.depth)[kernel_->panel_columns * blocks.scale_bytes + place.byte];
      shift = place.shift;
    }
    return bits == 8 ? static_cast<float>(static_cast<int8_t>(byte)) : values_[byte >> shift & 15];
  }

  const GemmKernel* kernel_;
  const PackedBlocks& b_;
  PanelCode code_;
  const float* values_;
};

void unpack_rows(const GemmKernel* kernel, const at::Tensor& to, const PackedBlocks& b, const at::Tensor& rows) {
  check_packed("unpack_columns", b);
  check_tensor("unpack_columns", "to", to, {rows.numel(), b.k}, b.dtype);
  check_tensor("unpack_columns", "rows", rows, {rows.numel()}, at::kLong);
  check_ids("unpack_columns", "rows", rows, b.n, -1, [&] { return fmt::format("a matrix of {} rows", b.n); });
  const RowReader reader(kernel, b);
  const auto* ids = rows.data_ptr<int64_t>();
  with_storage(storage_of(b.dtype), [&]<class T>() {
    auto* const out = static_cast<T*>(to.data_ptr());
    parallel_rows(rows.numel(), row_grain(b.k), [&](int64_t first, int64_t last) {
      for (int64_t r = first; r < last; ++r) {
        if (ids[r] < 0)
          std::memset(static_cast<void*>(out + r * b.k), 0, static_cast<size_t>(b.k) * sizeof(T));
        else
          reader.read(ids[r], out + r * b.k);
      }
    });
  });
}

}  // namespace

void unpack_columns_by(const GemmKernel& kernel, const at::Tensor& to, const PackedBlocks& b, const at::Tensor& rows) {
  unpack_rows(&kernel, to, b, rows);
}

void unpack_columns(const at::Tensor& to, const PackedBlocks& b, const at::Tensor& rows) {
  unpack_rows(kernel_of(b), to, b, rows);
}

void multiply_packed_by(const GemmKernel& kernel, const at::Tensor& c, const at::Tensor& a, const PackedBlocks& b) {
  check_packed("multiply_packed", b);
  check_packed_product(c, a, b.n, b.k, b.dtype);
  if (c.numel() == 0) return;
  if (b.k == 0) return static_cast<void>(at::Tensor(c).zero_());
  GemmCall call = packed_call(c, a);
  call.panels = b.bytes.const_data_ptr();
  call.panel_code = panel_code(b.format), call.code = four_bit_code(b.format).data();
  run_panel_team(kernel, call);
}

void multiply_packed(const at::Tensor& c, const at::Tensor& a, const PackedBlocks& b) {
  const Announced announced([&] { return product_operation("packed_blocks_product", c, a, b.n); });
  if (announced.skipped()) return;
  if (const GemmKernel* kernel = kernel_of(b)) {
    const base::Metered metered(base::Activity::products);
    return multiply_packed_by(*kernel, c, a, b);
  }
  check_packed("multiply_packed", b);
  check_packed_product(c, a, b.n, b.k, b.dtype);
  const bool numbers = traits(b).in_rows();
  const uint8_t* scales = scales_of(b);
  const BlockRows rows{.count = b.n,
                       .codes = b.bytes.data_ptr<uint8_t>(),
                       .row_stride = b.k,
                       .scales = numbers ? nullptr : reinterpret_cast<const float*>(scales),
                       .half_scales = numbers ? reinterpret_cast<const uint16_t*>(scales) : nullptr};
  multiply_blocks(c, a,
                  {.rows = b.n,
                   .columns = b.k,
                   .bits = traits(b).bits,
                   .numbers = numbers,
                   .block_shift = std::countr_zero(static_cast<uint64_t>(traits(b).values)),
                   .code = four_bit_code(b.format).data(),
                   .parts = &rows,
                   .num_parts = 1},
                  true);
}

}  // namespace trireme::ops
