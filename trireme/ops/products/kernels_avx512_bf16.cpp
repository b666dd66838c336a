// bfloat16 products with AVX512-BF16: one instruction multiplies two pairs and adds both to a float32 sum.
#include "trireme/ops/products/math_avx512-inl.h"
#include "trireme/ops/products/panels-inl.h"

namespace trireme::ops {
namespace {

/// The scales of columns 0 to 7 and 8 to 15, each for both elements of a pair.
struct PairScale {
  __m512 low, high;
};
inline PairScale twice(__m512 scales) {
  const __m512i low = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7),
                high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
  return {_mm512_permutexvar_ps(low, scales), _mm512_permutexvar_ps(high, scales)};
}
inline __m512i pairs(__m512 low, __m512 high, const PairScale& scale) {
  return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(_mm512_mul_ps(high, scale.high), _mm512_mul_ps(low, scale.low)));
}

/// Fetches lines of codes into the level-1 cache, unless `ahead` is null: they are read soon, and once.
inline void fetch_codes(const char* ahead, int64_t at, int64_t bytes) {
  if (ahead != nullptr)
    for (int64_t byte = 0; byte < bytes; byte += 64) __builtin_prefetch(ahead + at + byte, 0, 3);
}

/// Calls write(pair, v, units) for vector v of the pairs with elements [first, last) of a block in 4 bits, multiples of
/// 8. A nibble chooses one of 16 `values`. 64 bytes have four pairs of 16 columns: byte i of lane l has the nibble of
/// pair i, column l / 2 and its element l % 2, and above it that of column 8 + l / 2. So the rounding instruction puts
/// both elements of a pair together.
template <int kPanel, int Vectors, class Write>
__attribute__((always_inline)) inline void each_pair(__m512 values, const PairScale (&scale)[Vectors],
                                                     const char* block, int64_t first, int64_t last, const char* ahead,
                                                     const Write& write) {
  for (int64_t k = first; k < last; k += 8) {
    const char* codes = block + k / 8 * kPanel * 4;
    fetch_codes(ahead, k / 8 * kPanel * 4, kPanel * 4);
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v)
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        // A load that begins i bytes later moves byte i down.
        const __m512i both = _mm512_loadu_si512(codes + v * 64 + i);
        const __m512 one = _mm512_permutexvar_ps(both, values),
                     two = _mm512_permutexvar_ps(_mm512_srli_epi32(both, 4), values);
        write(k / 2 + i, v, pairs(one, two, scale[v]));
      }
  }
}

struct GemmBfloat16 : Gemm512 {
  using Wide = GemmBfloat16;
  using Unit = uint32_t;  // the earlier element in the low half
  using UnitVec = __m512i;
  static constexpr int64_t kPair = 2, kElementBytes = 2;
  static constexpr int kStrip = 6, kPanel = 64, kFromMemory = 0;
  static constexpr int64_t kDepth = 1536, kDepthPacked = kGemmDepthPacked, kBlock = kGemmBlockUnits, kKeptColumns = 128;
  static constexpr bool kPacksA = false, kLoadsAhead = false, kStartsFromSums = true;

  static UnitVec load_units(const Unit* from) { return _mm512_loadu_si512(from); }
  static UnitVec broadcast(const char* from) {
    int unit;
    __builtin_memcpy(&unit, from, sizeof unit);
    return _mm512_set1_epi32(unit);
  }
  static Vec multiply_add(Vec sum, UnitVec a, UnitVec b) {
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(b), reinterpret_cast<__m512bh>(a));
  }
  static Vec multiply_add_broadcast(Vec sum, const char* a, UnitVec b) { return multiply_add(sum, broadcast(a), b); }
  static void store_narrow(uint16_t* to, Vec v, int64_t lanes) {
    const auto rounded = reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(v));
    if (lanes >= kLanes)
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), rounded);  // a masked store of 16-bit lanes is slow
    else
      _mm256_mask_storeu_epi16(to, first(lanes), rounded);
  }

  static void fetch(const char* ahead, int64_t at, int64_t bytes) { fetch_codes(ahead, at, bytes); }

  static constexpr CodeOrder kCodeOrder = CodeOrder::pairs;
  static constexpr bool kRoundsHalfUp = false;
  template <class M, int Vectors, class Write>
  __attribute__((always_inline)) static void each_code(const float* code, const float* scales, int64_t first,
                                                       int64_t last, const char* ahead, const Write& write) {
    PairScale scale[Vectors];
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) scale[v] = twice(_mm512_loadu_ps(scales + v * kLanes));
    each_pair<kPanel>(_mm512_loadu_ps(code), scale, reinterpret_cast<const char*>(scales + kPanel), first, last, ahead,
                      write);
  }
  /// Whole numbers of 4 bits, as each_code(): that takes fewer instructions than converting them.
  template <int Vectors, class Write>
  __attribute__((always_inline)) static void each_nibble(const char* block, int64_t first, int64_t last,
                                                         const char* ahead, const Write& write) {
    PairScale scale[Vectors];
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v) scale[v] = load_scale(block + v * kLanes * 2);
    const __m512 values = _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7);
    each_pair<kPanel>(values, scale, block + kPanel * 2, first, last, ahead, write);
  }
  static void store_units(Unit* to, UnitVec units) { _mm512_storeu_si512(to, units); }

  // Whole numbers of 8 bits (code_panels-inl.h) and the scales of all.
  using Scale = PairScale;
  static Scale load_scale(const char* halves) {
    return twice(_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(halves))));
  }
  static UnitVec numbers(__m128i one, __m128i two, const Scale& scale) {
    const auto widened = [](__m128i bytes) { return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes)); };
    return pairs(widened(one), widened(two), scale);
  }

  /// 16 units from the first `count` elements of two rows, zero beyond.
  static void pack_vector(Unit* to, const char* from, int64_t row_bytes, int64_t count) {
    const auto row = [count](const char* x) {
      const __m256i bits = count >= kLanes ? _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x))
                                           : _mm256_maskz_loadu_epi16(first(count), x);
      return _mm512_cvtepu16_epi32(bits);
    };
    _mm512_storeu_si512(to, _mm512_or_si512(row(from), _mm512_slli_epi32(row(from + row_bytes), 16)));
  }

  /// 48 units of x as 8 strips of 6. Unless `exactly`, two more units are written after each, where the next write is.
  static void store_strips(Unit* to, int64_t strip_units, const __m512i* x, bool exactly) {
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    for (int strip = 0; strip < 8; ++strip, to += strip_units) {
      const int from = 6 * strip;
      const __m512i index = _mm512_add_epi32(lane, _mm512_set1_epi32(from % 16));
      const __m256i six = _mm512_castsi512_si256(_mm512_permutex2var_epi32(x[from / 16], index, x[from / 16 + 1]));
      if (exactly)
        _mm256_mask_storeu_epi32(to, 0x3f, six);
      else
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), six);
    }
  }

  /// The first `count` elements of two rows of a transposed A as the units of 8 strips of 6.
  template <class M>
  static void pack_group(Unit* to, int64_t strip_units, const char* from, int64_t row_bytes, int64_t count,
                         bool exactly) {
    __m512i rows[4];
    for (int i = 0; i < 3; ++i) {
      const __mmask16 mask = first(count - 16 * i);
      const __m512i low = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, from + 32 * i));
      const __m512i high = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, from + row_bytes + 32 * i));
      rows[i] = _mm512_or_si512(low, _mm512_slli_epi32(high, 16));
    }
    rows[3] = _mm512_setzero_si512();
    store_strips(to, strip_units, rows, exactly);
  }
};

}  // namespace

const GemmKernel kGemmBfloat16Avx512Bf16 = gemm_kernel<GemmBfloat16>("avx512-bf16");

}  // namespace trireme::ops
