// The limits' loops in 32-byte vectors.
#include <immintrin.h>

#include "trireme/ops/limits_kernel.h"

namespace trireme::ops {
namespace {

constexpr int kChains = 12;  // of 16 registers; two units of 4 to 5 cycles latency need 10
constexpr int kUnroll = 16;

double run_float32(int64_t rounds) {
  __m256 a = _mm256_set1_ps(0.5f), b = _mm256_set1_ps(0.25f);
  asm volatile("" : "+x"(a), "+x"(b));
  __m256 sum[kChains];
#pragma GCC unroll 24
  for (auto& s : sum) s = _mm256_setzero_ps();
  for (int64_t round = 0; round < rounds; ++round)
#pragma GCC unroll 24
    for (auto& s : sum) {
      s = _mm256_fmadd_ps(a, b, s);
      asm volatile("" : "+x"(s));  // stays in its register, and is not summed up beforehand
    }
#pragma GCC unroll 24
  for (int i = 1; i < kChains; ++i) sum[0] = _mm256_add_ps(sum[0], sum[i]);
  return static_cast<double>(_mm256_cvtss_f32(sum[0]));
}

double run_float64(int64_t rounds) {
  __m256d a = _mm256_set1_pd(0.5), b = _mm256_set1_pd(0.25);
  asm volatile("" : "+x"(a), "+x"(b));
  __m256d sum[kChains];
#pragma GCC unroll 24
  for (auto& s : sum) s = _mm256_setzero_pd();
  for (int64_t round = 0; round < rounds; ++round)
#pragma GCC unroll 24
    for (auto& s : sum) {
      s = _mm256_fmadd_pd(a, b, s);
      asm volatile("" : "+x"(s));
    }
#pragma GCC unroll 24
  for (int i = 1; i < kChains; ++i) sum[0] = _mm256_add_pd(sum[0], sum[i]);
  return _mm256_cvtsd_f64(sum[0]);
}

void copy_past_caches(void* to, const void* from, int64_t bytes) {
  auto* out = static_cast<__m256i*>(to);
  const auto* in = static_cast<const __m256i*>(from);
  for (int64_t i = 0; i < bytes / 32; i += kUnroll)
#pragma GCC unroll 16
    for (int k = 0; k < kUnroll; ++k) _mm256_stream_si256(out + i + k, _mm256_load_si256(in + i + k));
  _mm_sfence();
}

void copy(void* to, const void* from, int64_t bytes) {
  auto* out = static_cast<__m256i*>(to);
  const auto* in = static_cast<const __m256i*>(from);
  for (int64_t i = 0; i < bytes / 32; i += kUnroll)
#pragma GCC unroll 16
    for (int k = 0; k < kUnroll; ++k) _mm256_store_si256(out + i + k, _mm256_load_si256(in + i + k));
}

void update(void* at, int64_t bytes) {
  auto* all = static_cast<__m256i*>(at);
  const __m256i ones = _mm256_set1_epi32(-1);
  for (int64_t i = 0; i < bytes / 32; i += kUnroll)
#pragma GCC unroll 16
    for (int k = 0; k < kUnroll; ++k)
      _mm256_store_si256(all + i + k, _mm256_xor_si256(ones, _mm256_load_si256(all + i + k)));
}

double read(const void* from, int64_t bytes) {
  const auto* in = static_cast<const __m256i*>(from);
  constexpr int kSums = 8;
  __m256i sum[kSums];
#pragma GCC unroll 24
  for (auto& s : sum) s = _mm256_setzero_si256();
  for (int64_t i = 0; i < bytes / 32; i += kSums)
#pragma GCC unroll 16
    for (int k = 0; k < kSums; ++k) sum[k] = _mm256_xor_si256(sum[k], _mm256_load_si256(in + i + k));
#pragma GCC unroll 16
  for (int k = 1; k < kSums; ++k) sum[0] = _mm256_xor_si256(sum[0], sum[k]);
  return static_cast<double>(_mm256_extract_epi64(sum[0], 0) ^ _mm256_extract_epi64(sum[0], 3));
}

}  // namespace

const LimitsKernel kLimitsAvx2{
    "avx2", {{run_float64, kChains * 8}, {run_float32, kChains * 16}, {nullptr, 0}}, copy_past_caches, copy, update,
    read};

}  // namespace trireme::ops
