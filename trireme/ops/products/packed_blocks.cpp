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

void check_packed(const char* operation, const PackedBlocks& m) {
  const int64_t bytes = packed_block_bytes(m.n, m.k);
  if (m.k % kCodesDepth != 0 || m.bytes.scalar_type() != at::kByte || m.bytes.dim() != 1 || m.bytes.numel() != bytes ||
      !m.bytes.is_contiguous() || reinterpret_cast<uintptr_t>(m.bytes.const_data_ptr()) % 64 != 0)
    throw ShapeError(
        fmt::format("{}: a packed matrix [{}, {}] in 4 bits has {} contiguous bytes from a multiple of 64 "
                    "on, and rows of whole blocks of 64; there are {} bytes",
                    operation, m.n, m.k, bytes, m.bytes.numel()));
}

void check_pack(const PackedBlocks& to, const BlockMatrix& w, int64_t first) {
  check_packed("pack", to);
  bool in_rows = true;
  for (int64_t i = 0; i < w.num_parts; ++i)
    in_rows &= w.parts[i].origin % kCodesDepth == 0 && w.parts[i].row_stride % kCodesDepth == 0;
  if (w.columns != to.k || first < 0 || first + w.rows > to.n || !in_rows)
    throw ShapeError(
        fmt::format("pack: rows {} to {} of a packed matrix [{}, {}] in 4 bits need blocks of 64 that lie in "
                    "their rows; there are rows of {}",
                    first, first + w.rows, to.n, to.k, w.columns));
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
    codes = part->codes + own * matrix.columns / 2;
  }
  float scale(int64_t block) const {
    return w == nullptr ? 0 : scale_at(*w, *part, own, part->origin + own * part->row_stride + block * kCodesDepth);
  }
  /// Eight elements from element `k` on.
  uint32_t eight(int64_t k) const {
    uint32_t all = 0;
    if (codes != nullptr) std::memcpy(&all, codes + k / 2, 4);
    return all;
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
  check_invariant(false, "some scale makes no halves");
  return scale;
}

/// Writes a row into column `column` of a panel; the kernel's widen_codes() says where its nibbles lie.
void pack_row(const GemmKernel& kernel, uint8_t* panel, const Row& row, int64_t column, int64_t k) {
  constexpr uint32_t kLow = 0x0f0f0f0f;
  const int64_t columns = kernel.panel_columns, lane = column % 16;
  for (int64_t block = 0; block < k / kCodesDepth; ++block, panel += code_block_bytes(columns)) {
    const float scale = row.scale(block);
    reinterpret_cast<float*>(panel)[column] =
        kernel.rounds_half_up && scale != 0 ? scale_without_halves(row.w->code, scale) : scale;
    auto* to = reinterpret_cast<uint32_t*>(panel + columns * 4) + column - lane;
    for (int64_t i = 0; i < kCodesDepth; i += 8, to += columns) {
      const uint32_t all = row.eight(block * kCodesDepth + i);
      if (!kernel.codes_in_pairs) {
        to[lane] = all;
        continue;
      }
      uint32_t* pair = to + lane % 8 * 2;
      const int shift = lane < 8 ? 0 : 4;
      const uint32_t keep = ~(kLow << shift);
      pair[0] = (pair[0] & keep) | (all >> 4 & kLow) << shift;
      pair[1] = (pair[1] & keep) | (all & kLow) << shift;
    }
  }
}

/// Where LibTorch multiplies: the codes of all rows, and then their scales.
float* scales_of(const PackedBlocks& m) {
  return reinterpret_cast<float*>(m.bytes.data_ptr<uint8_t>() + m.n * m.k / 2);
}

void pack_rows(const PackedBlocks& to, const BlockMatrix& w, int64_t first) {
  const int64_t blocks = to.k / kCodesDepth;
  for (int64_t r = 0; r < w.rows; ++r) {
    const Row row(w, r);
    std::memcpy(to.bytes.data_ptr<uint8_t>() + (first + r) * to.k / 2, row.codes, static_cast<size_t>(to.k / 2));
    for (int64_t block = 0; block < blocks; ++block) scales_of(to)[(first + r) * blocks + block] = row.scale(block);
  }
}

}  // namespace

bool packs_blocks(const BlockPart& part) {
  return part.columns % kCodesDepth == 0 && part.column_span.begin % kCodesDepth == 0 &&
         part.num_columns() % kCodesDepth == 0;
}

int64_t packed_block_bytes(int64_t n, int64_t k) {
  return (n + 63) / 64 * code_block_bytes(64) * (k / kCodesDepth) + kPackedTail;
}

void pack_by(const GemmKernel& kernel, const PackedBlocks& to, const BlockMatrix& w, int64_t first) {
  check_pack(to, w, first);
  if (w.rows == 0) return;
  const int64_t columns = kernel.panel_columns, panel_bytes = to.k / kCodesDepth * code_block_bytes(columns);
  // The last rows are followed by such of scale 0, which fill their panel.
  const int64_t rows = first + w.rows == to.n ? (to.n + columns - 1) / columns * columns - first : w.rows;
  const int64_t begin = first / columns, end = (first + rows + columns - 1) / columns;
  auto* bytes = to.bytes.data_ptr<uint8_t>();
  parallel_rows(end - begin, row_grain(to.k * columns), [&](int64_t from, int64_t until) {
    for (int64_t panel = begin + from; panel < begin + until; ++panel)
      for (int64_t row = std::max(first, panel * columns); row < std::min(first + rows, (panel + 1) * columns); ++row)
        pack_row(kernel, bytes + panel * panel_bytes, Row(w, row - first), row - panel * columns, to.k);
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

void multiply_packed_by(const GemmKernel& kernel, const at::Tensor& c, const at::Tensor& a, const PackedBlocks& b) {
  check_packed("multiply_packed", b);
  check_packed_product(c, a, b.n, b.k, b.dtype);
  if (c.numel() == 0) return;
  if (b.k == 0) return static_cast<void>(at::Tensor(c).zero_());
  GemmCall call = packed_call(c, a);
  call.panels = b.bytes.const_data_ptr();
  call.code = four_bit_code(b.format).data();
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
  const BlockRows rows{.count = b.n, .codes = b.bytes.data_ptr<uint8_t>(), .row_stride = b.k, .scales = scales_of(b)};
  multiply_blocks(c, a,
                  {.rows = b.n, .columns = b.k, .code = four_bit_code(b.format).data(), .parts = &rows, .num_parts = 1},
                  true);
}

}  // namespace trireme::ops
