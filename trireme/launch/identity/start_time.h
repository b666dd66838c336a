// The times at which this process and its job were started.
#pragma once

#include <chrono>
#include <optional>
#include <string>

namespace trireme::launch {

/// The kernel's time of this process's creation (exec keeps it), to a hundredth of a second.
std::chrono::steady_clock::time_point process_start();

/// The ranks' variable TRIREME_STARTED_NS: the start of the launcher, or of this attempt.
std::string start_variable(std::chrono::steady_clock::time_point start);

/// Reads that variable; empty without Trireme's launcher.
std::optional<std::chrono::steady_clock::time_point> job_start();

}  // namespace trireme::launch
