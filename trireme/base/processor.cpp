#include "trireme/base/processor.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace trireme::base {
namespace {

#if defined(__x86_64__)
// g++ 12 knows no name for AMX in __builtin_cpu_supports.
bool has_amx_bf16() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kBf16 = 1U << 22, kTiles = 1U << 24, kSavesRegisters = 1U << 27, kTileState = 3U << 17;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & kSavesRegisters) == 0) return false;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d & kBf16) == 0 || (d & kTiles) == 0) return false;
  unsigned low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  if ((low & kTileState) != kTileState) return false;
  // The kernel keeps tiles, 8 KiB a thread, only for processes that ask; for all their threads, and asked twice is
  // fine.
  constexpr long kRequest = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM
  return syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
}

Processor ask() {
  __builtin_cpu_init();
  Processor has{};
  has.avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  has.avx512 = has.avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  has.avx512_bf16 = has.avx512 && __builtin_cpu_supports("avx512bf16");
  has.amx_bf16 = has_amx_bf16();
  has.is_amd = __builtin_cpu_is("amd") != 0;
  return has;
}
#else
Processor ask() { return {}; }
#endif

}  // namespace

const Processor& processor() {
  static const Processor has = ask();
  return has;
}

}  // namespace trireme::base
