// Products with a B that was packed once: [panels][k][kPanel], so that a product reads it from memory in one stream.
// Each element keeps its own size: two bytes that the kernel multiplies as float32, and codes of 4 or 8 bits, are
// widened in registers, or, for many rows, once in scratch. The instruction set's M decides:
//   kPacksStrips    strips of A are packed unit by unit, as in Gemm; otherwise row by row, which costs less to prepare
//   kWidensInTiles  two bytes are widened in registers for many rows, too
//   kTakesManyRows  a thread takes more rows and fewer panels at a time, because it widens each panel for its rows
//
// A thread takes some panels for all rows. Of each panel it multiplies one piece of k with all strips of A, which find
// it in the level-2 cache after the first. Meanwhile they fetch the piece that comes next. So few rows run at the rate
// of the memory, and many at that of the registers. The pieces of k are those of Gemm, and so are the bits.
#pragma once

#include <type_traits>

#include "trireme/ops/products/code_panels-inl.h"
#include "trireme/ops/products/kernels-inl.h"

namespace trireme::ops {
namespace {

/// Panels whose elements have two bytes, for a kernel that multiplies them as float32.
template <class M>
struct NarrowPanels : M {
  using Wide = NarrowPanels;
  using Unit = uint16_t;
  static constexpr int64_t kAheadUnits = M::kWidensInTiles ? M::kAheadUnits : 1;
  static typename M::UnitVec load_units(const uint16_t* from) { return M::widen_units(from); }
};
/// The same for the first of several strips of rows, which leaves the widened units in Tile::wide for the others.
template <class M>
struct FirstNarrowPanels : NarrowPanels<M> {
  using Wide = FirstNarrowPanels;
  static constexpr bool kKeepsWide = true;
};
template <class M>
constexpr bool kHasNarrowPanels = M::kElementBytes == 2 && M::kPair == 1;

/// Memory that will be read next, while strips multiply what a strip before them has fetched. Each fetches about as
/// much as the others.
class Ahead {
 public:
  Ahead(const char* at, int64_t bytes) : at_(at), bytes_(bytes) {}
  const char* at() const { return at_; }
  /// How many lines a strip fetches beside every kUnits of its `depth` units, if `strips` strips are left: 0, 1, 2 or
  /// 4. If it is one, units can share it, so that the memory is always busy; but each unit brings at least 16 bytes.
  template <int64_t kUnits>
  int take(int64_t strips, int64_t depth, Tile& tile) {
    const int64_t times = larger(1, depth / kUnits),
                  each = bytes_ <= 0 ? 0 : (bytes_ + strips * times - 1) / (strips * times);
    const int lines = each > 128 ? 4 : each > 64 ? 2 : each > 0 ? 1 : 0;
    const int64_t step = lines == 1 ? larger(16 * kUnits, each) : lines * 64;
    tile.ahead = at_, tile.ahead_step = step;
    at_ += step * times, bytes_ -= step * times;
    return lines;
  }

 private:
  const char* at_;
  int64_t bytes_;
};

template <class M>
struct PanelGemm {
  using Element = std::conditional_t<kHasNarrowPanels<M>, uint16_t, typename M::Unit>;
  static constexpr int64_t kUnitBytes = M::kPanel * static_cast<int64_t>(sizeof(Element));  // of a panel
  static constexpr int64_t kTakenUnits = kGemmBlockUnits / 2;  // of B, most at once where A is packed for them
  /// Bytes beside which a tile fetches once.
  template <class Panels>
  static constexpr int64_t kAheadBytes = kUnitBytes * Panels::kAheadUnits;
  template <class Panels>
  static constexpr int kLines = static_cast<int>(larger(1, kAheadBytes<Panels> / 64));
  static constexpr int64_t kBlockUnits = kDeepestBlock / M::kPair;
  static constexpr int64_t kDistance = 16 << 10;  // bytes: what few rows fetch ahead
  static constexpr int kNarrowAtOnce = kHasNarrowPanels<M> ? M::kNarrowPanelsAtOnce : 1;

  const GemmCall& call;
  Gemm<M> gemm;
  const bool in_blocks;
  int64_t block_units, block_bytes;  ///< of a panel in blocks
  int64_t panels, taken, rows;  ///< a thread takes `taken` panels for `rows` rows
  int64_t at_once = 1;  ///< panels that a row is multiplied with at once
  int64_t block;  ///< panels whose pieces follow each other
  int64_t pieces;  ///< of k
  int64_t deepest;  ///< units of a piece, at most
  int64_t kept_units;  ///< of A in a piece, if all of A is prepared once and stays in scratch (partial sums are
                       ///< then at its end); otherwise 0

  PanelGemm(const GemmCall& call_, int num_threads, void* scratch)
      : call(call_),
        gemm(call_, num_threads, scratch),
        in_blocks(call.panel_code != PanelCode::none),
        block_units(blocks_of(call.panel_code).depth / M::kPair),
        block_bytes(blocks_of(call.panel_code).bytes(M::kPanel)),
        panels((call.n + M::kPanel - 1) / M::kPanel) {
    // Takes of equal size, so that no thread waits long for the last of another. Where widening a panel costs nothing,
    // they have more panels and fewer rows, which are prepared for each block: the next take finds B in a cache.
    const int64_t most = M::kTakesManyRows || in_blocks ? kGemmHeld : 2 * kGemmGroup,
                  shares = larger(1, (call.m + most - 1) / most);
    rows = larger(1, round_up((call.m + shares - 1) / shares, shares > 1 ? M::kStrip : 1));
    taken = larger(1, panels * ((call.m + rows - 1) / rows) / (8 * num_threads));
    // If a further piece begins with the sums so far, shorter pieces have the same bits.
    const bool short_pieces = M::kStartsFromSums && in_blocks;
    pieces = short_pieces ? round_up(gemm.units, code_piece()) / code_piece() : gemm.pieces;
    deepest = smaller(gemm.units, short_pieces ? code_piece() : gemm.depth_limit());
    kept_units = few_rows() || !M::kPacksStrips ? rows * row_units(deepest)
                                                : round_up(rows, M::kStrip) / M::kStrip * gemm.strip_units(deepest);
    if (call.m == 1 && (in_blocks ? gemm.units * M::kPair % (8 * pieces) == 0 : kHasNarrowPanels<M>))
      at_once = in_blocks ? M::kPanelsAtOnce : kNarrowAtOnce;
    const int64_t sums = rows * at_once * M::kPanel;
    if (!M::kPacksA || (few_rows() && !kCopiesRows) || call.m > kGemmGroup ||
        wide_units() + pieces * kept_units + sums > kGemmScratchBytes / 4)
      kept_units = 0;
    else
      gemm.held = reinterpret_cast<float*>(gemm.packed_b) + kGemmScratchBytes / 4 - sums;
    // Otherwise an A of several strips is packed for each block again.
    const bool packs_again = M::kPacksA && kept_units == 0 && !few_rows();
    // A that is ready costs a take nothing, so there are more of them.
    if (kept_units > 0) taken = larger(1, panels / (16 * num_threads));
    taken = at_once > 1 && !in_blocks ? at_once : round_up(taken, at_once);
    const int64_t widest = smaller(kTakenUnits / M::kDepthPacked, M::kBlock) / M::kPanel;
    if (packs_again && !M::kTakesManyRows) taken = larger(1, smaller(widest, panels * shares / (2 * num_threads)));
    block = packs_again ? smaller(taken, widest) : at_once;
  }
  int64_t wide_units() const { return (deepest + 2 * kBlockUnits) * M::kPanel; }  // of a panel that is widened

  bool few_rows() const { return call.m <= M::kStrip; }

  /// Units of k that are widened at once: 128 KiB of a panel, or for few rows 16 KiB, which stay in the level-1 cache.
  int64_t code_piece() const { return few_rows() && call.m > kMostCodeRows ? 64 : 512; }

  int64_t first_unit(int64_t piece) const {
    if (M::kStartsFromSums && in_blocks) return smaller(gemm.units, piece * code_piece());
    return gemm.units * piece / pieces;
  }
  /// Where the bytes of a unit begin, or those of its block.
  const char* panel_at(int64_t panel, int64_t u0) const {
    const auto* all = static_cast<const char*>(call.panels);
    if (!in_blocks) return all + (panel * gemm.units + u0) * kUnitBytes;
    return all + (panel * (gemm.units / block_units) + u0 / block_units) * block_bytes;
  }

  void run(const GemmTeam& team) const {
    const int64_t row_blocks = (call.m + rows - 1) / rows, takes = (panels + taken - 1) / taken * row_blocks;
    const auto take = [&] { return __atomic_fetch_add(team.taken, 1, __ATOMIC_RELAXED); };
    bool kept = kept_units == 0;
    for (int64_t now = take(), next; now < takes; now = next) {
      for (int64_t piece = 0; piece < pieces && !kept; ++piece)
        pack_rows(kept_at(piece), first_unit(piece), first_unit(piece + 1) - first_unit(piece), 0, call.m);
      kept = true;
      next = take();
      const int64_t row = now % row_blocks * rows, first = now / row_blocks * taken,
                    last = smaller(panels, first + taken), then = next < takes ? next / row_blocks * taken : -1;
      for (int64_t begin = first; begin < last; begin += block)
        multiply_panels(begin, smaller(last, begin + block), begin + block < last ? begin + block : then, row,
                        smaller(row + rows, call.m));
    }
  }

  /// Panels [begin, end) for rows [m0, m1); panel `next` comes after them (-1: none).
  void multiply_panels(int64_t begin, int64_t end, int64_t next, int64_t m0, int64_t m1) const {
    const int64_t columns = smaller(end * M::kPanel, call.n) - begin * M::kPanel;
    const int64_t group = M::kPacksA ? kGemmGroup : m1 - m0;
    for (int64_t piece = 0; piece < pieces; ++piece) {
      const int64_t u0 = first_unit(piece), depth = first_unit(piece + 1) - u0;
      for (int64_t g0 = m0; g0 < m1; g0 += group) {
        const int64_t g1 = smaller(m1, g0 + group);
        const RowsOfA a = kept_units > 0 ? RowsOfA{kept_at(piece), M::kPacksStrips && !few_rows()}
                                         : pack_rows(gemm.packed_a, u0, depth, g0, g1);
        for (int64_t panel = begin; panel < end; panel += at_once) {
          Ahead ahead = g0 == m0 ? ahead_of(panel, begin, end, piece, next) : Ahead(nullptr, 0);
          const auto tile = [&](int64_t row) {
            Tile t = gemm.tile_at(row, m0, panel * M::kPanel, (panel - begin) * M::kPanel, columns, piece == 0,
                                  piece + 1 == pieces);
            t.next_panel = panel_at(panel + at_once < end ? panel + at_once : next >= 0 ? next : panels, 0);
            return t;
          };
          multiply_piece(panel, panel - begin, u0, depth, g0, g1, a, g0 > m0, tile, ahead, columns);
        }
      }
    }
  }

  /// What a thread reads after a piece of a panel.
  Ahead ahead_of(int64_t panel, int64_t begin, int64_t end, int64_t piece, int64_t next) const {
    panel += at_once;
    if (panel >= end) panel = begin, ++piece;
    if (piece == pieces) panel = next, piece = 0;
    if (panel < 0) return {nullptr, 0};
    const char* from = panel_at(panel, first_unit(piece));
    return {from, panel_at(panel, first_unit(piece + 1)) - from};
  }

  typename M::Unit* kept_at(int64_t piece) const { return gemm.packed_b + wide_units() + piece * kept_units; }

  /// A group of A's rows in scratch: packed in strips, or as rows of units, if they are not read where they are.
  struct RowsOfA {
    const typename M::Unit* at;
    bool packed;
  };
  /// Prepares them. Few rows are not worth a transposition.
  RowsOfA pack_rows(typename M::Unit* to, int64_t u0, int64_t depth, int64_t g0, int64_t g1) const {
    if constexpr (M::kPacksA) {
      if constexpr (M::kPacksStrips)
        if (g1 - g0 > M::kStrip) {
          Gemm<M> there = gemm;
          there.packed_a = to;
          there.pack_a(u0, depth, g0, g1 - g0);
          return {to, true};
        }
      if constexpr (kCopiesRows)
        for (int64_t r = g0; r < g1; ++r) {
          // Rows are too far apart for the processor's own prefetching.
          const char* later = gemm.a_at(smaller(r + 4, g1 - 1), u0);
          for (int64_t byte = 0; byte < depth * M::kElementBytes; byte += 64) __builtin_prefetch(later + byte);
          for (int64_t u = 0; u < depth; u += kLanes)
            M::pack_vector(to + (r - g0) * row_units(depth) + u, gemm.a_at(r, u0 + u), 0, depth - u);
        }
    }
    return {to, false};
  }
  static constexpr bool kCopiesRows = kHasNarrowPanels<M> || !M::kPacksStrips;
  /// Units from one row to the next: an odd number of lines, or the rows of a strip would lie in the same few sets of
  /// the level-1 cache.
  static_assert(M::kRowBytes == 0 || (M::kRowBytes % 128 == 64 && M::kRowBytes >= 4 * M::kDepthPacked &&
                                      kGemmGroup * M::kRowBytes / 4 <= kGemmGroupUnits));
  static int64_t row_units(int64_t depth) {
    return M::kRowBytes > 0 ? M::kRowBytes / 4 : (round_up(depth, kLanes) / kLanes | 1) * kLanes;
  }

  struct PlainRows {
    const char* a;
    int64_t row_bytes;
  };
  /// Where rows that are not packed in strips are.
  PlainRows plain_rows(const RowsOfA& a, int64_t g0, int64_t row, int64_t u0, int64_t depth) const {
    if (kCopiesRows) return {reinterpret_cast<const char*>(a.at + (row - g0) * row_units(depth)), row_units(depth) * 4};
    return {gemm.a_at(row, u0 * M::kPair), call.a_ld * M::kElementBytes};
  }

  /// `widened`: an earlier group of rows has widened these units. `place`: of the panel in its block, which has
  /// `columns`.
  template <class Tiles>
  void multiply_piece(int64_t panel, int64_t place, int64_t u0, int64_t depth, int64_t g0, int64_t g1, const RowsOfA& a,
                      bool widened, const Tiles& tiles, Ahead& ahead, int64_t columns) const {
    typename M::Unit* wide = gemm.packed_b + place * (depth + 2 * kBlockUnits) * M::kPanel;
    const auto* from = reinterpret_cast<const Element*>(panel_at(panel, u0));
    if (in_blocks) {
      const int64_t before = u0 % block_units;
      if (widens_in_registers(before, depth))
        return with_code([&](auto code) { multiply_codes<code()>(panel, columns, u0, depth, g0, g1, a, tiles); });
      if (!widened) with_code([&](auto code) { widen_codes<code()>(wide, panel, u0 - before, u0 + depth); });
      return multiply_strips<M>(panel, wide + before * M::kPanel, u0, depth, g0, g1, a, tiles, ahead);
    }
    if constexpr (kHasNarrowPanels<M>) {
      if constexpr (kNarrowAtOnce > 1)
        if (call.m == 1) return multiply_row(panel, columns, u0, depth, g0, a, tiles, ahead);
      if (M::kWidensInTiles || few_rows())
        return multiply_strips<NarrowPanels<M>>(panel, from, u0, depth, g0, g1, a, tiles, ahead);
      if constexpr (!M::kWidensInTiles) {
        const bool first = !widened && g1 - g0 > M::kStrip;
        if (!widened && !first)
          for (int64_t i = 0; i < depth * M::kPanel; i += kLanes) M::store_units(wide + i, M::widen_units(from + i));
        multiply_strips<M>(panel, wide, u0, depth, g0, g1, a, tiles, ahead, first ? from : nullptr);
      }
    } else {
      multiply_strips<M>(panel, from, u0, depth, g0, g1, a, tiles, ahead);
    }
  }

  /// Calls body(code) with the code as a constant.
  template <class Body>
  void with_code(const Body& body) const {
    using enum PanelCode;
    if (call.panel_code == bytes) return body(std::integral_constant<PanelCode, bytes>());
    if (call.panel_code == nibbles) return body(std::integral_constant<PanelCode, nibbles>());
    body(std::integral_constant<PanelCode, values>());
  }

  /// Eight elements of k are read together.
  bool widens_in_registers(int64_t before, int64_t depth) const {
    return call.m <= kMostCodeRows && before * M::kPair % 8 == 0 && depth * M::kPair % 8 == 0;
  }

  template <PanelCode kCode, class Tiles>
  void multiply_codes(int64_t panel, int64_t columns, int64_t u0, int64_t depth, int64_t g0, int64_t g1,
                      const RowsOfA& rows_of_a, const Tiles& tiles) const {
    Tile tile = tiles(g0);
    tile.code = call.code, tile.skipped = u0 % block_units * M::kPair;
    tile.panel_bytes = gemm.units / block_units * block_bytes, tile.panel_end = panel_at(panel + 1, 0);
    const auto [a, a_row] = plain_rows(rows_of_a, g0, g0, u0, depth);
    const char* from = panel_at(panel, u0);
    using Panels = CodePanels<M, kCode>;
    if (at_once == 1)
      multiply_strip<Panels, false, 0, kMostCodeRows>(g1 - g0, depth, a, a_row, from, tile,
                                                      smaller(M::kPanel, call.n - panel * M::kPanel));
    else
      multiply_strip<Panels, false, 0, 1, M::kPanelsAtOnce * M::kPanel / kLanes>(1, depth, a, a_row, from, tile,
                                                                                 columns);
  }

  /// One row and several narrow panels.
  template <class Tiles>
  void multiply_row(int64_t panel, int64_t columns, int64_t u0, int64_t depth, int64_t row, const RowsOfA& rows_of_a,
                    const Tiles& tiles, Ahead& ahead) const {
    Tile tile = tiles(row);
    tile.panel_bytes = gemm.units * kUnitBytes, tile.ahead = ahead.at();
    const auto [a, a_row] = plain_rows(rows_of_a, row, row, u0, depth);
    const auto* from = reinterpret_cast<const Element*>(panel_at(panel, u0));
    using Panels = NarrowPanels<M>;
    constexpr int kVectors = kNarrowAtOnce * M::kPanel / kLanes;
    if (tile.ahead == nullptr)
      multiply_strip<Panels, false, 0, 1, kVectors>(1, depth, a, a_row, from, tile, columns);
    else
      multiply_strip<Panels, false, kLines<Panels>, 1, kVectors>(1, depth, a, a_row, from, tile, columns);
  }

  /// Widens the blocks with units [first, last) of a panel.
  template <PanelCode kCode>
  void widen_codes(typename M::Unit* to, int64_t panel, int64_t first, int64_t last) const {
    const char* from = panel_at(panel, first);
    const auto lookup = M::template lookup<kCode>(call.code);
    for (int64_t u = first; u < last; u += block_units, to += block_units * M::kPanel, from += block_bytes)
      each_of_block<M, M::kPanel / kLanes, kCode>(
          lookup, from, 0, 0, blocks_of(kCode).depth, few_rows() ? from + kDistance : nullptr,
          [&](int64_t unit, int v, typename M::UnitVec units)
              __attribute__((always_inline)) { M::store_units(to + unit * M::kPanel + v * kLanes, units); });
  }

  /// The first strip of packed rows, which widens the panel for the others.
  template <bool kPacked>
  static void multiply_first(int lines, int64_t rows, int64_t depth, const char* a, int64_t a_row,
                             const Element* narrow, const typename M::Unit* wide, Tile tile, int64_t columns) {
    if (lines == 0) tile.ahead = reinterpret_cast<const char*>(narrow), tile.ahead_step = 0;
    tile.wide = const_cast<typename M::Unit*>(wide);
    multiply_strip<FirstNarrowPanels<M>, kPacked, 1>(rows, depth, a, a_row, narrow, tile, columns);
  }

  /// `narrow`: the panel's own elements, if its first strip must widen them to `from`.
  template <class Panels, class Tiles>
  void multiply_strips(int64_t panel, const typename Panels::Unit* from, int64_t u0, int64_t depth, int64_t g0,
                       int64_t g1, const RowsOfA& rows_of_a, const Tiles& tiles, Ahead& ahead,
                       const Element* narrow = nullptr) const {
    const int64_t width = smaller(M::kPanel, call.n - panel * M::kPanel);
    const int64_t strips = gemm.strips_of(g1 - g0);
    for (int64_t strip = 0; strip < strips; ++strip) {
      const int64_t row = g0 + gemm.strip_begin(strip, g1 - g0),
                    rows_now = g0 + gemm.strip_begin(strip + 1, g1 - g0) - row;
      Tile tile = tiles(row);
      // A single strip fetches what it multiplies itself, but for panels in blocks.
      int lines = in_blocks ? 0 : kLines<Panels>;
      if (few_rows())
        tile.ahead = reinterpret_cast<const char*>(from) + kDistance,
        tile.ahead_step = smaller(64, kAheadBytes<Panels>);
      else
        lines = strip == 0 && narrow != nullptr ? ahead.take<1>(strips, depth, tile)
                                                : ahead.take<Panels::kAheadUnits>(strips - strip, depth, tile);
      const auto multiply = [&](auto packed, const char* a, int64_t a_row) {
        if constexpr (kHasNarrowPanels<M> && std::is_same_v<Panels, M>)
          if (strip == 0 && narrow != nullptr)
            return multiply_first<packed()>(lines, rows_now, depth, a, a_row, narrow, from, tile, width);
        multiply_ahead<Panels, packed()>(lines, rows_now, depth, a, a_row, from, tile, width);
      };
      if constexpr (M::kPacksA && M::kPacksStrips && std::is_same_v<Panels, M>)
        if (rows_of_a.packed) {
          multiply(std::true_type(), reinterpret_cast<const char*>(rows_of_a.at + strip * gemm.strip_units(depth)), 0);
          continue;
        }
      const auto [a, a_row] = plain_rows(rows_of_a, g0, row, u0, depth);
      multiply(std::false_type(), a, a_row);
    }
  }

  template <class Panels, bool kPacked>
  static void multiply_ahead(int lines, int64_t rows, int64_t depth, const char* a, int64_t a_row,
                             const typename Panels::Unit* panel, const Tile& tile, int64_t columns) {
    using W = typename Panels::Wide;
    // Narrow panels that meet few rows only fetch their own lines.
    if constexpr (!std::is_same_v<Panels, M> && !M::kWidensInTiles)
      return multiply_strip<W, kPacked, kLines<Panels>>(rows, depth, a, a_row, panel, tile, columns);
    if (lines == 0) return multiply_strip<W, kPacked, 0>(rows, depth, a, a_row, panel, tile, columns);
    if (lines == 1) return multiply_strip<W, kPacked, 1>(rows, depth, a, a_row, panel, tile, columns);
    if (lines == 2) return multiply_strip<W, kPacked, 2>(rows, depth, a, a_row, panel, tile, columns);
    multiply_strip<W, kPacked, 4>(rows, depth, a, a_row, panel, tile, columns);
  }

  // Packing. `call` is then B's columns alone, as b.

  void pack(const PanelPack& to, int64_t panel) const {
    const int64_t n0 = panel * M::kPanel, begin = larger(n0, to.first),
                  end = smaller(n0 + M::kPanel, to.first + to.columns);
    if (begin >= end) return;
    const bool direct = begin == n0 && (end == n0 + M::kPanel || end == to.n) && !kHasNarrowPanels<M>;
    const int64_t lane = begin - n0, lanes = (end == to.n ? M::kPanel : end - n0) - lane;
    auto* out = reinterpret_cast<Element*>(static_cast<char*>(to.to) + panel * gemm.units * kUnitBytes);
    constexpr int64_t kPiece = 256;  // units
    for (int64_t u = 0; u < gemm.units; u += kPiece) {
      const int64_t depth = smaller(kPiece, gemm.units - u);
      const char* from = gemm.b_at(u * M::kPair, begin - to.first);
      if constexpr (!kHasNarrowPanels<M>)
        if (direct) {
          gemm.pack_panel(out + u * M::kPanel, from, call.b_ld * M::kElementBytes, depth, end - begin);
          continue;
        }
      gemm.pack_panel(gemm.packed_b, from, call.b_ld * M::kElementBytes, depth, end - begin);
      for (int64_t i = 0; i < depth; ++i)
        store_lanes(out + (u + i) * M::kPanel, lane, gemm.packed_b + i * M::kPanel, lanes);
    }
  }

  /// Where a column of 16 lies, if they are widened in tiles.
  static int64_t swapped(int64_t column) { return column / 4 == 1 || column / 4 == 2 ? column ^ 12 : column; }

  static void store_lanes(Element* to, int64_t lane, const typename M::Unit* from, int64_t lanes) {
    if constexpr (M::kWidensInTiles) {
      static_assert(M::kPanel == kLanes);
      if (lanes == kLanes) return M::store_panel(to, M::load_units(from));
      alignas(64) uint16_t some[kLanes];
      M::store_panel(some, M::load_units(from));
      for (int64_t v = 0; v < lanes; ++v) to[swapped(lane + v)] = some[swapped(v)];
    } else if constexpr (kHasNarrowPanels<M>) {
      for (int64_t v = 0; v < lanes; v += kLanes) M::store_narrow(to + lane + v, M::load_units(from + v), lanes - v);
    } else {
      for (int64_t v = 0; v < lanes; ++v) to[lane + v] = from[v];
    }
  }
};

template <class M>
void run_panels(const GemmCall& call, const GemmTeam& team, int, void* scratch) {
  PanelGemm<M>(call, team.num_threads, scratch).run(team);
}

template <class M>
void pack_panels(const PanelPack& pack, int64_t begin, int64_t end, void* scratch) {
  GemmCall call{};
  call.n = pack.columns, call.k = pack.k;
  call.b = pack.b, call.b_ld = pack.b_ld, call.b_transposed = pack.b_transposed;
  const PanelGemm<M> gemm(call, 1, scratch);
  for (int64_t panel = begin; panel < end; ++panel) gemm.pack(pack, panel);
}

/// A kernel of an instruction set M.
template <class M>
constexpr GemmKernel gemm_kernel(const char* name) {
  return {.name = name,
          .k_multiple = M::kPair,
          .run = run_gemm<M>,
          .panel_columns = M::kPanel,
          .code_order = M::kCodeOrder,
          .rounds_half_up = M::kRoundsHalfUp,
          .swaps_quarters = M::kWidensInTiles,
          .pack = pack_panels<M>,
          .run_panels = run_panels<M>};
}

}  // namespace
}  // namespace trireme::ops
