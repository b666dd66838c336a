// Matrix products with registers as the innermost block: a tile of kStrip rows x kPanel columns of C stays in 24
// registers during the loop over k.
//
// B is packed into panels of kPanel columns, one unit of k after the other, and streams from the level-2 cache. A unit
// is one float, or two bfloat16 that one instruction multiplies and sums. The strip of A is broadcast unit by unit,
// from a packed copy or (M decides) from A itself. The scheme is Goto's (Goto and van de Geijn, Anatomy of
// High-Performance Matrix Multiplication, 2008) with the roles of A and B exchanged.
//
// Included once per instruction set, in an anonymous namespace: no symbol leaves its file. The instruction set's M
// decides:
//   kStrip, kPanel   the tile
//   kDepth           most units of k summed in registers; kDepthPacked where A is packed
//   kBlock           most columns of B packed at once
//   kKeptColumns     fewest columns that are worth keeping packed for all of k
//   kPacksA          A is packed even if its rows could be read in place
//   kLoadsAhead      a panel's unit is loaded while the one before it is multiplied
//   kAheadUnits      units beside which a tile fetches once; their loop is unrolled
//   kRowBytes        from one row of A to the next where its rows are not packed in strips; 0: any
//   kFromMemory      the first of every so many rows is broadcast by the multiply-adds themselves; 0: none
//   Wide             the M of float32 with the same units and tile, or the same M: its tiles serve both
//   kStartsFromSums  a further piece of k begins with the sums so far; otherwise they are added at its end
#pragma once

#include "trireme/ops/products/kernels.h"

namespace trireme::ops {
namespace {

constexpr int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
constexpr int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }
constexpr int64_t round_up(int64_t x, int64_t unit) { return (x + unit - 1) / unit * unit; }
constexpr int64_t kLanes = 16;

/// Where a tile's sums start from and go to.
struct Tile {
  const float* before;  ///< what the sums are added to; null: nothing
  int64_t before_ld;
  bool starts;  ///< the sums start from `before`. Otherwise `before` is added at the end: its lines arrive meanwhile,
                ///< and a small sum loses fewer bits
  float* to_sums;  ///< partial sums, or a float32 C; null: `to_narrow`
  uint16_t* to_narrow;
  int64_t to_ld;
  /// Writes float32 sums [rows, columns rounded up to vectors] to `to_narrow`.
  void (*narrow)(const float* sums, const Tile& tile, int rows, int64_t columns);
  const char* ahead = nullptr;  ///< where the lines begin that a tile with kAhead fetches into the level-2 cache
  int64_t ahead_step = 64;  ///< bytes from the line beside some units to that beside the next, if they fetch one
  float* wide = nullptr;  ///< where a first strip leaves the panel's units (M::kKeepsWide)
  // A panel in blocks (code_panels-inl.h).
  const float* code = nullptr;
  int64_t skipped = 0;  ///< elements of k before the tile's in its first block
  int64_t panel_bytes = 0;  ///< from one panel to the next, if a tile has several
  const char* panel_end = nullptr;
  const char* next_panel = nullptr;  ///< that this thread reads after it
};

/// Computes the sums [Rows, Vectors * 16] over `depth` units; unit (r, u) of A is at a + r * a_row + 4 u bytes. With
/// M::kLoadsAhead it reads one unit of the panel more than it uses. Beside each M::kAheadUnits units it fetches kAhead
/// lines.
template <class M, int Rows, int Vectors, bool kPacked, int kAhead>
__attribute__((noinline)) void multiply_tile(int64_t depth, const char* a, int64_t a_row, const typename M::Unit* panel,
                                             const Tile& tile, int64_t columns) {
  // The lambdas below must be inlined, or the sums would be in memory.
  using Vec = typename M::Vec;
  Vec sum[Rows][Vectors];
  const int64_t last = columns - (Vectors - 1) * kLanes;  // columns of the last vector
  const auto all = M::first(kLanes), tail = M::first(last);
  const auto each = [&](const auto& body) __attribute__((always_inline)) {
#pragma GCC unroll 12
    for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < Vectors; ++v) body(r, v, v + 1 < Vectors ? all : tail);
  };
  const auto before = [&](int r, int v, auto lanes) __attribute__((always_inline)) {
    return M::load_first(tile.before + r * tile.before_ld + v * kLanes, lanes);
  };
  if (M::kStartsFromSums && tile.starts)
    each([&](int r, int v, auto lanes) { sum[r][v] = before(r, v, lanes); });
  else
    each([&](int r, int v, auto) { sum[r][v] = M::zero(); });
  // The result's lines arrive during the loop over k.
  const char* to = tile.to_sums != nullptr ? reinterpret_cast<const char*>(tile.to_sums)
                                           : reinterpret_cast<const char*>(tile.to_narrow);
  const int64_t element = tile.to_sums != nullptr ? 4 : 2;
#pragma GCC unroll 12
  for (int r = 0; r < Rows; ++r)
    for (int64_t byte = 0; byte < Vectors * kLanes * element; byte += 64)
      __builtin_prefetch(to + r * tile.to_ld * element + byte, 1);
  constexpr bool kCodes = requires { M::kWidensCodes; };
  using Row = typename M::UnitVec[Vectors];
  const int64_t row = M::kRowBytes > 0 ? M::kRowBytes : a_row;  // a constant saves instructions
  constexpr int kPanels = Vectors * kLanes > M::kPanel ? Vectors * kLanes / M::kPanel : 1;
  const auto in_panel = [&](auto* at, int64_t v) __attribute__((always_inline)) {
    if constexpr (kPanels == 1) return at;
    return reinterpret_cast<decltype(at)>(reinterpret_cast<const char*>(at) +
                                          v * kLanes / M::kPanel * tile.panel_bytes);
  };
  const auto load = [&](Row& b, int64_t u) __attribute__((always_inline)) {
    if constexpr (!kCodes)
      for (int v = 0; v < Vectors; ++v) {
        b[v] = M::load_units(in_panel(panel + u * M::kPanel + v * kLanes % M::kPanel, v));
        if constexpr (requires { M::kKeepsWide; }) M::store_units(tile.wide + u * M::kPanel + v * kLanes, b[v]);
      }
  };
  const auto fetch = [&](int64_t at) __attribute__((always_inline)) {
    if constexpr (kAhead == 1)
      __builtin_prefetch(tile.ahead + at * tile.ahead_step, 0, 2);
    else
      for (int64_t i = 0; i < kAhead * kPanels; ++i)
        __builtin_prefetch(in_panel(tile.ahead + (at * kAhead + i / kPanels) * 64, i % kPanels * M::kPanel / kLanes), 0,
                           2);
  };
  const auto multiply = [&](const Row& b, int64_t u) __attribute__((always_inline)) {
    if constexpr (M::kAheadUnits == 1) fetch(u);
#pragma GCC unroll 12
    for (int r = 0; r < Rows; ++r) {
      const char* unit = kPacked ? a + (u * M::kStrip + r) * 4 : a + r * row + u * 4;
      if (M::kFromMemory > 0 && r % larger(1, M::kFromMemory) == 0) {
        for (int v = 0; v < Vectors; ++v) sum[r][v] = M::multiply_add_broadcast(sum[r][v], unit, b[v]);
      } else {
        const typename M::UnitVec x = M::broadcast(unit);
        for (int v = 0; v < Vectors; ++v) sum[r][v] = M::multiply_add(sum[r][v], x, b[v]);
      }
    }
  };
  Row even, odd;
  if constexpr (kCodes) {
    M::template each_unit<Vectors>(panel, tile, depth,
                                   [&](int64_t u, int v, typename M::UnitVec b) __attribute__((always_inline)) {
#pragma GCC unroll 12
                                     for (int r = 0; r < Rows; ++r)
                                       sum[r][v] = M::multiply_add(sum[r][v], M::broadcast(a + r * row + u * 4), b);
                                   });
  } else if constexpr (M::kLoadsAhead) {
    load(even, 0);
    int64_t u = 0;
    for (; u + 2 <= depth; u += 2) {
      load(odd, u + 1);
      multiply(even, u);
      load(even, u + 2);
      multiply(odd, u + 1);
    }
    if (u < depth) multiply(even, u);
  } else {
    int64_t u = 0;
    if constexpr (M::kAheadUnits > 1)
      for (; u + M::kAheadUnits <= depth; u += M::kAheadUnits) {
        fetch(u / M::kAheadUnits);
#pragma GCC unroll 4
        for (int64_t i = 0; i < M::kAheadUnits; ++i) {
          load(even, u + i);
          multiply(even, u + i);
        }
      }
    for (; u < depth; ++u) {
      load(even, u);
      multiply(even, u);
    }
  }
  if (tile.before != nullptr && !(M::kStartsFromSums && tile.starts))
    each([&](int r, int v, auto lanes) { sum[r][v] = M::add(sum[r][v], before(r, v, lanes)); });
  if (tile.to_sums != nullptr)
    each([&](int r, int v, auto lanes) {
      M::store_first(tile.to_sums + r * tile.to_ld + v * kLanes, sum[r][v], lanes);
    });
  else {
    alignas(64) float wide[Rows * Vectors * kLanes];
    each([&](int r, int v, auto) { M::store_first(wide + (r * Vectors + v) * kLanes, sum[r][v], all); });
    tile.narrow(wide, tile, Rows, columns);
  }
}

/// Tile::narrow of M.
template <class M>
void narrow_sums(const float* sums, const Tile& tile, int rows, int64_t columns) {
  for (int r = 0; r < rows; ++r)
    for (int64_t column = 0; column < columns; column += kLanes, sums += kLanes)
      M::store_narrow(tile.to_narrow + r * tile.to_ld + column, M::load_first(sums, M::first(kLanes)),
                      smaller(kLanes, columns - column));
}

/// Calls multiply_tile for exactly `rows` rows, and for as many vectors as `columns` need (kAhead: if these are all).
template <class M, bool kPacked, int kAhead = 0, int Rows = M::kStrip, int Vectors = M::kPanel / kLanes>
void multiply_strip(int64_t rows, int64_t depth, const char* a, int64_t a_row, const typename M::Unit* panel,
                    const Tile& tile, int64_t columns) {
  if constexpr (Vectors > 1)
    if (columns <= (Vectors - 1) * kLanes)
      return multiply_strip<M, kPacked, 0, Rows, Vectors - 1>(rows, depth, a, a_row, panel, tile, columns);
  if constexpr (Rows > 1)
    if (rows < Rows)
      return multiply_strip<M, kPacked, kAhead, Rows - 1, Vectors>(rows, depth, a, a_row, panel, tile, columns);
  multiply_tile<M, Rows, Vectors, kPacked, kAhead>(depth, a, a_row, panel, tile, columns);
}

/// One thread's share of a product. Units are addressed in bytes: rows of bfloat16 need not start on a whole unit.
template <class M>
struct Gemm {
  using Unit = typename M::Unit;
  static constexpr int64_t kElement = M::kElementBytes;  // bytes in memory

  const GemmCall& call;
  Unit* packed_b;
  Unit* packed_a;
  float* held;  ///< partial sums, if C cannot hold them
  const bool packs_a;  ///< otherwise A's units are read in place
  const int64_t units, pieces;  ///< of k; a piece is what registers sum at once
  const bool keeps;  ///< B's columns stay packed for all pieces, otherwise for one
  int64_t block;  ///< columns packed at once

  Gemm(const GemmCall& call_, int num_threads, void* scratch)
      : call(call_),
        packs_a(M::kPacksA || call.a_transposed),
        units(call.k / M::kPair),
        pieces(larger(1, (units + depth_limit() - 1) / depth_limit())),
        keeps(units <= kGemmBlockUnits / M::kKeptColumns && (num_threads > 1 || !M::kPacksA)) {
    packed_b = static_cast<Unit*>(scratch);
    packed_a = packed_b + kGemmBlockUnits;
    held = reinterpret_cast<float*>(packed_a + kGemmGroupUnits);
    // Each block of columns packs A again. So blocks are fewer and larger then, and reach into the level-3 cache.
    const int64_t block_units = packs_a ? kGemmBlockUnits : kGemmBlockUnits / 2;
    const int64_t deep = larger(1, keeps ? units : depth_limit());
    block = larger(kGemmColumns, smaller(M::kBlock, block_units / deep / M::kPanel * M::kPanel));
  }

  int64_t depth_limit() const { return packs_a ? M::kDepthPacked : M::kDepth; }

  const char* a_at(int64_t row, int64_t k) const {
    return static_cast<const char*>(call.a) +
           (call.a_transposed ? k * call.a_ld + row : row * call.a_ld + k) * kElement;
  }
  const char* b_at(int64_t k, int64_t column) const {
    return static_cast<const char*>(call.b) +
           (call.b_transposed ? column * call.b_ld + k : k * call.b_ld + column) * kElement;
  }

  /// [panels][depth][kPanel]; columns beyond the last are zero.
  void pack_b(Unit* to, int64_t k0, int64_t depth, int64_t column, int64_t columns) const {
    if (call.widen != nullptr) return pack_blocks(to, k0, depth, column, columns);
    for (int64_t j = 0; j < columns; j += M::kPanel, to += depth * M::kPanel) {
      const int64_t width = smaller(M::kPanel, columns - j);
      const char* from = b_at(k0, column + j);
      pack_panel(to, from, call.b_ld * kElement, depth, width);
    }
  }

  /// The same of B in blocks. A piece of a panel, widened, fits into the level-1 cache.
  void pack_blocks(Unit* to, int64_t k0, int64_t depth, int64_t column, int64_t columns) const {
    call.widened_to_float ? pack_blocks_from<typename M::Wide>(to, k0, depth, column, columns)
                          : pack_blocks_from<M>(to, k0, depth, column, columns);
  }
  template <class From>
  void pack_blocks_from(Unit* to, int64_t k0, int64_t depth, int64_t column, int64_t columns) const {
    constexpr int64_t kPiece = 128, kRow = kPiece + 16;  // elements of k
    constexpr int64_t kElement = From::kElementBytes;
    alignas(64) char wide[kRow * M::kPanel * kElement];
    for (int64_t j = 0; j < columns; j += M::kPanel, to += depth * M::kPanel) {
      const int64_t width = smaller(M::kPanel, columns - j);
      for (int64_t u = 0; u < depth; u += kPiece / M::kPair) {
        const int64_t now = smaller(kPiece / M::kPair, depth - u), k = k0 + u * M::kPair;
        Unit* panel = to + u * M::kPanel;
        if (call.b_transposed) {
          const int64_t odd = k % 2;  // whole bytes are widened
          call.widen(*call.blocks, column + j, width, k - odd, round_up(odd + now * M::kPair, 2), wide, kRow);
          pack_panel<From>(panel, wide + odd * kElement, kRow * kElement, now, width);
        } else {
          call.widen(*call.blocks, k, now * M::kPair, column + j, width, wide, M::kPanel);
          pack_panel<From>(panel, wide, M::kPanel * kElement, now, width);
        }
      }
    }
  }

  /// [depth][kPanel] of `width` columns that begin at `from`, with elements as those of From.
  template <class From = M>
  void pack_panel(Unit* to, const char* from, int64_t row_bytes, int64_t depth, int64_t width) const {
    if (call.b_transposed) return pack_transposed<From>(to, from, row_bytes, depth, width);
    for (int64_t u = 0; u < depth; ++u)
      for (int64_t v = 0; v < M::kPanel; v += kLanes)
        From::pack_vector(to + u * M::kPanel + v, from + u * M::kPair * row_bytes + v * From::kElementBytes, row_bytes,
                          width - v);
  }

  template <class From>
  void pack_transposed(Unit* to, const char* from, int64_t row_bytes, int64_t depth, int64_t width) const {
    for (int64_t v = 0; v < M::kPanel; v += kLanes, from += kLanes * row_bytes)
      transpose<From>(to + v, M::kPanel, from, row_bytes, larger(0, smaller(kLanes, width - v)), depth, kLanes);
  }

  /// to [depth, rows] with stride to_ld = the transpose of rows of units. The processor cannot prefetch so many rows,
  /// so kernels that pack all of A prefetch 64 units ahead; `next` more rows follow these.
  template <class From>
  static void transpose(Unit* to, int64_t to_ld, const char* from, int64_t row_bytes, int64_t rows, int64_t depth,
                        int64_t next) {
    constexpr int64_t kAhead = 64, kUnit = From::kPair * From::kElementBytes;
    for (int64_t u = 0; u < depth; u += kLanes) {
      const int64_t later = u + kAhead;
      const char* ahead = later < depth ? from + later * kUnit : from + next * row_bytes + (later - depth) * kUnit;
      From::template transpose<From>(to + u * to_ld, to_ld, from + u * kUnit, row_bytes, rows,
                                     smaller(kLanes, depth - u), M::kPacksA ? ahead : nullptr);
    }
  }

  /// Rows of a group are divided evenly between its strips: one of two rows would wait for each of its sums.
  static int64_t strips_of(int64_t rows) { return (rows + M::kStrip - 1) / M::kStrip; }
  int64_t strip_begin(int64_t strip, int64_t rows) const {
    return call.a_transposed ? smaller(rows, strip * M::kStrip) : rows * strip / strips_of(rows);
  }

  /// Units from one packed strip to the next: one line more than a strip has, or all strips of a group would start in
  /// the same set of the level-1 cache. Packing may write into that line.
  static int64_t strip_units(int64_t depth) { return depth * M::kStrip + kLanes; }

  /// [strips][depth][kStrip] of kGemmGroup rows or fewer; rows beyond the last are zero.
  void pack_a(int64_t k0, int64_t depth, int64_t row, int64_t rows) const {
    if (call.a_transposed) return pack_transposed_a(k0, depth, row, rows);
    if constexpr (M::kPacksA)
      for (int64_t strip = 0; strip < strips_of(rows); ++strip) {
        const int64_t r = strip_begin(strip, rows), here = strip_begin(strip + 1, rows) - r;
        transpose<M>(packed_a + strip * strip_units(depth), M::kStrip, a_at(row + r, k0), call.a_ld * kElement, here,
                     depth, here);
      }
  }

  void pack_transposed_a(int64_t k0, int64_t depth, int64_t row, int64_t rows) const {
    constexpr int64_t kAhead = 8;  // units; the rows of A are too far apart for the processor's own prefetching
    const int64_t row_bytes = call.a_ld * kElement, unit_bytes = M::kPair * row_bytes;
    const char* from = a_at(row, k0);
    for (int64_t u = 0; u < depth; ++u, from += unit_bytes) {
      // One line more than a group has: loads read into it, and the next group begins there.
      if (u + kAhead < depth)
        for (int64_t i = 0; i < M::kPair; ++i)
          for (int64_t byte = 0; byte < kGemmGroup * kElement + 64; byte += 64)
            __builtin_prefetch(from + kAhead * unit_bytes + i * row_bytes + byte, 0, 2);
      M::template pack_group<M>(packed_a + u * M::kStrip, strip_units(depth), from, row_bytes, rows, u + 1 == depth);
    }
  }

  bool holds() const { return pieces > 1 && !call.c_is_float && kElement == 2; }

  /// How many rows a thread takes at once. If B stays packed: a group, or (kPacksA) up to a quarter of a thread's
  /// share. With so few rows B is read from level 2 more often, but no thread waits long. If B must be packed again for
  /// each take, or for one thread: enough rows to make packing cheap.
  int64_t rows_at_once(int num_threads) const {
    if (keeps && num_threads > 1)
      return M::kPacksA ? smaller(kGemmHeld, round_up((call.m + 4 * num_threads - 1) / (4 * num_threads), kGemmGroup))
                        : kGemmGroup;
    int64_t shares = num_threads;
    if (holds()) shares *= (call.m + kGemmHeld * num_threads - 1) / (kGemmHeld * num_threads);
    return round_up((call.m + shares - 1) / shares, M::kStrip);
  }

  void run(const GemmTeam& team, int thread) const {
    const int64_t blocks = (call.n + block - 1) / block, rows = rows_at_once(team.num_threads);
    // Each thread begins with its own blocks, and then helps with the others.
    for (int64_t i = 0; i < blocks; ++i) {
      const int64_t at = (i + blocks * thread / team.num_threads) % blocks, n0 = at * block;
      const int64_t columns = smaller(block, call.n - n0), stride = round_up(columns, M::kPanel);
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
      if (packs_a) pack_a(u0 * M::kPair, depth, g0, g1 - g0);
      for (int64_t strip = 0; strip < strips_of(g1 - g0); ++strip) {
        const int64_t row = g0 + strip_begin(strip, g1 - g0), rows = g0 + strip_begin(strip + 1, g1 - g0) - row;
        for (int64_t j = 0; j < columns; j += M::kPanel) {
          const Tile tile = tile_at(row, m0, n0 + j, j, columns, first, last);
          const int64_t width = smaller(M::kPanel, columns - j);
          if (packs_a)
            multiply_strip<typename M::Wide, true>(rows, depth,
                                                   reinterpret_cast<const char*>(packed_a + strip * strip_units(depth)),
                                                   0, b + j * depth, tile, width);
          else if constexpr (!M::kPacksA)
            multiply_strip<typename M::Wide, false>(rows, depth, a_at(row, u0 * M::kPair), call.a_ld * kElement,
                                                    b + j * depth, tile, width);
        }
      }
    }
  }

  Tile tile_at(int64_t row, int64_t m0, int64_t column, int64_t j, int64_t columns, bool first, bool last) const {
    float* sums = held + (row - m0) * columns + j;
    const bool in_c = call.c_is_float || kElement == 4;
    float* c = static_cast<float*>(call.c) + row * call.c_ld + column;
    Tile tile{};
    tile.narrow = narrow_sums<M>;
    if (!first || call.accumulate) tile.before = in_c ? c : sums, tile.before_ld = in_c ? call.c_ld : columns;
    tile.starts = !first;
    if (in_c)
      tile.to_sums = c, tile.to_ld = call.c_ld;
    else if (!last)
      tile.to_sums = sums, tile.to_ld = columns;
    else
      tile.to_narrow = static_cast<uint16_t*>(call.c) + row * call.c_ld + column, tile.to_ld = call.c_ld;
    return tile;
  }
};

template <class M>
void run_gemm(const GemmCall& call, const GemmTeam& team, int thread, void* scratch) {
  static_assert(kGemmGroup % M::kStrip == 0 && kGemmColumns % M::kPanel == 0);
  static_assert(M::kStrip == M::Wide::kStrip && M::kPanel == M::Wide::kPanel);
  Gemm<M>(call, team.num_threads, scratch).run(team, thread);
}

}  // namespace
}  // namespace trireme::ops
