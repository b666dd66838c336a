// The limits' loops in 64-byte vectors.
#include <immintrin.h>

#include "trireme/machine/loops-inl.h"

namespace trireme::machine {
namespace {

constexpr int kChains = 24;  // of 32 registers; two units with a latency of 4 to 6 cycles need 12

double run_bfloat16(int64_t rounds) {
  return run_chains<__m512, kChains>(rounds, _mm512_set1_epi16(0x3f00), _mm512_set1_epi16(0x3e80),  // 0.5, 0.25
                                     [](__m512 s, __m512i a, __m512i b) {
                                       return _mm512_dpbf16_ps(s, reinterpret_cast<__m512bh>(a),
                                                               reinterpret_cast<__m512bh>(b));
                                     });
}

void copy_past_caches(void* to, const void* from, int64_t bytes) {
  copy_by<64>(to, from, bytes, [](auto* at, auto words) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(at), reinterpret_cast<__m512i>(words));
  });
  _mm_sfence();
}

}  // namespace

const LimitsKernel kLimitsAvx512{
    .name = "avx512",
    .multiply_add = {kMultiplyAdd<double, 64, kChains>, kMultiplyAdd<float, 64, kChains>, {run_bfloat16, kChains * 64}},
    .copy_past_caches = copy_past_caches,
    .copy = copy<64>,
    .update = update<64>,
    .read = read<64>};

}  // namespace trireme::machine
