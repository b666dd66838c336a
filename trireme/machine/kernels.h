// The interface between the limits (limits.cpp) and their loops, one file per instruction set: plain pointers and no
// library header, for the reason in ops/attention/kernels.h.
#pragma once

#include <cstdint>

namespace trireme::machine {

enum class LimitsDtype : int { float64, float32, bfloat16 };

/// Multiply-adds on registers alone: enough independent chains to hide the latency.
struct RegisterLoop {
  /// The result has no meaning, but must be used.
  double (*run)(int64_t rounds);
  int64_t flops_per_round;  ///< a multiply-add counts 2
};

struct LimitsKernel {
  const char* name;
  RegisterLoop multiply_add[3];  ///< indexed by LimitsDtype; where bfloat16 is null, float32's loop runs instead
  /// Copies past the caches (non-temporal stores). Pointers are multiples of 64, `bytes` of 512. May be null.
  void (*copy_past_caches)(void* to, const void* from, int64_t bytes);
  /// Copies with plain vector loads and stores; same conditions.
  void (*copy)(void* to, const void* from, int64_t bytes);
  /// Changes `bytes` in place; same conditions.
  void (*update)(void* at, int64_t bytes);
  /// Reads `bytes` and returns a value that depends on all of them; same conditions.
  double (*read)(const void* from, int64_t bytes);
};

extern const LimitsKernel kLimitsPortable;  ///< any processor
extern const LimitsKernel kLimitsAvx2;  ///< AVX2 + FMA
extern const LimitsKernel kLimitsAvx512;  ///< AVX-512 F; its bfloat16 loop needs AVX512-BF16
extern const RegisterLoop kTileLoop;  ///< bfloat16; AMX-TILE and AMX-BF16

}  // namespace trireme::machine
