// What the files of a run's numbers have in common.
#pragma once

#include <filesystem>
#include <string_view>

#include "trireme/base/files.h"

namespace trireme::observe {

/// Writes all bytes, with one call unless the system takes fewer.
/// Errors    FileError naming `path`
void append(const base::FileDescriptor& file, std::string_view bytes, const std::filesystem::path& path);

/// Cuts the last line off a file of lines. Errors    FileError naming `path`
void drop_last_line(const base::FileDescriptor& file, const std::filesystem::path& path);

}  // namespace trireme::observe
