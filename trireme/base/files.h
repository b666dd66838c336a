// Files with errors that name the path and the system's reason. Nothing that a reader may meet is ever half
// written: write_file_atomic goes through a temporary sibling, fsync and rename.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <span>
#include <string>
#include <string_view>

#include "trireme/base/error.h"

namespace trireme::base {

/// A file operation the system refused: "cannot open data/a.txt: No such file or directory".
struct FileError : UsageError {
  FileError(const std::string& message, std::filesystem::path path_, int code_)
      : UsageError(message), path(std::move(path_)), code(code_) {}
  std::filesystem::path path;
  int code;  ///< errno
};

/// Exit codes: what the user can mend in the command, and what the same command may survive later (EX_IOERR): a full
/// disk, a used-up quota, a limit on file sizes, a disk or file server that fails.
constexpr int kRefused = 2;
constexpr int kStorageFailed = 74;

/// Which of the two the system's `code` (errno; 0: none) stands for.
int exit_code_of(int code);

/// A checkpoint that the file system would not take or give.
struct StorageError : CheckpointError {
  StorageError(const std::string& message, std::string path_, int code_)
      : CheckpointError(message, std::move(path_)), code(code_) {}
  int code;  ///< errno
};

/// Throws FileError "cannot <action> <path>: <errno's text>" for `code`; a full disk and a limit on file
/// sizes say so in plain words.
[[noreturn]] void throw_file_error(std::string_view action, const std::filesystem::path& path, int code);

/// "the limit on file sizes, 1.0 MiB (ulimit -f)": what a file may not exceed here.
std::string file_size_limit();

/// An open descriptor that closes itself; -1 when it holds none.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int descriptor) : descriptor_(descriptor) {}
  FileDescriptor(FileDescriptor&& other) noexcept : descriptor_(other.release()) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;
  ~FileDescriptor();

  int get() const { return descriptor_; }
  int release();

 private:
  int descriptor_ = -1;
};

/// open(2) with close-on-exec. What is opened to be read is a regular file: a named pipe would wait for its writer for
/// ever, and whoever made a folder may have put one there. Errors    FileError
FileDescriptor open_file(const std::filesystem::path& path, int flags, int mode = 0644);

/// Makes `folder` where it is missing, in a folder that is there; one that is a link is refused: what belongs to one
/// folder shall not be written into another. Errors    FileError
void make_real_folder(const std::filesystem::path& folder);

/// 0644 without the bits of those who cannot read all of `sources`: what is made of files is for nobody else's eyes
/// than they are. A file in a folder that others may not enter counts as not theirs.
unsigned readable_as(std::span<const std::filesystem::path> sources);

/// Writes all of `bytes` at `offset` (pwrite, until done). Errors    FileError
void write_at(const FileDescriptor& file, std::span<const std::byte> bytes, int64_t offset,
              const std::filesystem::path& path);

/// Fills all of `bytes` from `offset`. Errors    FileError, also when the file ends before
void read_at(const FileDescriptor& file, std::span<std::byte> bytes, int64_t offset, const std::filesystem::path& path);

/// A regular file or a link to one; false also where nothing may be looked at.
bool is_file(const std::filesystem::path& path);

/// No file beside a model's weights is larger, not even a tokenizer's table.
inline constexpr int64_t kLargestSideFile = 256 << 20;

/// Whole file as bytes. Errors    FileError, also where it holds more than `most_bytes`
std::string read_file(const std::filesystem::path& path, int64_t most_bytes = std::numeric_limits<int64_t>::max());

/// A file that stands beside a model's weights: read_file() of at most kLargestSideFile.
std::string read_side_file(const std::filesystem::path& path);

/// The same for a path that the user gives, which may be a pipe (`<(zcat text.gz)`, /dev/stdin).
std::string read_file_or_pipe(const std::filesystem::path& path,
                              int64_t most_bytes = std::numeric_limits<int64_t>::max());

/// Replaces `path` by `contents` in one step: readers see the old file or the new one, and after a crash the
/// new one is complete (temporary sibling, fsync, rename, fsync of the folder). Errors    FileError, the old
/// file untouched and the temporary one removed
void write_file_atomic(const std::filesystem::path& path, std::string_view contents);

/// The folder that holds `path`; "." for a bare name, whose parent_path is empty.
std::filesystem::path parent_of(const std::filesystem::path& path);

/// Makes renames and new names in `folder` survive a crash. Errors    FileError
void fsync_directory(const std::filesystem::path& folder);

/// Bytes that this user may still write where `path` is or would be (its nearest existing parent counts).
int64_t free_disk_bytes(const std::filesystem::path& path);

/// A file's bytes, mapped read-only for as long as this object lives. An empty file maps to an empty span.
class MappedFile {
 public:
  /// Errors    FileError
  explicit MappedFile(const std::filesystem::path& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  int64_t size_bytes() const { return static_cast<int64_t>(size_); }
  const std::filesystem::path& path() const { return path_; }

 private:
  void unmap();

  std::filesystem::path path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace trireme::base
