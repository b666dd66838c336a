// Products with AVX-512: float32, and bfloat16 that is widened to float32 while it is packed, for processors whose
// registers multiply no bfloat16 (Skylake, Cascade Lake, Ice Lake).
#include "trireme/ops/gemm_kernel-inl.h"
#include "trireme/ops/gemm_math_avx512-inl.h"

namespace trireme::ops {
namespace {

struct GemmFloat : Gemm512 {
  using Unit = float;
  using UnitVec = __m512;
  static constexpr int64_t kPair = 1, kElementBytes = 4;

  static UnitVec load_units(const Unit* from) { return _mm512_loadu_ps(from); }
  static UnitVec broadcast(const char* from) { return _mm512_set1_ps(*reinterpret_cast<const float*>(from)); }
  static Vec multiply_add(Vec sum, UnitVec a, UnitVec b) { return _mm512_fmadd_ps(a, b, sum); }
  static void store_narrow(uint16_t*, Vec, int64_t) {}  // C is float32

  /// 16 units from the first `count` elements of a row, zero beyond.
  static void pack_vector(Unit* to, const char* from, int64_t, int64_t count) {
    _mm512_storeu_ps(to, count >= kLanes ? _mm512_loadu_ps(from) : _mm512_maskz_loadu_ps(first(count), from));
  }

  /// One row of a transposed A, `count` elements of which are there, as the units of 8 strips of 6.
  static void pack_group(Unit* to, int64_t strip_units, const char* from, int64_t, int64_t count, bool exactly) {
    __m512i row[4];
    for (int i = 0; i < 3; ++i)
      row[i] = _mm512_castps_si512(_mm512_maskz_loadu_ps(first(count - 16 * i), from + 64 * i));
    row[3] = _mm512_setzero_si512();
    store_strips(to, strip_units, row, exactly);
  }
};

struct GemmWidened : GemmFloat {
  static constexpr int64_t kElementBytes = 2;

  static __m512i widen(__m256i bits) { return _mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16); }
  static __m512i load_row(const char* from, __mmask16 mask) { return widen(_mm256_maskz_loadu_epi16(mask, from)); }

  /// Rounds to nearest even; a NaN stays one. As narrow() in storage.h.
  static void store_narrow(uint16_t* to, Vec v, int64_t lanes) {
    const __m512i bits = _mm512_castps_si512(v),
                  odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1)),
                  up = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    const __m512i rounded = _mm512_mask_blend_epi32(_mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), up,
                                                    _mm512_or_si512(bits, _mm512_set1_epi32(0x400000)));
    const __m256i narrow = _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16));
    if (lanes >= kLanes)
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), narrow);  // a masked store of 16-bit lanes is slow
    else
      _mm256_mask_storeu_epi16(to, first(lanes), narrow);
  }

  static void pack_vector(Unit* to, const char* from, int64_t, int64_t count) {
    const __m512i row = count >= kLanes ? widen(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)))
                                        : load_row(from, first(count));
    _mm512_storeu_si512(to, row);
  }

  static void pack_group(Unit* to, int64_t strip_units, const char* from, int64_t, int64_t count, bool exactly) {
    __m512i row[4];
    for (int i = 0; i < 3; ++i) row[i] = load_row(from + 32 * i, first(count - 16 * i));
    row[3] = _mm512_setzero_si512();
    store_strips(to, strip_units, row, exactly);
  }
};

}  // namespace

const GemmKernel kGemmFloatAvx512{"avx512", 1, run_gemm<GemmFloat>};
const GemmKernel kGemmBfloat16Avx512{"avx512", 1, run_gemm<GemmWidened>};

}  // namespace trireme::ops
