// What attention's two AVX-512 files share: float32 in 64-byte vectors.
#pragma once

#include <immintrin.h>

#include "trireme/ops/attention/math-inl.h"

namespace trireme::ops {
namespace {

struct Float512 : PlainMath<float, 64, 4> {
  static constexpr bool kTransposes = true;

  static __mmask16 lanes_below(int64_t count) {
    return static_cast<__mmask16>(count >= 16 ? 0xffffu : (1u << larger(count, 0)) - 1u);
  }
  static Vec maximum(Vec a, Vec b) { return _mm512_max_ps(a, b); }
  static float highest(Vec v) { return _mm512_reduce_max_ps(v); }
  static float total(Vec v) { return _mm512_reduce_add_ps(v); }
  static Vec keep(Vec v, int64_t first, int64_t end, float other) {
    const auto lanes = static_cast<__mmask16>(lanes_below(end) & ~lanes_below(first));
    return _mm512_mask_blend_ps(lanes, _mm512_set1_ps(other), v);
  }
  /// A polynomial of 2^f on [-1/2, 1/2], scaled by the whole part. No clamp is needed: small powers become 0.
  static Vec exp2(Vec x) {
    const __m512 whole = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __m512 f = _mm512_sub_ps(x, whole);
    __m512 y = _mm512_fmadd_ps(f, _mm512_set1_ps(1.33978035e-3f), _mm512_set1_ps(9.67770915e-3f));
    y = _mm512_fmadd_ps(y, f, _mm512_set1_ps(5.55034250e-2f));
    y = _mm512_fmadd_ps(y, f, _mm512_set1_ps(2.40222212e-1f));
    y = _mm512_fmadd_ps(y, f, _mm512_set1_ps(6.93147182e-1f));
    y = _mm512_fmadd_ps(y, f, _mm512_set1_ps(1.0f));
    return _mm512_scalef_ps(y, whole);
  }
  static Vec widen_load(const float* p) { return load(p); }
  static Vec widen_load(const Bfloat16* p) { return load_units(p, 16); }
  static Vec widen_load(const Float16* p) { return load_units(p, 16); }
  static void narrow_store(float* p, Vec v) { store(p, v); }
  static void narrow_store(Bfloat16* p, Vec v) {  // as narrow()
    const __m512i bits = _mm512_castps_si512(v),
                  odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i up = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    const __m512i x = _mm512_mask_blend_epi32(_mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), _mm512_srli_epi32(up, 16),
                                              _mm512_set1_epi32(0x7fc0));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(x));
  }
  static void narrow_store(Float16* p, Vec v) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                        _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  /// Loads the first `count` elements, at most 16, as units, and zeros after them. Reads nothing beyond.
  static Vec load_units(const float* p, int64_t count) { return _mm512_maskz_loadu_ps(lanes_below(count), p); }
  static Vec load_units(const Bfloat16* p, int64_t count) {
    const __m512i x = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(lanes_below(count), p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(x, 16));
  }
  static Vec load_units(const Float16* p, int64_t count) {
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(lanes_below(count), p));
  }
  static void transpose(float* to, int64_t stride, const Vec (&rows)[16], int64_t count) {
    __m512i x[16];
    for (int i = 0; i < 16; ++i) x[i] = _mm512_castps_si512(rows[i]);
    transpose_lanes(to, stride, x, count);
  }
  /// Row u of `to` = lane u of the sixteen vectors, for u < count.
  static void transpose_lanes(void* to, int64_t stride, __m512i (&x)[16], int64_t count) {
    __m512i y[16];
    for (int i = 0; i < 16; i += 2) {
      y[i] = _mm512_unpacklo_epi32(x[i], x[i + 1]);
      y[i + 1] = _mm512_unpackhi_epi32(x[i], x[i + 1]);
    }
    // Now lane 4 q + j of x[i + k], i a multiple of 4, is lane 4 q + k of row i + j.
    for (int i = 0; i < 16; i += 4) {
      x[i] = _mm512_unpacklo_epi64(y[i], y[i + 2]);
      x[i + 1] = _mm512_unpackhi_epi64(y[i], y[i + 2]);
      x[i + 2] = _mm512_unpacklo_epi64(y[i + 1], y[i + 3]);
      x[i + 3] = _mm512_unpackhi_epi64(y[i + 1], y[i + 3]);
    }
    for (int k = 0; k < 4; ++k) {
      const __m512i even01 = _mm512_shuffle_i32x4(x[k], x[4 + k], 0x88);  // quarters 0 and 2 of rows 0..7
      const __m512i even23 = _mm512_shuffle_i32x4(x[8 + k], x[12 + k], 0x88);
      const __m512i odd01 = _mm512_shuffle_i32x4(x[k], x[4 + k], 0xdd);
      const __m512i odd23 = _mm512_shuffle_i32x4(x[8 + k], x[12 + k], 0xdd);
      y[k] = _mm512_shuffle_i32x4(even01, even23, 0x88);
      y[4 + k] = _mm512_shuffle_i32x4(odd01, odd23, 0x88);
      y[8 + k] = _mm512_shuffle_i32x4(even01, even23, 0xdd);
      y[12 + k] = _mm512_shuffle_i32x4(odd01, odd23, 0xdd);
    }
#pragma GCC unroll 16
    for (int64_t u = 0; u < 16; ++u)
      if (u < count) _mm512_storeu_si512(static_cast<uint32_t*>(to) + u * stride, y[u]);
  }
};

}  // namespace
}  // namespace trireme::ops
