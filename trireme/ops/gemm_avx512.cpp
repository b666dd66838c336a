// float32 products with AVX-512.
#include "trireme/ops/gemm_kernel-inl.h"
#include "trireme/ops/gemm_math_avx512-inl.h"

namespace trireme::ops {
namespace {

struct GemmFloat : Gemm512 {
  using Unit = float;
  using UnitVec = __m512;
  static constexpr int64_t kPair = 1;

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

}  // namespace

const GemmKernel kGemmFloatAvx512{"avx512", 1, run_gemm<GemmFloat>};

}  // namespace trireme::ops
