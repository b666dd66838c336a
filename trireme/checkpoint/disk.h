// What a save asks of the file system beyond base/files.h: space reserved before writing, flushes, and a
// full disk reported with the bytes needed and free.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string_view>

#include "trireme/base/files.h"

namespace trireme::checkpoint {

/// Makes a new file of `bytes` bytes that are reserved on the disk now: a later write cannot find it full.
/// An existing file is an error. Errors    base::FileError
base::FileDescriptor create_file(const std::filesystem::path& path, int64_t bytes);

/// Makes a new small file and flushes it; where that fails, no file is left. Errors    base::FileError
void write_new_file(const std::filesystem::path& path, std::string_view text);

/// Asks the system to begin writing these bytes to the disk now instead of at the flush; nothing is promised.
void start_writing_out(const base::FileDescriptor& file, int64_t begin, int64_t end);

/// What direct access (O_DIRECT) wants of positions, lengths and memory: every disk and file system in use is content.
constexpr int64_t kPageBytes = 4096;

/// Opens an existing file for access past the page cache; holds none where the file system has no such thing.
/// Errors    base::FileError
base::FileDescriptor open_direct(const std::filesystem::path& path, int flags);

/// fsync(2). Errors    base::FileError
void flush(const base::FileDescriptor& file, const std::filesystem::path& path);

/// Size of an open file. Errors    base::FileError
int64_t file_bytes(const base::FileDescriptor& file, const std::filesystem::path& path);

/// Throws the StorageError of a full disk: needed (0: not known), free, and the way out.
[[noreturn]] void throw_disk_full(const std::filesystem::path& path, int64_t needed_bytes);

/// Runs `work`, which writes `needed_bytes` below `path`; a full disk or quota becomes throw_disk_full, any
/// other refusal of the system a StorageError with its text.
void translate_file_errors(const std::filesystem::path& path, int64_t needed_bytes, const std::function<void()>& work);

}  // namespace trireme::checkpoint
