// The common part of the .cu files: elements of a storage type on the device, vectors of them, sums over a block of
// threads, scratch, the stream, and checked launches. Only nvcc compiles it.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "trireme/base/error.h"
#include "trireme/ops/cuda/scratch.h"
#include "trireme/ops/storage.h"

namespace trireme::ops::cuda {

/// Calls body.template operator()<T>() for the device type T of `storage`: double, float or __nv_bfloat16.
/// Errors    ShapeError for float16, which these kernels do not know
template <class Body>
void with_device_type(Storage storage, const Body& body) {
  switch (storage) {
    case Storage::kFloat64:
      return body.template operator()<double>();
    case Storage::kFloat32:
      return body.template operator()<float>();
    case Storage::kBfloat16:
      return body.template operator()<__nv_bfloat16>();
    case Storage::kFloat16:
      throw ShapeError("float16 has no kernels on a GPU yet; use bfloat16");
  }
}

/// The arithmetic type of a device type.
template <class T>
using Arithmetic = std::conditional_t<std::is_same_v<T, __nv_bfloat16>, float, T>;

__device__ inline double to_wide(double x) { return x; }
__device__ inline float to_wide(float x) { return x; }
__device__ inline float to_wide(__nv_bfloat16 x) { return __bfloat162float(x); }
template <class T>
__device__ T to_storage(Arithmetic<T> x) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>)
    return __float2bfloat16_rn(x);
  else
    return x;
}

/// 16 bytes of elements, loaded and stored by one instruction.
template <class T>
struct alignas(16) Pack {
  static constexpr int kSize = 16 / sizeof(T);
  T of[kSize];
};

/// Whether rows of `width` elements at `pointers` can be read in packs: all begin at multiples of 16 bytes.
template <class T, class... Pointers>
bool packs_fit(int64_t width, Pointers... pointers) {
  return width % Pack<T>::kSize == 0 && (... && (reinterpret_cast<uintptr_t>(pointers) % 16 == 0));
}

/// A product that is rounded by itself. Otherwise the compiler would combine it with a following sum into a
/// multiply-add, and the CPU's kernels do not do this.
__device__ inline float multiplied(float a, float b) { return __fmul_rn(a, b); }
__device__ inline double multiplied(double a, double b) { return __dmul_rn(a, b); }

constexpr int kWarp = 32;

/// The sum (or maximum) over kLanes neighbouring lanes, on each of them, in a fixed order; the whole warp calls it.
template <int kLanes = kWarp, class W>
__device__ W warp_sum(W x) {
  for (int lane = kLanes / 2; lane > 0; lane /= 2) x += __shfl_xor_sync(0xffffffffu, x, lane);
  return x;
}
template <int kLanes = kWarp, class W>
__device__ W warp_max(W x) {
  for (int lane = kLanes / 2; lane > 0; lane /= 2) {
    const W other = __shfl_xor_sync(0xffffffffu, x, lane);
    x = x > other ? x : other;
  }
  return x;
}

/// The sum over a block of kThreads threads, on each of them. All threads call it; `shared` has kThreads / 32 places
/// and may be used again after the next __syncthreads().
template <int kThreads, class W>
__device__ W block_sum(W x, W* shared) {
  x = warp_sum(x);
  if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = x;
  __syncthreads();
  W sum = 0;
  for (int warp = 0; warp < kThreads / kWarp; ++warp) sum += shared[warp];
  return sum;
}

}  // namespace trireme::ops::cuda
