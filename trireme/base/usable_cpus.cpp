#include "trireme/base/usable_cpus.h"

#include <sched.h>

#include <cerrno>
#include <cstddef>
#include <memory>

namespace trireme::base {

std::vector<int> usable_cpus() {
  struct Free {
    void operator()(cpu_set_t* set) const { CPU_FREE(set); }
  };
  std::vector<int> cpus;
  for (int most = CPU_SETSIZE; most <= kMostCpus; most *= 2) {
    const std::unique_ptr<cpu_set_t, Free> set(CPU_ALLOC(static_cast<size_t>(most)));
    const size_t bytes = CPU_ALLOC_SIZE(static_cast<size_t>(most));
    if (!set) return cpus;
    CPU_ZERO_S(bytes, set.get());
    if (sched_getaffinity(0, bytes, set.get()) == 0) {
      for (int cpu = 0; cpu < most; ++cpu)
        if (CPU_ISSET_S(static_cast<size_t>(cpu), bytes, set.get())) cpus.push_back(cpu);
      return cpus;
    }
    if (errno != EINVAL) return cpus;  // else the kernel has more CPUs
  }
  return cpus;
}

}  // namespace trireme::base
