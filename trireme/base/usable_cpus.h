// The logical CPUs that a thread may use, on machines of any size: a cpu_set_t holds 1,024, and a kernel with more
// refuses it.
#pragma once

#include <vector>

namespace trireme::base {

/// The most logical CPUs that Linux is built for (NR_CPUS). Those beyond, if there ever are some, are left out.
inline constexpr int kMostCpus = 8192;

/// Those of the calling thread, by number, in ascending order. Empty: the kernel does not tell.
std::vector<int> usable_cpus();

}  // namespace trireme::base
