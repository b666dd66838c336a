// This file is compiled once for each instruction set; TRIREME_FOLD_ISA is the namespace. It must not include anything
// with inline functions: the linker could pick their wide-vector copy for the whole program.
#include "trireme/comm/fold_kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>  // always inlined, so nothing of it can leave this file
#endif

namespace trireme::comm::TRIREME_FOLD_ISA {

namespace {
inline float as_float(uint32_t bits) { return __builtin_bit_cast(float, bits); }
inline uint32_t as_bits(float x) { return __builtin_bit_cast(uint32_t, x); }

// Element types: how each is stored, in which type it is computed, and both conversions.
template <typename T>
struct Plain {
  using Stored = T;
  using Computed = T;
  static T load(T x) { return x; }
  static T store(T x) { return x; }
};
// Signed sums wrap around; plain C++ leaves an overflow undefined.
template <typename T, typename Unsigned>
struct Integer {
  using Stored = T;
  using Computed = T;
  static T load(T x) { return x; }
  static T store(T x) { return x; }
  static T add(T a, T b) {
    return static_cast<T>(static_cast<Unsigned>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b)));
  }
};
struct Bf16 {
  using Stored = uint16_t;
  using Computed = float;
  static float load(uint16_t x) { return as_float(static_cast<uint32_t>(x) << 16); }
  static uint16_t store(float x) {
    const uint32_t bits = as_bits(x);
    const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    return static_cast<uint16_t>(x != x ? 0x7fc0u : rounded);
  }
};
// Branch-free conversions after M. Dukhan's FP16 library (the one ATen uses too).
struct F16 {
  using Stored = uint16_t;
  using Computed = float;
  static float load(uint16_t x) {
    const uint32_t w = static_cast<uint32_t>(x) << 16, sign = w & 0x80000000u, twice = w + w;
    const float normal = as_float((twice >> 4) + (0xe0u << 23)) * 0x1.0p-112f;
    const float subnormal = as_float((twice >> 17) | (126u << 23)) - 0.5f;
    return as_float(sign | (twice < (1u << 27) ? as_bits(subnormal) : as_bits(normal)));
  }
  static uint16_t store(float x) {
    const uint32_t w = as_bits(x), twice = w + w, sign = w & 0x80000000u;
    const float base = (as_float(w & 0x7fffffffu) * 0x1.0p+112f) * 0x1.0p-110f;
    uint32_t bias = twice & 0xff000000u;
    bias = bias < 0x71000000u ? 0x71000000u : bias;
    const uint32_t bits = as_bits(as_float((bias >> 1) + 0x07800000u) + base);
    const uint32_t magnitude = ((bits >> 13) & 0x00007c00u) + (bits & 0x00000fffu);
    return static_cast<uint16_t>((sign >> 16) | (twice > 0xff000000u ? 0x7e00u : magnitude));
  }
};

template <typename E>
concept HasAdd = requires(typename E::Computed a) { E::add(a, a); };

template <typename E>
inline typename E::Computed add(typename E::Computed a, typename E::Computed b) {
  if constexpr (HasAdd<E>)
    return E::add(a, b);
  else
    return a + b;
}

template <typename Acc, typename In>
void start(void* acc, const void* x, int64_t count) {
  auto* __restrict a = static_cast<typename Acc::Stored*>(acc);
  const auto* __restrict b = static_cast<const typename In::Stored*>(x);
  if constexpr (__is_same(Acc, In))
    __builtin_memcpy(a, b, count * sizeof *a);
  else
    for (int64_t i = 0; i < count; ++i) a[i] = Acc::store(In::load(b[i]));
}

template <typename Acc, typename In>
void sum(void* acc, const void* x, int64_t count) {
  auto* __restrict a = static_cast<typename Acc::Stored*>(acc);
  const auto* __restrict b = static_cast<const typename In::Stored*>(x);
  for (int64_t i = 0; i < count; ++i) a[i] = Acc::store(add<Acc>(Acc::load(a[i]), In::load(b[i])));
}

template <typename Acc, typename In>
void max(void* acc, const void* x, int64_t count) {
  auto* __restrict a = static_cast<typename Acc::Stored*>(acc);
  const auto* __restrict b = static_cast<const typename In::Stored*>(x);
  for (int64_t i = 0; i < count; ++i) {
    const typename Acc::Computed p = Acc::load(a[i]), q = In::load(b[i]);
    a[i] = Acc::store(((p > q) | (p != p)) ? p : q);
  }
}

#if defined(__x86_64__)
// One cache line.
inline void stream_line(char* to, const char* from) {
#if defined(__AVX512F__)
  _mm512_stream_si512(reinterpret_cast<__m512i*>(to), _mm512_loadu_si512(from));
#elif defined(__AVX2__)
  for (int i = 0; i < 64; i += 32)
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to + i),
                        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i)));
#else
  for (int i = 0; i < 64; i += 16)
    _mm_stream_si128(reinterpret_cast<__m128i*>(to + i), _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i)));
#endif
}

inline void store_line(char* to, const char* from) {
#if defined(__AVX512F__)
  _mm512_storeu_si512(to, _mm512_loadu_si512(from));
#else
  for (int i = 0; i < 64; i += 16)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i)));
#endif
}

void stream(void* to, const void* from, int64_t bytes) {
  char* out = static_cast<char*>(to);
  const char* in = static_cast<const char*>(from);
  int64_t head = static_cast<int64_t>(-reinterpret_cast<uintptr_t>(out) & 63);
  head = head < bytes ? head : bytes;
  __builtin_memcpy(out, in, head);
  int64_t i = head;
  for (; i + 64 <= bytes; i += 64) stream_line(out + i, in + i);
  __builtin_memcpy(out + i, in + i, bytes - i);
  _mm_sfence();
}

// Not memcpy, which may use "rep movsb" and so bypass the caches too.
void store(void* to, const void* from, int64_t bytes) {
  char* out = static_cast<char*>(to);
  const char* in = static_cast<const char*>(from);
  int64_t i = 0;
  for (; i + 64 <= bytes; i += 64) store_line(out + i, in + i);
  __builtin_memcpy(out + i, in + i, bytes - i);
}
#else
void stream(void* to, const void* from, int64_t bytes) { __builtin_memcpy(to, from, bytes); }
void store(void* to, const void* from, int64_t bytes) { __builtin_memcpy(to, from, bytes); }
#endif

using F32 = Plain<float>;
using F64 = Plain<double>;
using I64 = Integer<int64_t, uint64_t>;
using I32 = Integer<int32_t, uint32_t>;
using I16 = Integer<int16_t, uint16_t>;
using I8 = Integer<int8_t, uint8_t>;
using U8 = Integer<uint8_t, uint8_t>;

constexpr FoldTable kTable = {
    {start<F32, F32>, start<F64, F64>, start<Bf16, Bf16>, start<F16, F16>, start<I64, I64>, start<I32, I32>,
     start<I16, I16>, start<I8, I8>, start<U8, U8>, start<F32, Bf16>, start<F32, F16>},
    {sum<F32, F32>, sum<F64, F64>, sum<Bf16, Bf16>, sum<F16, F16>, sum<I64, I64>, sum<I32, I32>, sum<I16, I16>,
     sum<I8, I8>, sum<U8, U8>, sum<F32, Bf16>, sum<F32, F16>},
    {max<F32, F32>, max<F64, F64>, max<Bf16, Bf16>, max<F16, F16>, max<I64, I64>, max<I32, I32>, max<I16, I16>,
     max<I8, I8>, max<U8, U8>, max<F32, Bf16>, max<F32, F16>},
    stream,
    store,
};
}  // namespace

const FoldTable& table() { return kTable; }

}  // namespace trireme::comm::TRIREME_FOLD_ISA
