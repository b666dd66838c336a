// Runs this program again as a child, for benchmarks that need several numbers of ranks.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace trireme::bench {

/// Runs this program with `arguments`; what it prints goes to `log`.
///
/// @param what   for the message: "bench train with 2 ranks"
/// Errors    UsageError with the child's own text if it refuses its settings; Error naming `log` if it fails otherwise
void run_child(const std::vector<std::string>& arguments, const std::filesystem::path& log, const std::string& what);

}  // namespace trireme::bench
