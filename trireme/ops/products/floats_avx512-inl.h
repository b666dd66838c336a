// The products with AVX-512 that multiply float32: float32 itself; bfloat16 that is widened while it is packed; and
// float16, which is widened likewise on all processors: AVX512-FP16 would sum in float16.
#pragma once

#include "trireme/ops/products/math_avx512-inl.h"
#include "trireme/ops/products/panels-inl.h"

namespace trireme::ops {
namespace {

struct GemmFloat : Gemm512 {
  using Wide = GemmFloat;
  using Unit = float;
  using UnitVec = __m512;
  static constexpr int64_t kPair = 1, kElementBytes = 4;
  // Such processors do two multiply-adds a cycle, and a core is often two virtual ones: every other instruction of the
  // loop, and every wait for B, costs time. So A is packed to stay in level 1, B's lines are loaded a step ahead, and
  // the multiply-adds themselves broadcast a third of A (with more than that, loads become the limit).
  static constexpr int kStrip = 12, kPanel = 32, kFromMemory = 3;
  static constexpr int64_t kDepth = 256, kDepthPacked = kDepth, kBlock = 512, kKeptColumns = 256;
  static constexpr bool kPacksA = true, kLoadsAhead = true, kStartsFromSums = false, kPacksStrips = false;
  static constexpr int64_t kRowBytes = 4 * (kDepthPacked + kLanes);

  static UnitVec load_units(const Unit* from) { return _mm512_loadu_ps(from); }
  static void store_units(Unit* to, UnitVec units) { _mm512_storeu_ps(to, units); }
  static Vec round_value(Vec v) { return v; }

  static constexpr CodeOrder kCodeOrder = CodeOrder::lanes;
  static constexpr bool kRoundsHalfUp = false;
  /// Calls write(u, v, units) for vector v of units [first, last) of a block in 4 bits, multiples of 8. A lane of 4
  /// bytes has eight units of its column, the earlier one of two in the high nibble.
  template <class M, int Vectors, class Write>
  __attribute__((always_inline)) static void each_code(const float* code, const float* scales, int64_t first,
                                                       int64_t last, const char* ahead, const Write& write) {
    const __m512 values = _mm512_loadu_ps(code);
    __m512 scale[Vectors];
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) scale[v] = _mm512_loadu_ps(scales + v * kLanes);
    for (int64_t u = first; u < last; u += 8) {
      const auto* codes = reinterpret_cast<const char*>(scales + M::kPanel + u / 8 * M::kPanel);
      fetch(ahead, u / 8 * M::kPanel * 4, M::kPanel * 4);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i)
#pragma GCC unroll 4
        for (int v = 0; v < Vectors; ++v) {
          // A load that begins i bytes later moves byte i down.
          const __m512i both = _mm512_loadu_si512(codes + v * 64 + i), earlier = _mm512_srli_epi32(both, 4);
          write(u + 2 * i, v, M::round_value(_mm512_mul_ps(_mm512_permutexvar_ps(earlier, values), scale[v])));
          write(u + 2 * i + 1, v, M::round_value(_mm512_mul_ps(_mm512_permutexvar_ps(both, values), scale[v])));
        }
    }
  }

  // Whole numbers (code_panels-inl.h) with their scales.
  using Scale = __m512;
  static Scale load_scale(const char* halves) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(halves)));
  }
  static Vec number(__m128i bytes, Scale scale) {
    return _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes)), scale);
  }

  static UnitVec broadcast(const char* from) { return _mm512_set1_ps(*reinterpret_cast<const float*>(from)); }
  // In assembly, because compilers multiply into the register of `a` and then move the sum back, and combine the memory
  // operands of two multiply-adds into one load.
  static Vec multiply_add(Vec sum, UnitVec a, UnitVec b) {
    asm("vfmadd231ps %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
    return sum;
  }
  static Vec multiply_add_broadcast(Vec sum, const char* a, UnitVec b) {
    asm("vfmadd231ps %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(b), "m"(*reinterpret_cast<const float*>(a)));
    return sum;
  }
  static void store_narrow(uint16_t*, Vec, int64_t) {}  // C is float32

  /// 16 units from the first `count` elements of a row, zero beyond.
  static void pack_vector(Unit* to, const char* from, int64_t, int64_t count) {
    _mm512_storeu_ps(to, count >= kLanes ? _mm512_loadu_ps(from) : _mm512_maskz_loadu_ps(first(count), from));
  }

  /// The first `count` elements of one row of a transposed A as units of its strips. A vector has more lanes than a
  /// strip: the rest is written after the strip, where the next write or the line between two strips is.
  template <class M>
  static void pack_group(Unit* to, int64_t strip_units, const char* from, int64_t, int64_t count, bool) {
    for (int64_t r = 0; r < count; r += M::kStrip, to += strip_units)
      M::pack_vector(to, from + r * M::kElementBytes, 0, count - r);
  }
};

/// On processors that multiply bfloat16 too, float32 keeps the tile of their kernel, which is measured on Zen 4.
struct GemmFloatWide : GemmFloat {
  using Wide = GemmFloatWide;
  static constexpr int kStrip = 6, kPanel = 64, kFromMemory = 0;
  static constexpr int64_t kDepth = 1536, kDepthPacked = kGemmDepthPacked, kBlock = kGemmBlockUnits, kKeptColumns = 128;
  static constexpr bool kPacksA = false, kLoadsAhead = false, kStartsFromSums = true, kPacksStrips = true;
  static constexpr int64_t kRowBytes = 0;
};

struct GemmWidened : GemmFloat {
  static constexpr int64_t kElementBytes = 2;

  static __m512i widen(__m256i bits) { return _mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16); }
  static __m512i load_row(const char* from, __mmask16 mask) { return widen(_mm256_maskz_loadu_epi16(mask, from)); }
  static UnitVec widen_units(const uint16_t* from) {
    return _mm512_castsi512_ps(widen(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from))));
  }

  static constexpr bool kRoundsHalfUp = true;
  /// Halves are rounded up: rounding them to even would take as long as all the rest. So panels in 4 bits have scales
  /// that make no halves (packed_blocks.cpp).
  static Vec round_value(Vec v) {
    const __m512i up = _mm512_add_epi32(_mm512_castps_si512(v), _mm512_set1_epi32(0x8000));
    return _mm512_castsi512_ps(_mm512_and_si512(up, _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
  }
  /// Rounds to nearest even, as narrow() in storage.h; a NaN stays a NaN.
  static void store_narrow(uint16_t* to, Vec v, int64_t lanes) {
    const __m512i bits = _mm512_castps_si512(v),
                  odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1)),
                  up = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    const __m512i rounded = _mm512_mask_blend_epi32(_mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), up,
                                                    _mm512_or_si512(bits, _mm512_set1_epi32(0x400000)));
    const __m256i narrow = _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16));
    if (lanes >= kLanes)
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), narrow);  // a masked store of 16-bit lanes is slow
    else
      _mm256_mask_storeu_epi16(to, first(lanes), narrow);
  }

  static void pack_vector(Unit* to, const char* from, int64_t, int64_t count) {
    const __m512i row = count >= kLanes ? widen(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)))
                                        : load_row(from, first(count));
    _mm512_storeu_si512(to, row);
  }
};

/// float16, widened; with Base's tile.
template <class Base>
struct Halves : Base {
  static constexpr int64_t kElementBytes = 2;
  static constexpr bool kPacksA = true;

  static __m512i load_row(const char* from, __mmask16 mask) {
    return _mm512_castps_si512(_mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, from)));
  }
  static __m512 widen_units(const uint16_t* from) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  }

  /// Rounds to nearest even.
  static __m256i round(__m512 v) { return _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  static __m512 round_value(__m512 v) { return _mm512_cvtph_ps(round(v)); }
  static void store_narrow(uint16_t* to, __m512 v, int64_t lanes) {
    const __m256i narrow = round(v);
    if (lanes >= kLanes)
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), narrow);  // a masked store of 16-bit lanes is slow
    else
      _mm256_mask_storeu_epi16(to, Base::first(lanes), narrow);
  }

  static void pack_vector(float* to, const char* from, int64_t, int64_t count) {
    const __m256i row = count >= kLanes ? _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from))
                                        : _mm256_maskz_loadu_epi16(Base::first(count), from);
    _mm512_storeu_ps(to, _mm512_cvtph_ps(row));
  }
};

}  // namespace
}  // namespace trireme::ops
