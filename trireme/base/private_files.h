// What is made of private files is private: for commands whose files come out of libraries that ask for 0666.
#pragma once

#include <filesystem>
#include <span>

namespace trireme::base {

/// From now on this process makes no file that who cannot read all of `sources` could read (readable_as; of a folder
/// its files count): the rest goes into the process' umask.
void make_files_as_private_as(std::span<const std::filesystem::path> sources);

}  // namespace trireme::base
