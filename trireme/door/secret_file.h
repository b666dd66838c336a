// A file that carries trust: who writes it chooses whom a job believes. It is read only where nobody but this process'
// user can have written it or can read it. Every file of that kind is opened here.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace trireme::door {

/// At most `most_bytes` of the file; nothing where there is none. A path in /proc/self/fd names a descriptor that this
/// process has inherited.
///
/// Errors    UsageError where it is a link, has a second name, is no plain file, belongs to another user or lets others
///           read or write it (mode 0600 or less is asked for); FileError
std::optional<std::string> read_secret_file(const std::filesystem::path& path, std::size_t most_bytes);

}  // namespace trireme::door
