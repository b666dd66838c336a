// The instruction sets that kernels are written for, and whose they are, asked once.
#pragma once

namespace trireme::base {

/// A set is there only where the operating system saves its registers too, and lets this process use them. All false
/// on another architecture than x86-64.
struct Processor {
  bool avx2;  ///< and FMA
  bool avx512;  ///< F, BW, DQ and VL, and avx2
  bool avx512_bf16;  ///< dot products of bfloat16 pairs, and avx512
  bool amx_bf16;  ///< products of bfloat16 tiles
  bool is_amd;

  /// Whether an instruction multiplies bfloat16.
  bool multiplies_bf16() const { return avx512_bf16 || amx_bf16; }
};

const Processor& processor();

}  // namespace trireme::base
