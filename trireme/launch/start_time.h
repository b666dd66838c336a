// When this process, and the job that it belongs to, was started.
#pragma once

#include <chrono>
#include <optional>
#include <string>

namespace trireme::launch {

/// Of this process' exec's process: the kernel's word, to a hundredth of a second.
std::chrono::steady_clock::time_point process_start();

/// What the launcher tells its ranks (TRIREME_STARTED_NS): when the launcher itself was started, or this attempt.
std::string start_variable(std::chrono::steady_clock::time_point start);

/// The same, read; nothing where no launcher of ours says it.
std::optional<std::chrono::steady_clock::time_point> job_start();

}  // namespace trireme::launch
