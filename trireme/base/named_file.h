// Files of results that a user names. One may be a symbolic link, to a disk with more room or to a shared folder: then
// the file behind the link is written, and the link stays.
#pragma once

#include <filesystem>
#include <string_view>

namespace trireme::base {

/// The file that `path` means: what its links lead to, which need not be there, or `path` itself. Links in /proc to
/// open files are not followed.
std::filesystem::path named_file(const std::filesystem::path& path);

/// write_file_atomic() of named_file(path): the temporary file lies beside the file behind the link.
/// Errors    FileError
void write_named_file(const std::filesystem::path& path, std::string_view contents);

}  // namespace trireme::base
