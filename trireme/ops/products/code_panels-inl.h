// Panels of a packed B (panels-inl.h) whose elements are codes of 4 or 8 bits with scales. How they are widened: a
// kernel calls each_of_block() with what becomes of the units, in registers for few rows, in scratch for many.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "trireme/ops/products/kernels-inl.h"

namespace trireme::ops {
namespace {

/// Calls write(u, v, units) for vector v of the units with elements [first, last) of a block of whole numbers,
/// multiples of 8, with AVX-512. Two elements of 16 columns are 32 numbers, in 32 or 16 bytes: those of the earlier one
/// first, or (kPair 2, of 8 bits) both of each column together. In 4 bits the second half are the upper nibbles.
template <class M, int Vectors, PanelCode kCode, class Write>
__attribute__((always_inline)) inline void each_number(const char* block, int64_t first, int64_t last,
                                                       const char* ahead, const Write& write) {
  constexpr int kBits = blocks_of(kCode).bits;
  typename M::Scale scale[Vectors];
#pragma GCC unroll 4
  for (int v = 0; v < Vectors; ++v) scale[v] = M::load_scale(block + v * kLanes * 2);
  const char* codes = block + M::kPanel * 2;
  for (int64_t k = first; k < last; k += 8) {
    M::fetch(ahead, k * M::kPanel * kBits / 8, M::kPanel * kBits);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i)
#pragma GCC unroll 4
      for (int v = 0; v < Vectors; ++v) {
        const int64_t pair = k / 2 + i;
        const auto* at = reinterpret_cast<const __m128i*>(codes + (pair * M::kPanel + v * kLanes) * kBits / 4);
        __m128i one = _mm_loadu_si128(at), two = one;
        if constexpr (kBits == 8) {
          two = _mm_loadu_si128(at + 1);
        } else {
          const __m128i low = _mm_set1_epi8(15), middle = _mm_set1_epi8(8);
          two = _mm_sub_epi8(_mm_and_si128(_mm_srli_epi16(two, 4), low), middle);
          one = _mm_sub_epi8(_mm_and_si128(one, low), middle);
        }
        if constexpr (M::kPair == 2) {
          write(pair, v, M::numbers(one, two, scale[v]));
        } else {
          write(2 * pair, v, M::number(one, scale[v]));
          write(2 * pair + 1, v, M::number(two, scale[v]));
        }
      }
  }
}

/// The same of a block with any codes. If the vectors are those of several panels, the next panel begins `next` bytes
/// later.
template <class M, int Vectors, PanelCode kCode, class Write>
__attribute__((always_inline)) inline void each_of_block(const typename M::Lookup& lookup, const char* block,
                                                         int64_t next, int64_t first, int64_t last, const char* ahead,
                                                         const Write& write) {
  if constexpr (M::kCodeOrder == CodeOrder::quarters)
    M::template each_element<M, Vectors, kCode>(lookup, block, next, first, last, ahead, write);
  else if constexpr (kCode == PanelCode::values)
    M::template each_code<M, Vectors>(lookup, reinterpret_cast<const float*>(block), first, last, ahead, write);
  else if constexpr (kCode == PanelCode::nibbles && M::kCodeOrder == CodeOrder::pairs)
    M::template each_nibble<Vectors>(block, first, last, ahead, write);
  else
    each_number<M, Vectors, kCode>(block, first, last, ahead, write);
}

/// Panels in blocks of scales and codes.
template <class M, PanelCode kCode>
struct CodePanels : M {
  using Unit = char;
  static constexpr bool kWidensCodes = true;
  static constexpr int64_t kDistance = 8 << 10;  // bytes that are fetched ahead
  static constexpr PanelBlocks kBlocks = blocks_of(kCode);

  /// Calls write(u, v, units) for the units of a tile.
  template <int Vectors, class Write>
  __attribute__((always_inline)) static void each_unit(const char* panel, const Tile& tile, int64_t depth,
                                                       const Write& write) {
    const auto lookup = M::template lookup<kCode>(tile.code);
    const int64_t end = tile.skipped + depth * M::kPair;
    for (int64_t k = 0; k < end; k += kBlocks.depth, panel += kBlocks.bytes(M::kPanel)) {
      const int64_t first = larger(0, tile.skipped - k), from = (k - tile.skipped) / M::kPair;
      const char* ahead = panel + kDistance < tile.panel_end ? panel + kDistance
                                                             : tile.next_panel + (panel + kDistance - tile.panel_end);
      each_of_block<M, Vectors, kCode>(lookup, panel, tile.panel_bytes, first, smaller(kBlocks.depth, end - k), ahead,
                                       [&](int64_t u, int v, typename M::UnitVec units)
                                           __attribute__((always_inline)) { write(from + u, v, units); });
    }
  }
};
constexpr int kMostCodeRows = 3;  // that are multiplied as codes are widened; with more, registers are too few

}  // namespace
}  // namespace trireme::ops
