// The limits' loops in 32-byte vectors.
#include <immintrin.h>

#include "trireme/machine/loops-inl.h"

namespace trireme::machine {
namespace {

constexpr int kChains = 12;  // of 16 registers; two units with a latency of 4 to 5 cycles need 10

void copy_past_caches(void* to, const void* from, int64_t bytes) {
  copy_by<32>(to, from, bytes, [](auto* at, auto words) {
    _mm256_stream_si256(reinterpret_cast<__m256i*>(at), reinterpret_cast<__m256i>(words));
  });
  _mm_sfence();
}

}  // namespace

const LimitsKernel kLimitsAvx2{
    .name = "avx2",
    .multiply_add = {kMultiplyAdd<double, 32, kChains>, kMultiplyAdd<float, 32, kChains>, {}},
    .copy_past_caches = copy_past_caches,
    .copy = copy<32>,
    .update = update<32>,
    .read = read<32>};

}  // namespace trireme::machine
