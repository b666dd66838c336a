// Products with AVX2, FMA and F16C: a vector of 16 floats is two registers. The bits are those of the float32 kernel
// with AVX-512.
#pragma once

#include <immintrin.h>

#include "trireme/ops/products/panels-inl.h"

namespace trireme::ops {
namespace {

struct Floats {
  __m256 low, high;
};

struct Gemm256 {
  using Wide = Gemm256;
  using Unit = float;
  using Vec = Floats;
  using UnitVec = Floats;
  static constexpr int64_t kPair = 1, kElementBytes = 4;
  // 12 of 16 registers are sums. The block of B stays in a level-2 cache of 512 KiB.
  static constexpr int kStrip = 6, kPanel = 16, kFromMemory = 0;
  static constexpr int64_t kDepth = 256, kDepthPacked = kDepth, kBlock = 256, kKeptColumns = 256;
  static constexpr bool kPacksA = true, kLoadsAhead = false, kStartsFromSums = false;
  static constexpr int64_t kAheadUnits = 4;
  static constexpr bool kPacksStrips = false, kWidensInTiles = false, kTakesManyRows = false;
  static constexpr int64_t kRowBytes = 4 * (kDepthPacked + kLanes);

  /// What load_first() and store_first() take: how many lanes.
  static int64_t first(int64_t lanes) { return lanes; }
  static __m256i mask(int64_t lanes) {
    alignas(64) static constexpr int kOnes[16] = {-1, -1, -1, -1, -1, -1, -1, -1};
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(kOnes + 8 - smaller(8, larger(0, lanes))));
  }
  static Vec zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
  static Vec add(Vec a, Vec b) { return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)}; }
  static Vec multiply(Vec a, Vec b) { return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)}; }
  static void fetch(const char* ahead, int64_t at, int64_t bytes) {
    if (ahead != nullptr)
      for (int64_t byte = 0; byte < bytes; byte += 64) __builtin_prefetch(ahead + at + byte, 0, 2);
  }
  static Vec load_first(const float* from, int64_t lanes) {
    if (lanes >= kLanes) return load_units(from);
    return {_mm256_maskload_ps(from, mask(lanes)), _mm256_maskload_ps(from + 8, mask(lanes - 8))};
  }
  static void store_first(float* to, Vec v, int64_t lanes) {
    if (lanes >= kLanes) return store_units(to, v);  // masked stores are slow on AMD's
    _mm256_maskstore_ps(to, mask(lanes), v.low);
    _mm256_maskstore_ps(to + 8, mask(lanes - 8), v.high);
  }

  static UnitVec load_units(const Unit* from) { return {_mm256_loadu_ps(from), _mm256_loadu_ps(from + 8)}; }
  static void store_units(Unit* to, UnitVec units) {
    _mm256_storeu_ps(to, units.low);
    _mm256_storeu_ps(to + 8, units.high);
  }
  static UnitVec broadcast(const char* from) {
    const __m256 all = _mm256_broadcast_ss(reinterpret_cast<const float*>(from));
    return {all, all};
  }
  // In assembly for the reason in floats_avx512-inl.h.
  static Vec multiply_add(Vec sum, UnitVec a, UnitVec b) {
    asm("vfmadd231ps %2, %1, %0" : "+x"(sum.low) : "x"(a.low), "x"(b.low));
    asm("vfmadd231ps %2, %1, %0" : "+x"(sum.high) : "x"(a.high), "x"(b.high));
    return sum;
  }
  static Vec multiply_add_broadcast(Vec sum, const char* a, UnitVec b) { return multiply_add(sum, broadcast(a), b); }
  static void store_narrow(uint16_t*, Vec, int64_t) {}  // C is float32

  static Floats load_row(const char* from, int64_t count) {
    return load_first(reinterpret_cast<const float*>(from), count);
  }
  /// 16 units from the first `count` elements of a row, zero beyond.
  template <class M>
  static void pack_row(Unit* to, const char* from, int64_t count) {
    store_units(to, M::load_row(from, count));
  }
  static void pack_vector(Unit* to, const char* from, int64_t, int64_t count) { pack_row<Gemm256>(to, from, count); }

  /// The first `count` elements of one row of a transposed A as units of its strips. A vector has more lanes than a
  /// strip: the rest is written after the strip, where the next write or the line between two strips is.
  template <class M>
  static void pack_group(Unit* to, int64_t strip_units, const char* from, int64_t, int64_t count, bool) {
    for (int64_t r = 0; r < count; r += M::kStrip, to += strip_units)
      M::pack_vector(to, from + r * M::kElementBytes, 0, count - r);
  }

  /// to [columns, 16] with stride to_ld = the transpose of `rows` rows of `columns` units that M::load_row reads;
  /// missing rows are zero. Strips have fewer than 8 rows, and get no more. Unless `ahead` is null, prefetches as many
  /// rows from there.
  template <class M>
  static void transpose(Unit* to, int64_t to_ld, const char* from, int64_t row_bytes, int64_t rows, int64_t columns,
                        const char* ahead) {
    if (ahead != nullptr)
      for (int64_t i = 0; i < rows; ++i) __builtin_prefetch(ahead + i * row_bytes);
    Floats row[16];
    for (int i = 0; i < 16; ++i) row[i] = i < rows ? M::load_row(from + i * row_bytes, columns) : zero();
    for (int half = 0; half < 2 && 8 * half < columns; ++half) {
      __m256 column[2][8];
      const int wide = to_ld < kLanes ? 1 : 2;
      for (int group = 0; group < wide; ++group) {
        for (int i = 0; i < 8; ++i) column[group][i] = half == 0 ? row[8 * group + i].low : row[8 * group + i].high;
        transpose_8(column[group]);
      }
      for (int i = 0; i < 8 && 8 * half + i < columns; ++i)
        for (int group = 0; group < wide; ++group)
          _mm256_storeu_ps(to + (8 * half + i) * to_ld + 8 * group, column[group][i]);
    }
  }
  static void transpose_8(__m256 (&x)[8]) {
    __m256 y[8];
    for (int i = 0; i < 8; i += 2) {
      y[i] = _mm256_unpacklo_ps(x[i], x[i + 1]);
      y[i + 1] = _mm256_unpackhi_ps(x[i], x[i + 1]);
    }
    // x[4 g + c]: in each half of 4 lanes, one column of rows 4 g .. 4 g + 3.
    for (int g = 0; g < 8; g += 4) {
      x[g] = _mm256_shuffle_ps(y[g], y[g + 2], 0x44), x[g + 1] = _mm256_shuffle_ps(y[g], y[g + 2], 0xee);
      x[g + 2] = _mm256_shuffle_ps(y[g + 1], y[g + 3], 0x44), x[g + 3] = _mm256_shuffle_ps(y[g + 1], y[g + 3], 0xee);
    }
    for (int c = 0; c < 4; ++c) {
      y[c] = _mm256_permute2f128_ps(x[c], x[4 + c], 0x20);
      y[4 + c] = _mm256_permute2f128_ps(x[c], x[4 + c], 0x31);
    }
    for (int i = 0; i < 8; ++i) x[i] = y[i];
  }

  static Vec round_value(Vec v) { return v; }

  static constexpr CodeOrder kCodeOrder = CodeOrder::quarters;
  static constexpr bool kRoundsHalfUp = false;
  /// A panel has one vector of columns, and a sum cannot take the next product in the cycles of a multiply-add. So one
  /// row meets two panels in blocks at once, or four whose elements have two bytes.
  static constexpr int kPanelsAtOnce = 2, kNarrowPanelsAtOnce = 4;

  /// Byte b of each of the 16 values that nibbles stand for, in both halves of a register.
  struct Lookup {
    __m256i bytes[4];
  };
  template <PanelCode kCode>
  static Lookup lookup(const float* code) {
    alignas(64) static constexpr float kNumbers[16] = {-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7};
    const auto* from = reinterpret_cast<const __m128i*>(kCode == PanelCode::values ? code : kNumbers);
    const __m128i by_byte = _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    __m128i x[4], y[4];
    for (int i = 0; i < 4; ++i) x[i] = _mm_shuffle_epi8(_mm_loadu_si128(from + i), by_byte);
    for (int i = 0; i < 2; ++i) {
      y[i] = _mm_unpacklo_epi32(x[2 * i], x[2 * i + 1]);
      y[2 + i] = _mm_unpackhi_epi32(x[2 * i], x[2 * i + 1]);
    }
    Lookup to;
    for (int i = 0; i < 2; ++i) {
      to.bytes[2 * i] = _mm256_broadcastsi128_si256(_mm_unpacklo_epi64(y[2 * i], y[2 * i + 1]));
      to.bytes[2 * i + 1] = _mm256_broadcastsi128_si256(_mm_unpackhi_epi64(y[2 * i], y[2 * i + 1]));
    }
    return to;
  }

  /// Calls write(k, v, units) for elements [first, last) of k, multiples of 8, of the blocks of `Vectors` panels, of
  /// which each begins `next` bytes after the one before. 32 bytes are two elements of 16 columns in 8 bits, or four.
  template <class M, int Vectors, PanelCode kCode, class Write>
  __attribute__((always_inline)) static void each_element(const Lookup& lookup, const char* block, int64_t next,
                                                          int64_t first, int64_t last, const char* ahead,
                                                          const Write& write) {
    constexpr PanelBlocks kBlocks = blocks_of(kCode);
    Floats scale[Vectors];
#pragma GCC unroll 2
    for (int v = 0; v < Vectors; ++v) scale[v] = block_scale<kCode>(block + v * next);
    const char* codes = block + kLanes * kBlocks.scale_bytes;
    for (int64_t k = first; k < last; k += 8) {
#pragma GCC unroll 2
      for (int v = 0; v < Vectors; ++v)
        fetch(ahead == nullptr ? nullptr : ahead + v * next, k * kLanes * kBlocks.bits / 8, kLanes * kBlocks.bits);
#pragma GCC unroll 4
      for (int i = 0; i < 8; i += 16 / kBlocks.bits)
#pragma GCC unroll 2
        for (int v = 0; v < Vectors; ++v)
          each_of_32_bytes<M, kCode>(lookup, codes + v * next + (k + i) * kLanes * kBlocks.bits / 8, scale[v],
                                     [&](int j, Vec x) __attribute__((always_inline)) { write(k + i + j, v, x); });
    }
  }

  template <PanelCode kCode>
  static Floats block_scale(const char* block) {
    if constexpr (kCode == PanelCode::values) return load_units(reinterpret_cast<const float*>(block));
    const auto* halves = reinterpret_cast<const __m128i*>(block);
    return {_mm256_cvtph_ps(_mm_loadu_si128(halves)), _mm256_cvtph_ps(_mm_loadu_si128(halves + 1))};
  }

  template <class M, PanelCode kCode, class Write>
  __attribute__((always_inline)) static void each_of_32_bytes(const Lookup& lookup, const char* codes,
                                                              const Floats& scale, const Write& write) {
    if constexpr (kCode == PanelCode::bytes)
      for (int i = 0; i < 2; ++i) write(i, multiply(numbers(codes + i * kLanes), scale));
    else
      each_nibble<kCode>(lookup, codes, [&](int i, Floats x) __attribute__((always_inline)) {
        const Floats value = multiply_from_memory(x, scale);
        write(i, kCode == PanelCode::values ? M::round_value(value) : value);
      });
  }

  /// 16 bytes as whole numbers.
  static Floats numbers(const char* bytes) {
    const auto eight = [](const char* from) {
      return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from))));
    };
    return {eight(bytes), eight(bytes + 8)};
  }

  /// In assembly, because compilers would load scales into registers that lookups need.
  static Floats multiply_from_memory(Floats a, const Floats& b) {
    Floats product;
    asm("vmulps %2, %1, %0" : "=x"(product.low) : "x"(a.low), "m"(b.low));
    asm("vmulps %2, %1, %0" : "=x"(product.high) : "x"(a.high), "m"(b.high));
    return product;
  }

  /// Calls write(i, values) for the 16 columns of each of four elements, whose nibbles are the 32 bytes at `codes`:
  /// those of 0 and 1 are the lower ones. Values are looked up byte by byte. Numbers have no bits in their lower two
  /// bytes.
  template <PanelCode kCode, class Write>
  __attribute__((always_inline)) static void each_nibble(const Lookup& lookup, const char* codes, const Write& write) {
    const __m256i both = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes)), low = _mm256_set1_epi8(15);
    const __m256i nibbles[2] = {_mm256_and_si256(both, low), _mm256_and_si256(_mm256_srli_epi16(both, 4), low)};
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
      const auto byte = [&](int b)
                            __attribute__((always_inline)) { return _mm256_shuffle_epi8(lookup.bytes[b], nibbles[i]); };
      const auto put = [&](int element, __m256i lower, __m256i upper) __attribute__((always_inline)) {
        write(element, Floats{_mm256_castsi256_ps(_mm256_unpacklo_epi16(lower, upper)),
                              _mm256_castsi256_ps(_mm256_unpackhi_epi16(lower, upper))});
      };
      const __m256i byte_2 = byte(2), byte_3 = byte(3);
      const __m256i upper = _mm256_unpacklo_epi8(byte_2, byte_3), last_upper = _mm256_unpackhi_epi8(byte_2, byte_3);
      if constexpr (kCode == PanelCode::values) {
        const __m256i byte_0 = byte(0), byte_1 = byte(1);
        put(2 * i, _mm256_unpacklo_epi8(byte_0, byte_1), upper);
        put(2 * i + 1, _mm256_unpackhi_epi8(byte_0, byte_1), last_upper);
      } else {
        put(2 * i, _mm256_setzero_si256(), upper);
        put(2 * i + 1, _mm256_setzero_si256(), last_upper);
      }
    }
  }
};

/// The two registers' parts of a vector, one after the other.
template <class Function>
inline Floats each_half(Floats v, const Function& function) {
  return {function(v.low), function(v.high)};
}

/// 16 elements of two bytes of which the first `count` are read.
inline __m256i load_narrow(const char* from, int64_t count) {
  if (count >= kLanes) return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  alignas(32) uint16_t all[kLanes] = {};
  for (int64_t i = 0; i < count; ++i) __builtin_memcpy(all + i, from + 2 * i, 2);
  return _mm256_load_si256(reinterpret_cast<const __m256i*>(all));
}

inline void store_first_narrow(uint16_t* to, __m256i narrow, int64_t count) {
  if (count >= kLanes) return _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), narrow);
  alignas(32) uint16_t all[kLanes];
  _mm256_store_si256(reinterpret_cast<__m256i*>(all), narrow);
  for (int64_t i = 0; i < count; ++i) to[i] = all[i];
}

/// bfloat16, widened while it is packed.
struct Bfloat16s256 : Gemm256 {
  static constexpr int64_t kElementBytes = 2;

  static __m256 widen(__m128i bits) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16)); }
  static Floats widen(__m256i bits) {
    return {widen(_mm256_castsi256_si128(bits)), widen(_mm256_extracti128_si256(bits, 1))};
  }
  static Floats load_row(const char* from, int64_t count) { return widen(load_narrow(from, count)); }
  static void pack_vector(Unit* to, const char* from, int64_t, int64_t count) {
    pack_row<Bfloat16s256>(to, from, count);
  }

  /// 16 columns of a panel lie there as unpacking with zeros needs them: columns 4 to 7 and 8 to 11 have changed
  /// places. That is so cheap that all tiles of a packed B widen what they multiply.
  static constexpr bool kWidensInTiles = true;
  static UnitVec widen_units(const uint16_t* from) {
    // In assembly, because compilers would load the elements by an instruction of its own. A tile has few to spare.
    const __m256i zero = _mm256_setzero_si256();
    Floats to;
    asm("vpunpcklwd %2, %1, %0" : "=x"(to.low) : "x"(zero), "m"(*reinterpret_cast<const __m256i_u*>(from)));
    asm("vpunpckhwd %2, %1, %0" : "=x"(to.high) : "x"(zero), "m"(*reinterpret_cast<const __m256i_u*>(from)));
    return to;
  }
  static void store_panel(uint16_t* to, UnitVec units) {
    const auto half = [](__m256 x) { return _mm256_srli_epi32(_mm256_castps_si256(x), 16); };
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm256_packus_epi32(half(units.low), half(units.high)));
  }

  static constexpr bool kRoundsHalfUp = true;  // as with AVX-512 without BF16
  static Vec round_value(Vec v) {
    return each_half(v, [](__m256 x) {
      const __m256i up = _mm256_add_epi32(_mm256_castps_si256(x), _mm256_set1_epi32(0x8000));
      return _mm256_castsi256_ps(_mm256_and_si256(up, _mm256_set1_epi32(static_cast<int>(0xffff0000u))));
    });
  }
  /// The bits of a finite number that is rounded to nearest even, in the upper halves.
  static __m256i rounded(__m256i bits) {
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    return _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
  }
  /// Rounds to nearest even, as narrow() in storage.h; a NaN stays a NaN.
  static void store_narrow(uint16_t* to, Vec v, int64_t lanes) {
    const auto half = [](__m256 x) {
      const __m256i bits = _mm256_castps_si256(x), nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
      return _mm256_srli_epi32(
          _mm256_blendv_epi8(rounded(bits), _mm256_or_si256(bits, _mm256_set1_epi32(0x400000)), nan), 16);
    };
    // Packing takes turns between the two: the middle quarters change places.
    store_first_narrow(to, _mm256_permute4x64_epi64(_mm256_packus_epi32(half(v.low), half(v.high)), 0xd8), lanes);
  }
};

/// float16, widened while it is packed.
struct Halves256 : Gemm256 {
  static constexpr int64_t kElementBytes = 2;

  static Floats widen(__m256i bits) {
    return {_mm256_cvtph_ps(_mm256_castsi256_si128(bits)), _mm256_cvtph_ps(_mm256_extracti128_si256(bits, 1))};
  }
  static UnitVec widen_units(const uint16_t* from) {
    return widen(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  }
  static Floats load_row(const char* from, int64_t count) { return widen(load_narrow(from, count)); }
  static void pack_vector(Unit* to, const char* from, int64_t, int64_t count) { pack_row<Halves256>(to, from, count); }

  /// Rounds to nearest even.
  static __m256i round(Vec v) {
    constexpr int kHow = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    return _mm256_set_m128i(_mm256_cvtps_ph(v.high, kHow), _mm256_cvtps_ph(v.low, kHow));
  }
  static Vec round_value(Vec v) { return widen(round(v)); }
  static void store_narrow(uint16_t* to, Vec v, int64_t lanes) { store_first_narrow(to, round(v), lanes); }
};

}  // namespace
}  // namespace trireme::ops
