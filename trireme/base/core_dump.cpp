#include "trireme/base/core_dump.h"

#include <sys/resource.h>

#include <algorithm>

namespace trireme::base {

void allow_no_core_dumps() {
  // A program that collects dumps is not held to the limit, but for the limit of one byte (core(5), fs/coredump.c).
  constexpr rlim_t kNone = 1;
  rlimit limit{};
  if (getrlimit(RLIMIT_CORE, &limit) != 0) return;
  limit.rlim_cur = std::min(kNone, limit.rlim_max);
  (void)setrlimit(RLIMIT_CORE, &limit);
}

}  // namespace trireme::base
