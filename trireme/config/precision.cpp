#include "trireme/config/precision.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace trireme::config {

bool processor_has_bf16() {
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__builtin_cpu_supports("avx512f") == 0) return false;  // includes that the system saves the registers
  if (__get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a & (1U << 5)) != 0) return true;   // AVX512_BF16
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d & (1U << 22)) != 0;            // AMX-BF16
#else
  return false;
#endif
}

Precision resolve(Precision precision, bool has_bf16) {
  if (precision != Precision::automatic) return precision;
  return has_bf16 ? Precision::bf16_mixed : Precision::fp32_true;
}

}  // namespace trireme::config
