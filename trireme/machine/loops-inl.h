// The loops that measure the limits, in vectors of kBytes. GCC and Clang compile these vectors to instructions that the
// including file's flags allow. Included once per instruction set, in an anonymous namespace: no symbol leaves its
// file.
#pragma once

#include "trireme/machine/kernels.h"

// Keeps a value in a register, and makes it unknown to the compiler.
#if defined(__AVX512F__)
#define TRIREME_UNKNOWN(value) asm volatile("" : "+v"(value))
#elif defined(__x86_64__)
#define TRIREME_UNKNOWN(value) asm volatile("" : "+x"(value))
#elif defined(__aarch64__)
#define TRIREME_UNKNOWN(value) asm volatile("" : "+w"(value))
#else
#define TRIREME_UNKNOWN(value) asm volatile("" : "+m"(value))
#endif

namespace trireme::machine {
namespace {

template <class Element, int kBytes>
struct VectorOf {
  typedef Element Type __attribute__((vector_size(kBytes), may_alias));
};

/// Runs kChains independent chains of sum = multiply_add(sum, a, b).
template <class Vec, int kChains, class Factor, class MultiplyAdd>
double run_chains(int64_t rounds, Factor a, Factor b, const MultiplyAdd& multiply_add) {
  TRIREME_UNKNOWN(b);
  Vec sum[kChains];
#pragma GCC unroll 24
  for (auto& s : sum) s = Vec{};
  for (int64_t round = 0; round < rounds; ++round)
#pragma GCC unroll 24
    for (auto& s : sum) {
      TRIREME_UNKNOWN(a);  // otherwise the product could be computed once
      s = multiply_add(s, a, b);
      TRIREME_UNKNOWN(s);  // stays in its register, and is not summed up beforehand
    }
#pragma GCC unroll 24
  for (int i = 1; i < kChains; ++i) sum[0] += sum[i];
  return static_cast<double>(sum[0][0]);
}

template <class Real, int kBytes, int kChains>
double run_multiply_add(int64_t rounds) {
  using Vec = typename VectorOf<Real, kBytes>::Type;
  return run_chains<Vec, kChains>(rounds, Vec{} + Real(0.5), Vec{} + Real(0.25),
                                  [](Vec s, Vec a, Vec b) { return s + a * b; });
}
template <class Real, int kBytes, int kChains>
constexpr RegisterLoop kMultiplyAdd{run_multiply_add<Real, kBytes, kChains>, kChains* kBytes / sizeof(Real) * 2};

/// Calls store(address in `to`, vector) for every vector of `from`.
template <int kBytes, class Store>
void copy_by(void* to, const void* from, int64_t bytes, const Store& store) {
  using Words = typename VectorOf<uint64_t, kBytes>::Type;
  constexpr int64_t kUnroll = 512 / kBytes;
  auto* out = static_cast<Words*>(to);
  const auto* in = static_cast<const Words*>(from);
  for (int64_t i = 0; i < bytes / kBytes; i += kUnroll)
#pragma GCC unroll 16
    for (int64_t k = 0; k < kUnroll; ++k) store(out + i + k, in[i + k]);
}

template <int kBytes>
void copy(void* to, const void* from, int64_t bytes) {
  copy_by<kBytes>(to, from, bytes, [](auto* at, auto words) { *at = words; });
}

template <int kBytes>
void update(void* at, int64_t bytes) {
  copy_by<kBytes>(at, at, bytes, [](auto* to, auto words) { *to = ~words; });
}

template <int kBytes>
double read(const void* from, int64_t bytes) {
  using Words = typename VectorOf<uint64_t, kBytes>::Type;
  constexpr int64_t kSums = 8;
  const auto* in = static_cast<const Words*>(from);
  Words sum[kSums] = {};
  for (int64_t i = 0; i < bytes / kBytes; i += kSums)
#pragma GCC unroll 16
    for (int64_t k = 0; k < kSums; ++k) sum[k] ^= in[i + k];
#pragma GCC unroll 16
  for (int64_t k = 1; k < kSums; ++k) sum[0] ^= sum[k];
  uint64_t all = 0;
  for (int64_t lane = 0; lane < kBytes / 8; ++lane) all ^= sum[0][lane];
  return static_cast<double>(all);
}

}  // namespace
}  // namespace trireme::machine
