// The seam between the limits (limits.cpp) and their loops, one file per instruction set: plain pointers, no library
// header, for the reason given in attention_kernel.h.
#pragma once

#include <cstdint>

namespace trireme::ops {

enum class LimitsDtype : int { float64, float32, bfloat16 };

/// Multiply-adds on registers alone: independent chains, more of them than the latency hides.
struct RegisterLoop {
  /// Runs `rounds` rounds; what it returns is of no interest, but has to be used.
  double (*run)(int64_t rounds);
  int64_t flops_per_round;  ///< a multiply-add counts 2
};

struct LimitsKernel {
  const char* name;
  RegisterLoop multiply_add[3];  ///< indexed by LimitsDtype; bfloat16 may be null: then it is computed in float32
  /// Copies past the caches (non-temporal stores); both aligned to 64, `bytes` a multiple of 512. May be null.
  void (*copy_past_caches)(void* to, const void* from, int64_t bytes);
  /// Copies with plain vector loads and stores; same conditions.
  void (*copy)(void* to, const void* from, int64_t bytes);
  /// Changes `bytes` in place; same conditions.
  void (*update)(void* at, int64_t bytes);
  /// Reads `bytes` and hands back something that depends on all of them; same conditions.
  double (*read)(const void* from, int64_t bytes);
};

extern const LimitsKernel kLimitsPortable;  ///< any processor
extern const LimitsKernel kLimitsAvx2;  ///< AVX2 + FMA
extern const LimitsKernel kLimitsAvx512;  ///< AVX-512 F; its bfloat16 loop needs AVX512-BF16
extern const RegisterLoop kTileLoop;  ///< bfloat16; AMX-TILE and AMX-BF16

}  // namespace trireme::ops
