#include "trireme/base/processor.h"

#include <algorithm>
#include <fstream>
#include <set>
#include <string>
#include <thread>

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
  // The kernel saves tiles, 8 KiB a thread, only for processes that ask. One request is for all threads, and a second
  // one does no harm.
  constexpr long kRequest = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM
  return syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
}

// Some compilers know no name for F16C in __builtin_cpu_supports.
bool has_f16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kF16c = 1U << 29;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & kF16c) != 0;
}

Processor ask() {
  __builtin_cpu_init();
  Processor has{};
  has.avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
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

// The largest cache of levels `from` to `to`, as the kernel reports it. sysconf() would add up the caches of all core
// complexes of a socket.
int64_t cache_bytes(int from, int to, int64_t unknown) {
  int64_t largest = 0;
  for (int index = 0; index < 8; ++index) {
    const std::string folder = "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/";
    std::ifstream level_file(folder + "level"), size_file(folder + "size"), type_file(folder + "type");
    int level = 0;
    int64_t kib = 0;
    std::string type;
    if (level_file >> level && size_file >> kib && type_file >> type && type != "Instruction" && level >= from &&
        level <= to)
      largest = std::max(largest, kib << 10);
  }
  return largest > 0 ? largest : unknown;
}

// The machine's last-level caches: each set of processors that share one counts once.
int num_last_level_caches() {
  std::set<std::string> shared;
  for (unsigned cpu = 0; cpu < std::thread::hardware_concurrency(); ++cpu) {
    std::ifstream file("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/cache/index3/shared_cpu_list");
    if (std::string processors; std::getline(file, processors)) shared.insert(processors);
  }
  return std::max(1, static_cast<int>(shared.size()));
}

}  // namespace

const Processor& processor() {
  static const Processor has = ask();
  return has;
}

int64_t last_level_cache_bytes(int threads) {
  return cache_bytes(2, 4, int64_t{32} << 20) * std::min(threads, num_last_level_caches());
}

int64_t core_cache_bytes() { return cache_bytes(2, 2, int64_t{1} << 20); }

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown processor";
}

}  // namespace trireme::base
