// Widening for every processor: of nibbles the 16 values of a block, and then one of them for each; of bytes each
// number times the scale.
#include "trireme/ops/blocks/widen-inl.h"
#include "trireme/ops/storage.h"

namespace trireme::ops {
namespace {

template <class T>
void widen_bytes(const BlockMatrix& matrix, int64_t row, int64_t rows, int64_t column, int64_t columns, void* to,
                 int64_t ld) {
  for_each_block(matrix, row, rows, column, columns, ld,
                 [&](float scale, const uint8_t* codes, int64_t at, int64_t count) {
                   T* out = static_cast<T*>(to) + at;
                   for (int64_t i = 0; i < count; ++i) {
                     const float value = static_cast<float>(static_cast<int8_t>(codes[i])) * scale;
                     out[i] = narrow<T>(value);
                   }
                 });
}

template <class T>
void widen_rows(const BlockMatrix& matrix, int64_t row, int64_t rows, int64_t column, int64_t columns, void* to,
                int64_t ld) {
  if (matrix.bits == 8) return widen_bytes<T>(matrix, row, rows, column, columns, to, ld);
  for_each_block(matrix, row, rows, column, columns, ld,
                 [&](float scale, const uint8_t* codes, int64_t at, int64_t count) {
                   T values[16];
                   for (int i = 0; i < 16; ++i) {
                     const float value = matrix.code[i] * scale;
                     values[i] = narrow<T>(value);
                   }
                   T* out = static_cast<T*>(to) + at;
                   for (int64_t i = 0; i < count; i += 2) {
                     out[i] = values[codes[i / 2] >> 4];
                     out[i + 1] = values[codes[i / 2] & 15];
                   }
                 });
}

}  // namespace

const WidenRows kWidenFloat = widen_rows<float>, kWidenDouble = widen_rows<double>,
                kWidenBfloat16 = widen_rows<bfloat16>, kWidenHalf = widen_rows<float16>;

}  // namespace trireme::ops
