// Rounding to 8 bits: one pass finds the largest number, another rounds. The first begins at the end, which was written
// last, and the second at the beginning, which was read last, because that still lies in the cache. A transposed result goes through shared memory,
// so that both sides are read and written in lines.
#include "trireme/ops/products/float8_cuda.h"

#include <cuda_fp8.h>

#include "trireme/ops/cuda/rows-inl.h"

namespace trireme::ops::cuda {
namespace {

using Eight = Chunk<__nv_bfloat16, 8>;

constexpr int kLargestThreads = 256;
constexpr int64_t kLargestRow = 4096;  // how contiguous numbers are divided among blocks

__global__ void __launch_bounds__(kLargestThreads)
    largest_kernel(uint32_t* largest, const __nv_bfloat16* x, int64_t rows, int64_t columns, int64_t row_stride) {
  uint32_t most = 0;
  for (int64_t row = rows - 1 - blockIdx.x; row >= 0; row -= gridDim.x)
    for (int64_t column = 8 * threadIdx.x; column < columns; column += 8 * kLargestThreads) {
      const Eight v = load<8>(x + row * row_stride + column);
      for (int i = 0; i < 8; ++i) {
        const uint32_t bits = __float_as_uint(to_wide(v.of[i])) & 0x7FFFFFFF;
        most = most > bits ? most : bits;
      }
    }
  most = warp_max(most);
  __shared__ uint32_t of_warp[kLargestThreads / kWarp];
  if (threadIdx.x % kWarp == 0) of_warp[threadIdx.x / kWarp] = most;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (const uint32_t other : of_warp) most = most > other ? most : other;
  atomicMax(largest, most < 0x7F800000 ? most : 0x7F800000);
}

/// What rounds numbers; made by every thread.
struct Rounding8 {
  float inverse;
  __nv_fp8_interpretation_t format;
  __device__ Rounding8(Float8Figures* figures, Float8 to)
      : format(to == Float8::e4m3 ? __NV_E4M3 : __NV_E5M2) {
    const float scale = float8_scale(__uint_as_float(figures->largest), traits_of(to).largest_exponent);
    inverse = 1 / scale;
    if (blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0 && threadIdx.y == 0) figures->scale = scale;
  }
  __device__ float scaled(__nv_bfloat16 x) const {
    const float value = to_wide(x) * inverse;
    return isinf(value) ? __uint_as_float(0x7FC00000) : value;
  }
  __device__ uint16_t operator()(__nv_bfloat16 first, __nv_bfloat16 second) const {
    return __nv_cvt_float2_to_fp8x2(make_float2(scaled(first), scaled(second)), __NV_SATFINITE, format);
  }
};

__global__ void __launch_bounds__(256)
    round_kernel(uint8_t* to, Float8Figures* figures, const __nv_bfloat16* x, int64_t rows, int64_t columns,
                 int64_t row_stride, Float8 format) {
  const Rounding8 rounding(figures, format);
  const int64_t row = int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  const int64_t column = 16 * (int64_t{blockIdx.y} * blockDim.x + threadIdx.x);
  if (row >= rows || column >= columns) return;
  const __nv_bfloat16* from = x + row * row_stride + column;
  const Eight a = load<8>(from), b = load<8>(from + 8);
  Chunk<uint16_t, 8> result;
  for (int i = 0; i < 4; ++i) {
    result.of[i] = rounding(a.of[2 * i], a.of[2 * i + 1]);
    result.of[4 + i] = rounding(b.of[2 * i], b.of[2 * i + 1]);
  }
  store(reinterpret_cast<uint16_t*>(to + row * columns + column), result);
}

constexpr int kTileRows = 128, kTileColumns = 64;  // a thread has four rows of eight numbers

__global__ void __launch_bounds__(256)
    round_transposed_kernel(uint8_t* to, Float8Figures* figures, const __nv_bfloat16* x, int64_t rows, int64_t columns,
                            int64_t row_stride, Float8 format) {
  __shared__ uint32_t tile[kTileColumns][kTileRows / 4 + 1];  // four rows of a column
  const Rounding8 rounding(figures, format);
  const int64_t first_row = int64_t{blockIdx.x} * kTileRows, first_column = int64_t{blockIdx.y} * kTileColumns;
  const int of_columns = static_cast<int>(threadIdx.x % 8) * 8, of_rows = static_cast<int>(threadIdx.x / 8);
  const int64_t row = first_row + 4 * of_rows, column = first_column + of_columns;
  if (row < rows && column < columns) {
    Eight v[4];
    for (int i = 0; i < 4; ++i) v[i] = load<8>(x + (row + i) * row_stride + column);
    for (int c = 0; c < 8; ++c)
      tile[of_columns + c][of_rows] =
          rounding(v[0].of[c], v[1].of[c]) | uint32_t{rounding(v[2].of[c], v[3].of[c])} << 16;
  }
  __syncthreads();
  const int word = static_cast<int>(threadIdx.x % kWarp);
  if (first_row + 4 * word >= rows) return;
  for (int c = static_cast<int>(threadIdx.x / kWarp); c < kTileColumns && first_column + c < columns; c += 256 / kWarp)
    *reinterpret_cast<uint32_t*>(to + (first_column + c) * rows + first_row + 4 * word) = tile[c][word];
}

}  // namespace

void round_to_float8(uint8_t* to, Float8Figures* figures, const void* from, int64_t rows, int64_t columns,
                     int64_t row_stride, Float8 format, bool transposed) {
  const auto* x = static_cast<const __nv_bfloat16*>(from);
  check(cudaMemsetAsync(figures, 0, sizeof *figures, current_stream()), "rounding to 8 bits");
  const int64_t all = rows * columns;
  const bool whole = row_stride == columns && all % kLargestRow == 0;
  const int64_t pieces = whole ? all / kLargestRow : rows, width = whole ? kLargestRow : columns;
  largest_kernel<<<static_cast<uint32_t>(std::min(pieces, 8 * kMultiprocessors)), kLargestThreads, 0,
                   current_stream()>>>(&figures->largest, x, pieces, width, whole ? kLargestRow : row_stride);
  if (transposed) {
    const dim3 grid(static_cast<uint32_t>(divided_up(rows, kTileRows)),
                    static_cast<uint32_t>(divided_up(columns, kTileColumns)));
    round_transposed_kernel<<<grid, 256, 0, current_stream()>>>(to, figures, x, rows, columns, row_stride, format);
  } else {
    // Contiguous numbers are one row for every 16 * 32 of them, if they can be.
    const int64_t short_row = 16 * kWarp;
    const bool flat = row_stride == columns && all % short_row == 0;
    const int64_t lines = flat ? all / short_row : rows, length = flat ? short_row : columns;
    const dim3 block(kWarp, 8), grid(static_cast<uint32_t>(divided_up(lines, 8)),
                                     static_cast<uint32_t>(divided_up(length, short_row)));
    round_kernel<<<grid, block, 0, current_stream()>>>(to, figures, x, lines, length, flat ? short_row : row_stride,
                                                       format);
  }
  check_launch("rounding to 8 bits");
}

}  // namespace trireme::ops::cuda
