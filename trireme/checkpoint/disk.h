// File system functions of a save, beside base/files.h: they reserve space before writing, flush, and say in the error
// of a full disk how many bytes are needed and free.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "trireme/base/files.h"
#include "trireme/checkpoint/dtype.h"

namespace trireme::checkpoint {

/// Creates a file and reserves its `bytes` bytes on the disk, so that no later write finds the disk full.
/// Errors    base::FileError, also if the file exists
base::FileDescriptor create_file(const std::filesystem::path& path, int64_t bytes);

/// Creates a small file and flushes it; after a failure, no file is left. Errors    base::FileError
void write_new_file(const std::filesystem::path& path, std::string_view text);

/// Asks the system to start writing these bytes to the disk now, instead of at the flush.
void start_writing_out(const base::FileDescriptor& file, int64_t begin, int64_t end);

/// The alignment of positions, lengths and memory for direct access (O_DIRECT); enough for all common disks and file
/// systems.
constexpr int64_t kPageBytes = 4096;

/// Opens an existing file with O_DIRECT, past the page cache; empty if the file system does not support that.
/// Errors    base::FileError
base::FileDescriptor open_direct(const std::filesystem::path& path, int flags);

/// fsync(2). Errors    base::FileError
void flush(const base::FileDescriptor& file, const std::filesystem::path& path);

/// Writes elements [begin, end) of a tensor; `data` holds them in `dtype`. The file has the tensor from `first_byte`
/// on, in the dtype `stored`. Converts at most 1 MiB at a time; calls `written` with the bytes written.
/// Errors    base::FileError
void write_elements(const base::FileDescriptor& file, const std::filesystem::path& path, int64_t first_byte,
                    Dtype stored, int64_t begin, int64_t end, const void* data, Dtype dtype,
                    const std::function<void(std::span<const std::byte>)>& written = {});

/// Size of an open file. Errors    base::FileError
int64_t file_bytes(const base::FileDescriptor& file, const std::filesystem::path& path);

/// How commands write to another disk: those with an out_dir, and those that take the place as a word.
inline constexpr const char* kOtherOutDir = "save to another disk with --out_dir";
inline constexpr const char* kOtherPlace = "name a place on another disk";

/// Throws the StorageError of a full disk. It says the bytes needed (0: unknown), the bytes free, and what to do; of
/// the command that writes, `elsewhere` is one of the above.
[[noreturn]] void throw_disk_full(const std::filesystem::path& path, int64_t needed_bytes,
                                  const std::string& elsewhere = kOtherOutDir);

/// Runs `work`, which writes `needed_bytes` below `path`. A full disk or quota becomes throw_disk_full, any other
/// system error a StorageError with its text.
void translate_file_errors(const std::filesystem::path& path, int64_t needed_bytes, const std::function<void()>& work,
                           const std::string& elsewhere = kOtherOutDir);

}  // namespace trireme::checkpoint
