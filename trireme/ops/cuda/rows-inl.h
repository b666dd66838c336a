// The common part of kernels that process rows: chunks of neighbouring elements, a launch with one thread per chunk,
// and sums over rows. A sum over rows has two stages: blocks of rows write partial sums in the wide type, and combine()
// adds them. The number of partial sums depends on the sizes alone, so that bits repeat.
#pragma once

#include <algorithm>

#include "trireme/ops/cuda/device-inl.h"
#include "trireme/ops/cuda/kernels.h"

namespace trireme::ops::cuda {

constexpr int64_t kMultiprocessors = 132;  ///< launches are sized for an H100; other GPUs take more or fewer turns

constexpr int64_t divided_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// kSize neighbouring elements. Up to 16 bytes are loaded and stored by one instruction, and begin at a multiple of
/// their size.
template <class T, int kSize>
struct alignas(kSize * sizeof(T) < 16 ? kSize * sizeof(T) : 16) Chunk {
  T of[kSize];
};
template <int kSize, class T>
__device__ Chunk<T, kSize> load(const T* from) {
  return *reinterpret_cast<const Chunk<T, kSize>*>(from);
}
template <class T, int kSize>
__device__ void store(T* to, const Chunk<T, kSize>& chunk) {
  *reinterpret_cast<Chunk<T, kSize>*>(to) = chunk;
}

/// Calls body.template operator()<T, kSize>(): with packs where they fit, otherwise with single elements.
template <class Body>
void with_chunks(Storage storage, const Body& body, int64_t width, auto... pointers) {
  with_device_type(storage, [&]<class T>() {
    if (packs_fit<T>(width, pointers...))
      body.template operator()<T, Pack<T>::kSize>();
    else
      body.template operator()<T, 1>();
  });
}

/// Calls body(row, k) for each k < count of each row, each call in a thread of its own. A block has blockDim.y rows.
template <class Body>
__global__ void __launch_bounds__(256) each_chunk(Body body, int64_t rows, int64_t count, uint32_t blocks_per_row) {
  const int64_t row = int64_t{blockIdx.x / blocks_per_row} * blockDim.y + threadIdx.y;
  const int64_t k = int64_t{blockIdx.x % blocks_per_row} * blockDim.x + threadIdx.x;
  if (row < rows && k < count) body(row, k);
}
template <class Body>
void for_each_chunk(const char* what, int64_t rows, int64_t count, const Body& body) {
  if (rows == 0 || count == 0) return;
  uint32_t across = kWarp;
  while (across < 256 && across < count) across *= 2;
  const uint32_t down = 256 / across;
  const int64_t blocks_per_row = divided_up(count, across), num_blocks = divided_up(rows, down) * blocks_per_row;
  each_chunk<<<static_cast<uint32_t>(num_blocks), dim3(across, down), 0, current_stream()>>>(
      body, rows, count, static_cast<uint32_t>(blocks_per_row));
  check_launch(what);
}

/// to [width] = the sum over k < num_partials of partials[k stride ..]. Each of 32 rows of threads adds its share of
/// the partials in order, the first adds the shares.
template <class T>
__global__ void __launch_bounds__(1024) combine_kernel(const Arithmetic<T>* partials, int64_t stride,
                                                       int64_t num_partials, int64_t width, T* to, bool accumulate) {
  using W = Arithmetic<T>;
  __shared__ W shares[kWarp][kWarp];
  const int64_t column = int64_t{blockIdx.x} * kWarp + threadIdx.x;
  const int64_t share = (num_partials + kWarp - 1) / kWarp, first = threadIdx.y * share;
  const int64_t last = first + share < num_partials ? first + share : num_partials;
  W sum = 0;
  if (column < width) {
#pragma unroll 8
    for (int64_t k = first; k < last; ++k) sum += partials[k * stride + column];
  }
  shares[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= width) return;
  W total = 0;
  for (int k = 0; k < kWarp; ++k) total += shares[k][threadIdx.x];
  if (accumulate) total += to_wide(to[column]);
  to[column] = to_storage<T>(total);
}

/// Writes the sum of `partials` (wide type) to a gradient of `width`, or adds it, if the gradient is wanted. No
/// partials: 0.
inline void combine(const char* what, const CudaGradient& gradient, const void* partials, int64_t stride,
                    int64_t num_partials, int64_t width) {
  if (gradient.to == nullptr || width == 0) return;
  with_device_type(gradient.dtype, [&]<class T>() {
    combine_kernel<T><<<static_cast<uint32_t>(divided_up(width, kWarp)), dim3(kWarp, kWarp), 0, current_stream()>>>(
        static_cast<const Arithmetic<T>*>(partials), stride, num_partials, width, static_cast<T*>(gradient.to),
        gradient.accumulate);
    check_launch(what);
  });
}

}  // namespace trireme::ops::cuda
