// The limits' loops for any processor: 16-byte vectors, which GCC and Clang lower to whatever the target has.
#include <cstring>

#include "trireme/ops/limits_kernel.h"

// Makes a value unknown to the compiler, in a register.
#if defined(__x86_64__)
#define TRIREME_UNKNOWN(value) asm volatile("" : "+x"(value))
#elif defined(__aarch64__)
#define TRIREME_UNKNOWN(value) asm volatile("" : "+w"(value))
#else
#define TRIREME_UNKNOWN(value) asm volatile("" : "+m"(value))
#endif

namespace trireme::ops {
namespace {

constexpr int kChains = 12;

using Doubles = double __attribute__((vector_size(16)));
using Floats = float __attribute__((vector_size(16)));

template <class Vec, class Element>
double run(int64_t rounds) {
  Vec a = Vec{} + Element(0.5), b = Vec{} + Element(0.25);
  TRIREME_UNKNOWN(b);
  Vec sum[kChains];
#pragma GCC unroll 24
  for (auto& s : sum) s = Vec{};
  for (int64_t round = 0; round < rounds; ++round)
#pragma GCC unroll 24
    for (auto& s : sum) {
      TRIREME_UNKNOWN(a);  // or the product would be taken once
      s += a * b;
      TRIREME_UNKNOWN(s);
    }
#pragma GCC unroll 24
  for (int i = 1; i < kChains; ++i) sum[0] += sum[i];
  return static_cast<double>(sum[0][0]);
}

void copy(void* to, const void* from, int64_t bytes) { std::memcpy(to, from, static_cast<size_t>(bytes)); }

using Words = uint64_t __attribute__((vector_size(16)));

void update(void* at, int64_t bytes) {
  auto* all = static_cast<Words*>(at);
  for (int64_t i = 0; i < bytes / 16; ++i) all[i] = ~all[i];
}

double read(const void* from, int64_t bytes) {
  using Vec = Words;
  constexpr int kSums = 8;
  const auto* in = static_cast<const Vec*>(from);
  Vec sum[kSums] = {};
  for (int64_t i = 0; i < bytes / 16; i += kSums)
#pragma GCC unroll 16
    for (int k = 0; k < kSums; ++k) sum[k] ^= in[i + k];
#pragma GCC unroll 16
  for (int k = 1; k < kSums; ++k) sum[0] ^= sum[k];
  return static_cast<double>(sum[0][0] ^ sum[0][1]);
}

}  // namespace

const LimitsKernel kLimitsPortable{
    "portable", {{run<Doubles, double>, kChains * 4}, {run<Floats, float>, kChains * 8}, {nullptr, 0}},
    nullptr,    copy,
    update,     read};

}  // namespace trireme::ops
