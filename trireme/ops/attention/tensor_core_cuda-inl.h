// The instructions of tensor cores (Ampere and later) that attention uses, each for a whole warp.
//
// A product is C [16, 8] += A [16, 16] B [16, 8]. With g = lane / 4 and t = lane % 4, a lane holds of
//   A   rows g, g + 8 (first and second register), then the same in columns 8 on; columns 2t, 2t + 1 in each
//   B   rows 2t, 2t + 1, then 2t + 8, 2t + 9; column g
//   C   row g, columns 2t, 2t + 1, then row g + 8
// So two neighbouring C, rounded and packed, are an A of the next product.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

namespace trireme::ops::cuda {
namespace {

__device__ inline uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

/// Loads four matrices [8, 8] from shared memory. Lane l gives the address of row l % 8 of matrix l / 8, a multiple of
/// 16 bytes. A lane gets row g, columns 2t, 2t + 1 of each matrix.
__device__ inline void load_matrices(uint32_t (&to)[4], const __nv_bfloat16* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(shared_address(row))
               : "memory");
}
/// The same for the transposed matrices: rows 2t, 2t + 1 of column g.
__device__ inline void load_transposed(uint32_t (&to)[4], const __nv_bfloat16* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(shared_address(row))
               : "memory");
}

__device__ inline void multiply_add(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// Copies 16 bytes to shared memory (zeros unless `some`) while the thread goes on.
__device__ inline void copy_later(void* to, const void* from, bool some) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :
               : "r"(shared_address(to)), "l"(from), "r"(some ? 16 : 0)
               : "memory");
}
/// Waits for this thread's copies.
__device__ inline void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

/// Two elements, the first in the low half.
__device__ inline uint32_t pack(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

}  // namespace
}  // namespace trireme::ops::cuda
