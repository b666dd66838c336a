// Widening with AVX-512: a block's 16 values are one vector, and nibbles choose its lanes.
#include <immintrin.h>

#include "trireme/ops/blocks/widen-inl.h"

namespace trireme::ops {
namespace {

/// The nibbles of 16 bytes, fewer behind `count` elements, as 32 bytes in their order.
inline __m256i nibbles(const uint8_t* codes, int64_t count) {
  const int64_t bytes = count / 2;
  const auto mask = static_cast<__mmask16>(bytes >= 16 ? 0xffffu : (1u << bytes) - 1u);
  const __m128i both = _mm_maskz_loadu_epi8(mask, codes), low = _mm_set1_epi8(15);
  const __m128i first = _mm_and_si128(_mm_srli_epi16(both, 4), low), second = _mm_and_si128(both, low);
  return _mm256_set_m128i(_mm_unpackhi_epi8(first, second), _mm_unpacklo_epi8(first, second));
}

struct ToFloat {
  static void write(__m512 values, const uint8_t* codes, float* to, int64_t count) {
    for (int64_t i = 0; i < count; i += 32) {
      const __m256i all = nibbles(codes + i / 2, count - i);
      store(to + i, values, _mm256_castsi256_si128(all), count - i);
      store(to + i + 16, values, _mm256_extracti128_si256(all, 1), count - i - 16);
    }
  }
  static void store(float* to, __m512 values, __m128i lanes, int64_t count) {
    if (count <= 0) return;
    const auto mask = static_cast<__mmask16>(count >= 16 ? 0xffffu : (1u << count) - 1u);
    _mm512_mask_storeu_ps(to, mask, _mm512_permutexvar_ps(_mm512_cvtepu8_epi32(lanes), values));
  }
};

/// Types of two bytes, which `Round` makes of a vector.
template <__m256i (*Round)(__m512)>
struct ToNarrow {
  static void write(__m512 values, const uint8_t* codes, uint16_t* to, int64_t count) {
    const __m512i table = _mm512_castsi256_si512(Round(values));
    for (int64_t i = 0; i < count; i += 32) {
      const __m512i chosen = _mm512_permutexvar_epi16(_mm512_cvtepu8_epi16(nibbles(codes + i / 2, count - i)), table);
      if (count - i >= 32)
        _mm512_storeu_si512(to + i, chosen);
      else
        _mm512_mask_storeu_epi16(to + i, (1u << (count - i)) - 1u, chosen);
    }
  }
};

/// To nearest even, as narrow() in storage.h. The values are finite.
__m256i round_bfloat16(__m512 values) {
  const __m512i bits = _mm512_castps_si512(values),
                odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i up = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  const __m512i rounded = _mm512_mask_blend_epi32(_mm512_cmp_ps_mask(values, values, _CMP_UNORD_Q), up,
                                                  _mm512_or_si512(bits, _mm512_set1_epi32(0x400000)));
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16));
}
__m256i round_half(__m512 values) { return _mm512_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }

template <class To, class T>
void widen_rows(const BlockMatrix& matrix, int64_t row, int64_t rows, int64_t column, int64_t columns, void* to,
                int64_t ld) {
  const __m512 code = _mm512_loadu_ps(matrix.code);
  for_each_block(matrix, row, rows, column, columns, ld,
                 [&](float scale, const uint8_t* codes, int64_t at, int64_t count) {
                   To::write(_mm512_mul_ps(code, _mm512_set1_ps(scale)), codes, static_cast<T*>(to) + at, count);
                 });
}

}  // namespace

const WidenRows kWidenFloatAvx512 = widen_rows<ToFloat, float>,
                kWidenBfloat16Avx512 = widen_rows<ToNarrow<round_bfloat16>, uint16_t>,
                kWidenHalfAvx512 = widen_rows<ToNarrow<round_half>, uint16_t>;

}  // namespace trireme::ops
