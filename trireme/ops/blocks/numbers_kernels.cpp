// Widening of codes that are whole numbers (GGUF's), a vector at a time.
#include "trireme/ops/blocks/widen-inl.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "trireme/ops/blocks/numbers_kernels.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes before every header that is compiled per target.
#include "trireme/ops/simd/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace trireme::ops::HWY_NAMESPACE {
namespace {

template <class T>
HWY_INLINE void widen_bytes(float scale, const int8_t* codes, T* to, int64_t count) {
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> d32;
  const hn::Rebind<int8_t, decltype(d)> d8;
  const auto factor = hn::Set(d, scale);
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes)
    store(d, hn::Mul(hn::ConvertTo(d, hn::PromoteTo(d32, hn::LoadU(d8, codes + i))), factor), to + i, Full{});
  for (; i < count; ++i) {
    const float value = static_cast<float>(codes[i]) * scale;
    to[i] = narrow<T>(value);
  }
}

template <class T>
HWY_INLINE void widen_rows(const BlockMatrix& matrix, int64_t row, int64_t rows, int64_t column, int64_t columns,
                           void* to, int64_t ld) {
  for_each_block(matrix, row, rows, column, columns, ld,
                 [&](float scale, const uint8_t* codes, int64_t at, int64_t count) HWY_ATTR {
                   T* out = static_cast<T*>(to) + at;
                   if (matrix.bits == 8) return widen_bytes(scale, reinterpret_cast<const int8_t*>(codes), out, count);
                   int8_t numbers[kMostBlockValues];
                   for (int64_t i = 0; i < count / 2; ++i) {
                     numbers[2 * i] = static_cast<int8_t>((codes[i] >> 4) - 8);
                     numbers[2 * i + 1] = static_cast<int8_t>((codes[i] & 15) - 8);
                   }
                   widen_bytes(scale, numbers, out, count);
                 });
}

void to_float(const BlockMatrix& matrix, int64_t row, int64_t rows, int64_t column, int64_t columns, void* to,
              int64_t ld) {
  widen_rows<float>(matrix, row, rows, column, columns, to, ld);
}
void to_bfloat16(const BlockMatrix& matrix, int64_t row, int64_t rows, int64_t column, int64_t columns, void* to,
                 int64_t ld) {
  widen_rows<bfloat16>(matrix, row, rows, column, columns, to, ld);
}
void to_half(const BlockMatrix& matrix, int64_t row, int64_t rows, int64_t column, int64_t columns, void* to,
             int64_t ld) {
  widen_rows<float16>(matrix, row, rows, column, columns, to, ld);
}

}  // namespace
}  // namespace trireme::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trireme::ops {
namespace {
HWY_EXPORT(to_float);
HWY_EXPORT(to_bfloat16);
HWY_EXPORT(to_half);
}  // namespace

// Functions without captures, so that they are there before anything runs.
const WidenRows kWidenNumbersFloat = [](const BlockMatrix& matrix, int64_t row, int64_t rows, int64_t column,
                                        int64_t columns, void* to, int64_t ld) {
  HWY_DYNAMIC_DISPATCH(to_float)(matrix, row, rows, column, columns, to, ld);
};
const WidenRows kWidenNumbersBfloat16 = [](const BlockMatrix& matrix, int64_t row, int64_t rows, int64_t column,
                                           int64_t columns, void* to, int64_t ld) {
  HWY_DYNAMIC_DISPATCH(to_bfloat16)(matrix, row, rows, column, columns, to, ld);
};
const WidenRows kWidenNumbersHalf = [](const BlockMatrix& matrix, int64_t row, int64_t rows, int64_t column,
                                       int64_t columns, void* to, int64_t ld) {
  HWY_DYNAMIC_DISPATCH(to_half)(matrix, row, rows, column, columns, to, ld);
};
}  // namespace trireme::ops
#endif
