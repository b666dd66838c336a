// Attention with AVX512-BF16: bfloat16 in pairs that one instruction multiplies and sums in float32. float16 is
// widened while packing.
#include "trireme/ops/attention/math_avx512-inl.h"

#include "trireme/ops/attention/kernels-inl.h"

namespace trireme::ops {
namespace {

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
  /// The first `count` elements, at most 32, as units; zeros beyond. Nothing beyond is read.
  static UnitVec load_units(const Bfloat16* p, int64_t count) {
    return _mm512_maskz_loadu_epi16(count >= 32 ? 0xffffffffu : (1u << larger(count, 0)) - 1u, p);
  }
  static void transpose(Unit* to, int64_t stride, UnitVec (&rows)[16], int64_t count) {
    transpose_lanes(to, stride, rows, count);
  }
};

}  // namespace

const AttentionKernel kAttentionAvx512Bf16{
    "avx512-bf16",
    {nullptr, forward_task<Float512, float>, forward_task<PairMath, Bfloat16>, forward_task<Float512, Float16>},
    {nullptr, backward_task<Float512, float>, backward_task<PairMath, Bfloat16>, backward_task<Float512, Float16>},
    {nullptr, write_rows<Float512, float>, write_rows<PairMath, Bfloat16>, write_rows<Float512, Float16>},
    {nullptr, paged_task<Float512, float>, paged_task<PairMath, Bfloat16>, paged_task<Float512, Float16>}};

}  // namespace trireme::ops
