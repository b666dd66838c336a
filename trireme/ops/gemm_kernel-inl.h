// Matrix products with registers as the innermost block: 6 rows x 64 columns of C stay in 24 registers while k runs.
//
// B is packed into panels of 64 columns, one unit of k after the other (a unit is one float, or two bfloat16 that one
// instruction multiplies and sums), and streams from the level-2 cache; the strip of A is broadcast unit by unit from
// where it lies, or from a packed copy when A is stored transposed or has to be widened. The scheme is Goto's (Goto and
// van de Geijn, Anatomy of High-Performance Matrix Multiplication, 2008) with the roles of A and B exchanged.
//
// Included once per instruction set, in an anonymous namespace: no symbol leaves its file.
#pragma once

#include "trireme/ops/gemm_kernel.h"

namespace trireme::ops {
namespace {

constexpr int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
constexpr int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }
constexpr int64_t round_up(int64_t x, int64_t unit) { return (x + unit - 1) / unit * unit; }
constexpr int64_t kLanes = 16, kVectors = kGemmPanel / kLanes;

/// Where a tile's sums start from and go to.
struct Tile {
  const float* from;  ///< null: zero
  int64_t from_ld;
  bool adds;  ///< to what `to_sums` holds. At the end: its lines come while k runs, and a small sum loses fewer bits
  float* to_sums;  ///< partial sums, or a float32 C; null: `to_narrow`
  uint16_t* to_narrow;
  int64_t to_ld;
};

/// sums [Rows, Vectors * 16] over `depth` units; A unit (r, u) at a + r * a_row + u * a_step bytes.
template <class M, int Rows, int Vectors, bool kPacked>
__attribute__((noinline)) void multiply_tile(int64_t depth, const char* a, int64_t a_row, const typename M::Unit* panel,
                                             const Tile& tile, int64_t columns) {
  using Vec = typename M::Vec;
  Vec sum[Rows][Vectors];
  const int64_t last = columns - (Vectors - 1) * kLanes;  // columns of the last vector
  const auto each = [&](const auto& body) {
#pragma GCC unroll 6
    for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < Vectors; ++v) body(r, v, v + 1 < Vectors ? kLanes : last);
  };
  if (tile.from == nullptr)
    each([&](int r, int v, int64_t) { sum[r][v] = M::zero(); });
  else
    each([&](int r, int v, int64_t n) { sum[r][v] = M::load_first(tile.from + r * tile.from_ld + v * kLanes, n); });
  // The result's lines are on their way while k runs.
  const char* to = tile.to_sums != nullptr ? reinterpret_cast<const char*>(tile.to_sums)
                                           : reinterpret_cast<const char*>(tile.to_narrow);
  const int64_t element = tile.to_sums != nullptr ? 4 : 2;
#pragma GCC unroll 6
  for (int r = 0; r < Rows; ++r)
    for (int64_t byte = 0; byte < Vectors * kLanes * element; byte += 64)
      __builtin_prefetch(to + r * tile.to_ld * element + byte, 1);
  for (int64_t u = 0; u < depth; ++u) {
    typename M::UnitVec b[Vectors];
    for (int v = 0; v < Vectors; ++v) b[v] = M::load_units(panel + u * kGemmPanel + v * kLanes);
    for (int r = 0; r < Rows; ++r) {
      const typename M::UnitVec x = M::broadcast(kPacked ? a + (u * kGemmStrip + r) * 4 : a + r * a_row + u * 4);
      for (int v = 0; v < Vectors; ++v) sum[r][v] = M::multiply_add(sum[r][v], x, b[v]);
    }
  }
  if (tile.adds)
    each([&](int r, int v, int64_t n) {
      sum[r][v] = M::add(sum[r][v], M::load_first(tile.to_sums + r * tile.to_ld + v * kLanes, n));
    });
  if (tile.to_sums != nullptr)
    each([&](int r, int v, int64_t n) { M::store_first(tile.to_sums + r * tile.to_ld + v * kLanes, sum[r][v], n); });
  else
    each([&](int r, int v, int64_t n) { M::store_narrow(tile.to_narrow + r * tile.to_ld + v * kLanes, sum[r][v], n); });
}

template <class M, bool kPacked, int Rows>
void multiply_rows(int64_t vectors, int64_t depth, const char* a, int64_t a_row, const typename M::Unit* panel,
                   const Tile& tile, int64_t columns) {
  switch (vectors) {
    case 1:
      return multiply_tile<M, Rows, 1, kPacked>(depth, a, a_row, panel, tile, columns);
    case 2:
      return multiply_tile<M, Rows, 2, kPacked>(depth, a, a_row, panel, tile, columns);
    case 3:
      return multiply_tile<M, Rows, 3, kPacked>(depth, a, a_row, panel, tile, columns);
    default:
      return multiply_tile<M, Rows, 4, kPacked>(depth, a, a_row, panel, tile, columns);
  }
}

template <class M, bool kPacked>
void multiply_strip(int64_t rows, int64_t depth, const char* a, int64_t a_row, const typename M::Unit* panel,
                    const Tile& tile, int64_t columns) {
  const int64_t vectors = (columns + kLanes - 1) / kLanes;
  switch (rows) {
    case 1:
      return multiply_rows<M, kPacked, 1>(vectors, depth, a, a_row, panel, tile, columns);
    case 2:
      return multiply_rows<M, kPacked, 2>(vectors, depth, a, a_row, panel, tile, columns);
    case 3:
      return multiply_rows<M, kPacked, 3>(vectors, depth, a, a_row, panel, tile, columns);
    case 4:
      return multiply_rows<M, kPacked, 4>(vectors, depth, a, a_row, panel, tile, columns);
    case 5:
      return multiply_rows<M, kPacked, 5>(vectors, depth, a, a_row, panel, tile, columns);
    default:
      return multiply_rows<M, kPacked, 6>(vectors, depth, a, a_row, panel, tile, columns);
  }
}

/// One thread's share of a product. Units are addressed in bytes: rows of bfloat16 need not start on a whole unit.
template <class M>
struct Gemm {
  using Unit = typename M::Unit;
  static constexpr int64_t kElement = M::kElementBytes, kUnit = M::kPair * kElement;  // bytes in memory
  static constexpr bool kWidens = kUnit < 4;  ///< rows of A are no units as they lie

  const GemmCall& call;
  Unit* packed_b;
  Unit* packed_a;
  float* held;  ///< partial sums where C cannot hold them
  const int64_t units, pieces;  ///< of k; pieces of it that are summed in registers
  const bool keeps;  ///< B's columns stay packed for all pieces, otherwise for one
  int64_t block;  ///< columns packed at once

  Gemm(const GemmCall& call_, void* scratch)
      : call(call_),
        units(call.k / M::kPair),
        pieces(larger(1, (units + depth_limit() - 1) / depth_limit())),
        keeps(units <= kGemmBlockUnits / (2 * kGemmPanel)) {
    packed_b = static_cast<Unit*>(scratch);
    packed_a = packed_b + kGemmBlockUnits;
    held = reinterpret_cast<float*>(packed_a + kGemmGroupUnits);
    // Packing a transposed A is repeated for each block of columns: fewer and larger ones, that reach level 3.
    const int64_t block_units = call.a_transposed ? kGemmBlockUnits : kGemmBlockUnits / 2;
    const int64_t deep = larger(1, keeps ? units : depth_limit());
    block = larger(kGemmPanel, block_units / deep / kGemmPanel * kGemmPanel);
  }

  int64_t depth_limit() const { return call.a_transposed ? kGemmDepthTransposed : kGemmDepth; }

  const char* a_at(int64_t row, int64_t k) const {
    return static_cast<const char*>(call.a) +
           (call.a_transposed ? k * call.a_ld + row : row * call.a_ld + k) * kElement;
  }
  const char* b_at(int64_t k, int64_t column) const {
    return static_cast<const char*>(call.b) +
           (call.b_transposed ? column * call.b_ld + k : k * call.b_ld + column) * kElement;
  }

  /// [panels][depth][64]; columns beyond the last are zero.
  void pack_b(Unit* to, int64_t k0, int64_t depth, int64_t column, int64_t columns) const {
    for (int64_t j = 0; j < columns; j += kGemmPanel, to += depth * kGemmPanel) {
      const int64_t width = smaller(kGemmPanel, columns - j);
      const char* from = b_at(k0, column + j);
      if (call.b_transposed)
        pack_transposed(to, from, depth, width);
      else
        for (int64_t u = 0; u < depth; ++u)
          for (int64_t v = 0; v < kGemmPanel; v += kLanes)
            M::pack_vector(to + u * kGemmPanel + v, from + u * M::kPair * call.b_ld * kElement + v * kElement,
                           call.b_ld * kElement, width - v);
    }
  }

  void pack_transposed(Unit* to, const char* from, int64_t depth, int64_t width) const {
    const int64_t row_bytes = call.b_ld * kElement;
    for (int64_t v = 0; v < kGemmPanel; v += kLanes) {
      const int64_t rows = larger(0, smaller(kLanes, width - v));
      for (int64_t u = 0; u < depth; u += kLanes)
        M::template transpose<M>(to + u * kGemmPanel + v, kGemmPanel, from + v * row_bytes + u * kUnit, row_bytes, rows,
                                 smaller(kLanes, depth - u));
    }
  }

  /// Units from one strip's packed rows to the next strip's: a line more than they need, or all strips of a group would
  /// start in the same set of the level-1 cache.
  static int64_t strip_units(int64_t depth) { return depth * kGemmStrip + kLanes; }

  /// [strips][depth][6]; rows beyond the last are zero.
  void pack_a(int64_t k0, int64_t depth, int64_t row, int64_t rows) const {
    constexpr int64_t kAhead = 8;  // units; the rows of A are too far apart for the processor to guess the next
    const int64_t row_bytes = call.a_ld * kElement, unit_bytes = M::kPair * row_bytes;
    const char* from = a_at(row, k0);
    for (int64_t u = 0; u < depth; ++u, from += unit_bytes) {
      if (u + kAhead < depth)
        for (int64_t i = 0; i < M::kPair; ++i)
          for (int64_t byte = 0; byte < kGemmGroup * kElement; byte += 64)
            __builtin_prefetch(from + kAhead * unit_bytes + i * row_bytes + byte, 0, 2);
      M::pack_group(packed_a + u * kGemmStrip, strip_units(depth), from, row_bytes, rows, u + 1 == depth);
    }
  }

  /// Units from one row of a widened strip to the next; not a multiple of 4 KiB, as strip_units.
  static int64_t wide_row_units(int64_t depth) { return round_up(depth, kLanes) + kLanes; }

  /// [rows][depth], of an A that is not transposed.
  void widen_a(int64_t k0, int64_t depth, int64_t row, int64_t rows) const {
    for (int64_t r = 0; r < rows; ++r) {
      const char* from = a_at(row + r, k0);
      Unit* to = packed_a + r * wide_row_units(depth);
      for (int64_t u = 0; u < depth; u += kLanes) M::pack_vector(to + u, from + u * kUnit, 0, depth - u);
    }
  }

  bool holds() const { return pieces > 1 && !call.c_is_float && kElement == 2; }

  /// Rows taken at once: a group, so that no thread waits long; as many as there are for one thread; and where B has to
  /// be packed again for them, enough to make that cheap.
  int64_t rows_at_once(int num_threads) const {
    if (keeps && num_threads > 1) return kGemmGroup;
    int64_t shares = num_threads;
    if (holds()) shares *= (call.m + kGemmHeld * num_threads - 1) / (kGemmHeld * num_threads);
    return round_up((call.m + shares - 1) / shares, kGemmStrip);
  }

  void run(const GemmTeam& team, int thread) const {
    const int64_t blocks = (call.n + block - 1) / block, rows = rows_at_once(team.num_threads);
    // Each thread begins with blocks of its own, and then helps with others.
    for (int64_t i = 0; i < blocks; ++i) {
      const int64_t at = (i + blocks * thread / team.num_threads) % blocks, n0 = at * block;
      const int64_t columns = smaller(block, call.n - n0), stride = round_up(columns, kGemmPanel);
      bool packed = false;
      for (;;) {
        const int64_t m0 = __atomic_fetch_add(team.taken + at, rows, __ATOMIC_RELAXED);
        if (m0 >= call.m) break;
        for (int64_t piece = 0; piece < pieces; ++piece) {
          const int64_t u0 = units * piece / pieces, depth = units * (piece + 1) / pieces - u0;
          Unit* b = packed_b + (keeps ? u0 * stride : 0);
          if (!packed) pack_b(b, u0 * M::kPair, depth, n0, columns);
          multiply_block(b, m0, smaller(m0 + rows, call.m), n0, columns, u0, depth, piece == 0, piece + 1 == pieces);
        }
        packed = keeps;
      }
    }
  }

  void multiply_block(const Unit* b, int64_t m0, int64_t m1, int64_t n0, int64_t columns, int64_t u0, int64_t depth,
                      bool first, bool last) const {
    for (int64_t g0 = m0; g0 < m1; g0 += kGemmGroup) {
      const int64_t g1 = smaller(m1, g0 + kGemmGroup);
      if (call.a_transposed) pack_a(u0 * M::kPair, depth, g0, g1 - g0);
      for (int64_t row = g0; row < g1; row += kGemmStrip) {
        const int64_t rows = smaller(kGemmStrip, g1 - row);
        if (kWidens && !call.a_transposed) widen_a(u0 * M::kPair, depth, row, rows);
        for (int64_t j = 0; j < columns; j += kGemmPanel) {
          const Tile tile = tile_at(row, m0, n0 + j, j, columns, first, last);
          const int64_t width = smaller(kGemmPanel, columns - j);
          const Unit* panel = b + j * depth;
          const char* packed = reinterpret_cast<const char*>(packed_a);
          if (call.a_transposed)
            multiply_strip<M, true>(rows, depth, packed + (row - g0) / kGemmStrip * strip_units(depth) * 4, 0, panel,
                                    tile, width);
          else
            multiply_strip<M, false>(rows, depth, kWidens ? packed : a_at(row, u0 * M::kPair),
                                     kWidens ? wide_row_units(depth) * 4 : call.a_ld * kElement, panel, tile, width);
        }
      }
    }
  }

  Tile tile_at(int64_t row, int64_t m0, int64_t column, int64_t j, int64_t columns, bool first, bool last) const {
    float* sums = held + (row - m0) * columns + j;
    const bool in_c = call.c_is_float || kElement == 4;
    float* c = static_cast<float*>(call.c) + row * call.c_ld + column;
    Tile tile{};
    if (!first) tile.from = in_c ? c : sums, tile.from_ld = in_c ? call.c_ld : columns;
    tile.adds = first && call.accumulate;
    if (in_c)
      tile.to_sums = c, tile.to_ld = call.c_ld;
    else if (!last)
      tile.to_sums = sums, tile.to_ld = columns;
    else
      tile.to_narrow = static_cast<uint16_t*>(call.c) + row * call.c_ld + column, tile.to_ld = call.c_ld;
    return tile;
  }
};

static_assert(kGemmStrip * (round_up(kGemmDepth, kLanes) + kLanes) <= kGemmGroupUnits);  // a widened strip fits

template <class M>
void run_gemm(const GemmCall& call, const GemmTeam& team, int thread, void* scratch) {
  Gemm<M>(call, scratch).run(team, thread);
}

}  // namespace
}  // namespace trireme::ops
