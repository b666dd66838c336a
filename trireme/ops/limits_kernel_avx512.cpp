// The limits' loops in 64-byte vectors.
#include <immintrin.h>

#include "trireme/ops/limits_kernel.h"

namespace trireme::ops {
namespace {

constexpr int kChains = 24;  // of 32 registers; two units of 4 to 6 cycles latency need 12
constexpr int kUnroll = 8;

template <class Add>
double chains(int64_t rounds, Add add) {
  __m512 sum[kChains];
#pragma GCC unroll 24
  for (auto& s : sum) s = _mm512_setzero_ps();
  for (int64_t round = 0; round < rounds; ++round)
#pragma GCC unroll 24
    for (auto& s : sum) {
      s = add(s);
      asm volatile("" : "+v"(s));  // stays in its register, and is not summed up beforehand
    }
#pragma GCC unroll 24
  for (int i = 1; i < kChains; ++i) sum[0] = _mm512_add_ps(sum[0], sum[i]);
  return _mm512_reduce_add_ps(sum[0]);
}

double run_float32(int64_t rounds) {
  __m512 a = _mm512_set1_ps(0.5f), b = _mm512_set1_ps(0.25f);
  asm volatile("" : "+v"(a), "+v"(b));
  return chains(rounds, [=](__m512 s) { return _mm512_fmadd_ps(a, b, s); });
}

double run_bfloat16(int64_t rounds) {
  __m512i a = _mm512_set1_epi16(0x3f00), b = _mm512_set1_epi16(0x3e80);  // 0.5, 0.25
  asm volatile("" : "+v"(a), "+v"(b));
  return chains(rounds, [=](__m512 s) {
    return _mm512_dpbf16_ps(s, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
  });
}

double run_float64(int64_t rounds) {
  __m512d a = _mm512_set1_pd(0.5), b = _mm512_set1_pd(0.25);
  asm volatile("" : "+v"(a), "+v"(b));
  __m512d sum[kChains];
#pragma GCC unroll 24
  for (auto& s : sum) s = _mm512_setzero_pd();
  for (int64_t round = 0; round < rounds; ++round)
#pragma GCC unroll 24
    for (auto& s : sum) {
      s = _mm512_fmadd_pd(a, b, s);
      asm volatile("" : "+v"(s));
    }
#pragma GCC unroll 24
  for (int i = 1; i < kChains; ++i) sum[0] = _mm512_add_pd(sum[0], sum[i]);
  return _mm512_reduce_add_pd(sum[0]);
}

void copy_past_caches(void* to, const void* from, int64_t bytes) {
  auto* out = static_cast<__m512i*>(to);
  const auto* in = static_cast<const __m512i*>(from);
  for (int64_t i = 0; i < bytes / 64; i += kUnroll)
#pragma GCC unroll 16
    for (int k = 0; k < kUnroll; ++k) _mm512_stream_si512(out + i + k, _mm512_load_si512(in + i + k));
  _mm_sfence();
}

void copy(void* to, const void* from, int64_t bytes) {
  auto* out = static_cast<__m512i*>(to);
  const auto* in = static_cast<const __m512i*>(from);
  for (int64_t i = 0; i < bytes / 64; i += kUnroll)
#pragma GCC unroll 16
    for (int k = 0; k < kUnroll; ++k) _mm512_store_si512(out + i + k, _mm512_load_si512(in + i + k));
}

void update(void* at, int64_t bytes) {
  auto* all = static_cast<__m512i*>(at);
  const __m512i ones = _mm512_set1_epi32(-1);
  for (int64_t i = 0; i < bytes / 64; i += kUnroll)
#pragma GCC unroll 16
    for (int k = 0; k < kUnroll; ++k)
      _mm512_store_si512(all + i + k, _mm512_xor_si512(ones, _mm512_load_si512(all + i + k)));
}

double read(const void* from, int64_t bytes) {
  const auto* in = static_cast<const __m512i*>(from);
  __m512i sum[kUnroll];
#pragma GCC unroll 24
  for (auto& s : sum) s = _mm512_setzero_si512();
  for (int64_t i = 0; i < bytes / 64; i += kUnroll)
#pragma GCC unroll 16
    for (int k = 0; k < kUnroll; ++k) sum[k] = _mm512_xor_si512(sum[k], _mm512_load_si512(in + i + k));
#pragma GCC unroll 16
  for (int k = 1; k < kUnroll; ++k) sum[0] = _mm512_xor_si512(sum[0], sum[k]);
  return static_cast<double>(_mm512_reduce_add_epi64(sum[0]));
}

}  // namespace

const LimitsKernel kLimitsAvx512{
    "avx512",         {{run_float64, kChains * 16}, {run_float32, kChains * 32}, {run_bfloat16, kChains * 64}},
    copy_past_caches, copy,
    update,           read};

}  // namespace trireme::ops
