// The interface between products (products.cpp) and our own kernels for them: plain pointers, no ATen.
//
// Why we have our own: on AMD, MKL reaches 88 to 96 % of the peak of the multiply-add units in bfloat16, and 81 to 91 %
// in float32. On a Zen 4, our kernels reach 94 to 98 %, and they sum bfloat16 products into a float32 result. Like
// attention's kernels, each is compiled with its own flags and includes no library header.
#pragma once

#include <cstdint>

#include "trireme/ops/blocks/matrix.h"

namespace trireme::ops {

/// The elements of panels: as they are multiplied; nibbles that choose one of 16 values, with a float32 scale for 64 of
/// them along k; or whole numbers of 4 or 8 bits, with a float16 scale for 32.
enum class PanelCode { none, values, nibbles, bytes };

/// Panels in blocks: [panels][k / depth] blocks, each of a scale for every column of a panel and of their codes.
struct PanelBlocks {
  int64_t depth;  ///< elements of k with a common scale
  int64_t scale_bytes;
  int bits;  ///< of a code
  constexpr int64_t bytes(int64_t columns) const { return columns * (scale_bytes + depth * bits / 8); }
};
constexpr PanelBlocks kPanelBlocks[] = {{1, 0, 0}, {64, 4, 4}, {32, 2, 4}, {32, 2, 8}};
constexpr const PanelBlocks& blocks_of(PanelCode code) { return kPanelBlocks[static_cast<int>(code)]; }
constexpr int64_t kDeepestBlock = 64;

/// How the codes of 16 columns lie in a block, from the first element of k to the last. A nibble is half a byte.
enum class CodeOrder {
  lanes,  ///< AVX-512. Values: 4 bytes for eight elements of a column. Numbers: a row of two elements, one after
          ///< another
  pairs,  ///< AVX512-BF16: two elements of a column side by side; whole numbers of 4 bits as values
  quarters  ///< AVX2: 32 bytes for four elements, as unpacking them by halves of a register needs it; bytes as in lanes
};

/// C [m, n] = A B or C + A B, where A is [m, k] and B is [k, n]. Leading dimensions (_ld) are in elements.
struct GemmCall {
  int64_t m, n, k;
  const void* a;
  int64_t a_ld;
  bool a_transposed;  ///< A is stored [k, m]
  const void* b;
  int64_t b_ld;
  bool b_transposed;  ///< B is stored [n, k]
  void* c;
  int64_t c_ld;
  bool accumulate;  ///< add to what C holds; only where C is float32
  bool c_is_float;  ///< C is float32 whatever A and B are; otherwise of their dtype
  // B in blocks, instead of `b`: widened piece by piece, where it is packed.
  const BlockMatrix* blocks = nullptr;  ///< [k, n], or [n, k] if b_transposed
  WidenRows widen = nullptr;
  bool widened_to_float = false;  ///< whatever A is
  const void* panels = nullptr;  ///< B in the kernel's panel order (panels-inl.h), instead of `b`, for run_panels
  PanelCode panel_code = PanelCode::none;  ///< how the panels keep their elements
  const float* code = nullptr;  ///< [16], of PanelCode::values: what nibbles stand for
};

/// `columns` columns of B, which become columns [first, first + columns) of a B [k, n] in panel order.
struct PanelPack {
  void* to;
  int64_t n, k;
  const void* b;
  int64_t b_ld;
  bool b_transposed;  ///< b is stored [columns, k]
  int64_t first, columns;
};

/// The common state of several threads that compute one C. Each thread takes the next rows of a block of columns that
/// no other has taken, so that none waits long for a slower one. Every element is summed over k in the same order by
/// any thread: the bits do not depend on threads.
struct GemmTeam {
  int64_t* taken;  ///< rows taken so far, for each block of columns; gemm_blocks of them, zeroed before
  int num_threads;
};

struct GemmKernel {
  const char* name;
  /// k must be a multiple of this (two bfloat16 make one unit of the dot product).
  int64_t k_multiple;
  void (*run)(const GemmCall& call, const GemmTeam& team, int thread, void* scratch);
  int64_t panel_columns;
  // How codes lie in panels, and which scales PanelCode::values need (packed_blocks.cpp).
  CodeOrder code_order;
  bool rounds_half_up;
  bool swaps_quarters;  ///< of 16 columns of a panel that is not in blocks, 4 to 7 and 8 to 11 have changed places
  /// Writes the packed columns that lie in panels [begin, end). The panel with the last column of B also gets zeros.
  void (*pack)(const PanelPack& pack, int64_t begin, int64_t end, void* scratch);
  /// run() for a B in panel order and an A that is not transposed: the same bits. Here the team has one number `taken`:
  /// each thread takes some columns for all rows, so that B is read from memory once.
  void (*run_panels)(const GemmCall& call, const GemmTeam& team, int thread, void* scratch);
};

extern const GemmKernel kGemmFloatAvx2, kGemmBfloat16Avx2, kGemmHalfAvx2;  ///< AVX2, FMA and F16C
extern const GemmKernel kGemmFloatAvx512;  ///< float32, for two multiply-adds a cycle; AVX512 F
extern const GemmKernel kGemmFloatWideAvx512;  ///< float32, where there is BF16 too; AVX512 F
extern const GemmKernel kGemmBfloat16Avx512;  ///< bfloat16, widened while it is packed; AVX512 F, BW and VL
extern const GemmKernel kGemmHalfAvx512;  ///< float16, likewise; AVX512 F, BW and VL
extern const GemmKernel kGemmHalfWideAvx512;  ///< float16, where there is BF16 too; AVX512 F, BW and VL
extern const GemmKernel kGemmBfloat16Avx512Bf16;  ///< bfloat16; the same and BF16

// Blocking. Each instruction set has its own tile in registers: a panel of B's columns, a strip of A's rows.
constexpr int64_t kGemmColumns = 64;  ///< whole panels; fewest columns of a block
/// Units (4 bytes) of B packed at once, or half as many if A is read in place: the size of a 1 MiB level-2 cache.
constexpr int64_t kGemmBlockUnits = 256 << 10;
constexpr int64_t kGemmDepthPacked = 512;  ///< most units of k summed in registers where A is packed too
constexpr int64_t kGemmGroup = 48;  ///< rows of A packed at once: whole strips
constexpr int64_t kGemmGroupUnits = kGemmGroup * kGemmDepthPacked + 8 * 16;  ///< with a line after each of 8 strips
constexpr int64_t kGemmHeld = 384;  ///< most rows whose partial sums are stored at once

/// Scratch of one call of run, aligned to 64: packed B, packed A, partial sums. The same for every shape.
constexpr int64_t kGemmScratchBytes =
    4 * (kGemmBlockUnits + kGemmGroupUnits + kGemmHeld * (kGemmBlockUnits / kGemmDepthPacked));

/// An upper bound for the blocks of columns in a product of n columns.
constexpr int64_t gemm_blocks(int64_t n) { return (n + kGemmColumns - 1) / kGemmColumns; }

}  // namespace trireme::ops
