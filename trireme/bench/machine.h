// The machine on which a result was measured, in words: the first lines of every report. Host names say nothing about
// speed and are omitted.
#pragma once

#include <cstdint>
#include <string>

namespace trireme::bench {

std::string machine_name();  ///< "Linux 6.1 x86_64, 23.4 GiB"
int64_t machine_cores();
int64_t usable_cores();  ///< cores that this process may run on; a pinned rank has fewer
std::string libtorch_version();
std::string utc_now();  ///< "2026-01-31T12:00:00Z"

}  // namespace trireme::bench
