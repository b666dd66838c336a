// Attention with AVX2 and FMA: 32-byte vectors. bfloat16 and float16 are widened while packing.
#include <immintrin.h>

#include "trireme/ops/attention/kernels-inl.h"

namespace trireme::ops {
namespace {

/// PlainMath, but for what compilers make single elements of: keys are transposed by eights, and bfloat16 is widened
/// whole. For texts that are written, this is most of attention.
struct Float256 : PlainMath<float, 32, 3> {
  static constexpr bool kTransposes = true;
  using PlainMath::widen_load;

  static Vec widen_load(const Bfloat16* p) {
    const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return reinterpret_cast<Vec>(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
  }
  /// The first `count` elements as units, and zeros after them. Reads nothing beyond.
  template <class Storage>
  static Vec load_units(const Storage* p, int64_t count) {
    if (count >= kLanes) return widen_load(p);
    Vec some = splat(0);
    for (int64_t i = 0; i < count; ++i) some[i] = widen(p[i]);
    return some;
  }
  /// Row u of `to` = lane u of the eight vectors, for u < count.
  static void transpose(float* to, int64_t stride, const Vec (&rows)[8], int64_t count) {
    __m256 x[8], y[8];
    for (int i = 0; i < 8; i += 2) {
      y[i] = _mm256_unpacklo_ps(rows[i], rows[i + 1]);
      y[i + 1] = _mm256_unpackhi_ps(rows[i], rows[i + 1]);
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
    for (int u = 0; u < 8 && u < count; ++u) store(to + u * stride, y[u]);
  }
};

}  // namespace

const AttentionKernel kAttentionAvx2{
    "avx2",
    {nullptr, forward_task<Float256, float>, forward_task<Float256, Bfloat16>, forward_task<Float256, Float16>},
    {nullptr, backward_task<Float256, float>, backward_task<Float256, Bfloat16>, backward_task<Float256, Float16>},
    {nullptr, write_rows<Float256, float>, write_rows<Float256, Bfloat16>, write_rows<Float256, Float16>},
    {nullptr, paged_task<Float256, float>, paged_task<Float256, Bfloat16>, paged_task<Float256, Float16>}};

}  // namespace trireme::ops
