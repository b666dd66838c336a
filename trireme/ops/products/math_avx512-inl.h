// The common part of products with AVX-512: float32 sums in 64-byte vectors, packed units of 4 bytes.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "trireme/ops/products/kernels.h"

namespace trireme::ops {
namespace {

struct Gemm512 {
  using Vec = __m512;

  // What panels in blocks look their codes up in, and how many of them one row meets at once.
  using Lookup = const float*;
  template <PanelCode>
  static Lookup lookup(const float* code) {
    return code;
  }
  static constexpr int kPanelsAtOnce = 1, kNarrowPanelsAtOnce = 1;
  static constexpr int64_t kAheadUnits = 1;
  static constexpr bool kPacksStrips = true, kWidensInTiles = false, kTakesManyRows = true;
  static constexpr int64_t kRowBytes = 0;

  static __mmask16 first(int64_t lanes) {
    return static_cast<__mmask16>(lanes >= 16 ? 0xffffu : lanes <= 0 ? 0u : (1u << lanes) - 1u);
  }
  static Vec zero() { return _mm512_setzero_ps(); }
  static Vec add(Vec a, Vec b) { return _mm512_add_ps(a, b); }
  /// Fetches lines into the level-2 cache, unless `ahead` is null.
  static void fetch(const char* ahead, int64_t at, int64_t bytes) {
    if (ahead != nullptr)
      for (int64_t byte = 0; byte < bytes; byte += 64) __builtin_prefetch(ahead + at + byte, 0, 2);
  }
  static Vec load_first(const float* from, __mmask16 lanes) { return _mm512_maskz_loadu_ps(lanes, from); }
  static void store_first(float* to, Vec v, __mmask16 lanes) { _mm512_mask_storeu_ps(to, lanes, v); }

  /// Units as they are in memory; zeros where the mask is 0, and nothing is read there.
  static __m512i load_row(const char* from, __mmask16 mask) { return _mm512_maskz_loadu_epi32(mask, from); }

  /// to [columns, 16] with stride to_ld = the transpose of `rows` rows of `columns` units that M::load_row reads;
  /// missing rows are zero. Unless `ahead` is null, prefetches as many rows from there.
  template <class M, class Unit>
  static void transpose(Unit* to, int64_t to_ld, const char* from, int64_t row_bytes, int64_t rows, int64_t columns,
                        const char* ahead) {
    if (ahead != nullptr)
      for (int64_t i = 0; i < rows; ++i) __builtin_prefetch(ahead + i * row_bytes);
    __m512i x[16], y[16];
    const __mmask16 mask = first(columns);
    for (int i = 0; i < 16; ++i) x[i] = i < rows ? M::load_row(from + i * row_bytes, mask) : _mm512_setzero_si512();
    for (int i = 0; i < 16; i += 2) {
      y[i] = _mm512_unpacklo_epi32(x[i], x[i + 1]);
      y[i + 1] = _mm512_unpackhi_epi32(x[i], x[i + 1]);
    }
    for (int i = 0; i < 16; i += 4)
      for (int j = 0; j < 2; ++j) {
        x[i + 2 * j] = _mm512_unpacklo_epi64(y[i + j], y[i + j + 2]);
        x[i + 2 * j + 1] = _mm512_unpackhi_epi64(y[i + j], y[i + j + 2]);
      }
    // x[4 g + c] holds, in its lane q, column 4 q + c of rows 4 g .. 4 g + 3: now gather the lanes of one column.
    for (int c = 0; c < 4; ++c) {
      const __m512i low01 = _mm512_shuffle_i32x4(x[c], x[4 + c], 0x88),
                    low23 = _mm512_shuffle_i32x4(x[8 + c], x[12 + c], 0x88);
      const __m512i high01 = _mm512_shuffle_i32x4(x[c], x[4 + c], 0xdd),
                    high23 = _mm512_shuffle_i32x4(x[8 + c], x[12 + c], 0xdd);
      y[c] = _mm512_shuffle_i32x4(low01, low23, 0x88);
      y[8 + c] = _mm512_shuffle_i32x4(low01, low23, 0xdd);
      y[4 + c] = _mm512_shuffle_i32x4(high01, high23, 0x88);
      y[12 + c] = _mm512_shuffle_i32x4(high01, high23, 0xdd);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i)
      if (i < columns) _mm512_storeu_si512(to + i * to_ld, y[i]);
  }
};

}  // namespace
}  // namespace trireme::ops
