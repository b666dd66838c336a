// Whether a disk has room for what is offloaded to it: asked for all ranks of a host before any starts, and again by
// each rank for its own file.
#pragma once

#include <cstdint>
#include <filesystem>

namespace trireme::engine {

/// Errors    FileError (ENOSPC) if `folder`, or its nearest parent that exists, has fewer than `bytes` left
void require_offload_room(const std::filesystem::path& folder, int64_t bytes);

/// Throws the FileError "cannot offload 1.66 MiB to FOLDER: it has 1.00 MiB left; ..." with `code`.
[[noreturn]] void throw_no_offload_room(const std::filesystem::path& folder, int64_t bytes, int code);

}  // namespace trireme::engine
