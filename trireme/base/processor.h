// What kernels need to know about the processor: its instruction sets, its maker and its caches.
#pragma once

#include <cstdint>
#include <string>

namespace trireme::base {

/// A flag is true only if the system also saves the registers of its instruction set and lets this process use them.
/// All flags are false on architectures other than x86-64.
struct Processor {
  bool avx2;  ///< AVX2, FMA and F16C
  bool avx512;  ///< AVX-512 F, BW, DQ and VL; implies avx2
  bool avx512_bf16;  ///< has dot products of bfloat16 pairs; implies avx512
  bool amx_bf16;  ///< has matrix products of bfloat16 tiles
  bool is_amd;

  /// True if the processor has an instruction that multiplies bfloat16.
  bool multiplies_bf16() const { return avx512_bf16 || amx_bf16; }
};

const Processor& processor();

/// As /proc/cpuinfo names it, else "unknown processor".
std::string processor_name();

/// Bytes of last-level cache that `threads` threads can use together: one cache a thread, but no more than the machine
/// has. (An EPYC has one for every eight cores.) A cache counts as 32 MiB if the system does not give its size.
int64_t last_level_cache_bytes(int threads = 1);
/// Bytes of the second-level cache of one core; 1 MiB if the system does not give it.
int64_t core_cache_bytes();

}  // namespace trireme::base
