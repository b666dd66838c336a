// Which addresses of this process are bytes of which mapped file, so that a fault there can be told in words.
//
// A mapped file that another process cuts, or whose disk fails, has no bytes for some of its addresses any more.
// Reading there is a signal (SIGBUS), which by default ends the process with "Bus error" and no word on which file it
// was.
#pragma once

#include <cstddef>
#include <filesystem>

namespace trireme::base {

/// Remembers a mapping until forget_mapping(). The table has a fixed size: what does not fit is not remembered.
void remember_mapping(const void* begin, std::size_t bytes, const std::filesystem::path& path) noexcept;
void forget_mapping(const void* begin) noexcept;

/// From now on, a fault in a remembered mapping ends the process with one sentence on standard error and
/// kStorageFailed. Other faults keep their default action. For main(): a library leaves signals alone.
void tell_faults_in_mappings() noexcept;

}  // namespace trireme::base
