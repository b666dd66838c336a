// Attention with AVX-512: float32 in 64-byte vectors, bfloat16 in pairs that one instruction multiplies and sums
// in float32 (AVX512-BF16).
#include <immintrin.h>

#include "trireme/ops/attention_kernel-inl.h"

namespace trireme::ops {
namespace {

/// What float32 and bfloat16 share: statistics and exponentials in float32.
struct Float512 : PlainMath<float, 64, 4> {
  static Vec maximum(Vec a, Vec b) { return _mm512_max_ps(a, b); }
  static float highest(Vec v) { return _mm512_reduce_max_ps(v); }
  static float total(Vec v) { return _mm512_reduce_add_ps(v); }
  static Vec keep_first(Vec v, int64_t count, float other) {
    const unsigned lanes = count >= 16 ? 0xffffu : (1u << larger(count, 0)) - 1u;
    return _mm512_mask_blend_ps(static_cast<__mmask16>(lanes), _mm512_set1_ps(other), v);
  }
  /// 2^f on [-1/2, 1/2], then scaled by the whole part: no clamp needed, small powers become 0.
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
};

struct PairMath : Float512 {
  using Unit = uint32_t;  // the earlier element in the low half
  using UnitVec = __m512i;
  static constexpr int64_t kPair = 2;

  static Unit unit(Bfloat16 low, Bfloat16 high) { return low.bits | static_cast<uint32_t>(high.bits) << 16; }
  static UnitVec load_unit(const Unit* p) { return _mm512_loadu_si512(p); }
  static UnitVec splat_unit(Unit x) { return _mm512_set1_epi32(static_cast<int>(x)); }
  static Vec multiply_add(Vec sum, UnitVec a, UnitVec b) {
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(b), reinterpret_cast<__m512bh>(a));
  }
  static __m256i narrow(Vec v) { return reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(v)); }
  static void store_rows(Unit* row0, Unit* row1, Vec v0, Vec v1) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(row0), narrow(v0));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(row1), narrow(v1));
  }
  static void store_columns(Unit* to, Vec v0, Vec v1) {
    const __m512i low = _mm512_cvtepu16_epi32(narrow(v0)), high = _mm512_cvtepu16_epi32(narrow(v1));
    _mm512_storeu_si512(to, _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
  }
};

}  // namespace

const AttentionKernel kAttentionAvx512{"avx512",
                                       {nullptr, forward_job<Float512, float>, forward_job<PairMath, Bfloat16>},
                                       {nullptr, backward_job<Float512, float>, backward_job<PairMath, Bfloat16>}};

}  // namespace trireme::ops
