// Functions on files. Their errors name the path and the system's reason. No reader ever sees a half-written file:
// write_file_atomic writes a temporary file beside it, then calls fsync and rename.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "trireme/base/error.h"

namespace trireme::base {

/// A file operation that the system refused: "cannot open data/a.txt: No such file or directory".
struct FileError : UsageError {
  FileError(const std::string& message, std::filesystem::path path_, int code_)
      : UsageError(message), path(std::move(path_)), code(code_) {}
  std::filesystem::path path;
  int code;  ///< errno
};

/// Exit codes. kRefused: the user has to change the command. kStorageFailed (EX_IOERR): the same command may work
/// later; the disk is full, a quota or a limit on file sizes is reached, or a disk or file server fails.
constexpr int kRefused = 2;
constexpr int kStorageFailed = 74;

/// The exit code for the system's `code` (errno; 0: none).
int exit_code_of(int code);

/// A checkpoint that the file system could not write or read.
struct StorageError : CheckpointError {
  StorageError(const std::string& message, std::string path_, int code_)
      : CheckpointError(message, std::move(path_)), code(code_) {}
  int code;  ///< errno
};

/// The exit code of a command that this error ends: kStorageFailed, kRefused, or 1 for a failure.
int exit_code_of(const std::exception& error);

/// Throws FileError "cannot <action> <path>: <errno's text>" for `code`, with plain words for a full disk and a limit
/// on file sizes.
[[noreturn]] void throw_file_error(std::string_view action, const std::filesystem::path& path, int code);

/// The same for what the standard library says: "filesystem error: status: Permission denied [a/file]".
[[noreturn]] void throw_file_error(const std::filesystem::filesystem_error& error);

/// "the limit on file sizes, 1.0 MiB (ulimit -f)": what no file of this process may exceed.
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

/// open(2) with close-on-exec. A file opened for reading must be a regular file. Anybody may have put a named pipe into
/// a folder, and reading one could wait for ever. Errors    FileError
FileDescriptor open_file(const std::filesystem::path& path, int flags, int mode = 0644);

/// Makes room for the first `bytes` of a file, whose size is at least that then (posix_fallocate). Returns 0 or errno.
int reserve_bytes(int file, int64_t bytes);

/// The file of a program: `name` itself if it has a slash, otherwise the first file of that name in a folder of PATH
/// that may be executed. Nothing: there is none.
std::optional<std::filesystem::path> find_program_file(const std::string& name);

/// Makes `folder` unless it exists; the folder around it must exist. A link is refused: files for one folder must not
/// be written into another. Errors    FileError
void make_real_folder(const std::filesystem::path& folder);

/// The mode for a file that is made from `sources`: 0644, without the bit of group or others if these cannot read every
/// source. Users who may not enter the folders of a source cannot read it.
unsigned readable_as(std::span<const std::filesystem::path> sources);

/// Sets the process' umask to the same effect, for libraries that create files with mode 0666. From now on, users who
/// cannot read all of `sources` (of a folder: the files in it) cannot read new files of this process either.
void make_files_as_private_as(std::span<const std::filesystem::path> sources);

/// Writes all of `bytes` at `offset` (pwrite, until done). Errors    FileError
void write_at(const FileDescriptor& file, std::span<const std::byte> bytes, int64_t offset,
              const std::filesystem::path& path);

/// Fills all of `bytes` from `offset`. Errors    FileError, also if the file ends too early
void read_at(const FileDescriptor& file, std::span<std::byte> bytes, int64_t offset, const std::filesystem::path& path);

/// True for a regular file or a link to one; false also if this user may not look.
bool is_file(const std::filesystem::path& path);

/// The largest file, in bytes, that is accepted beside a model's weights. Tokenizers' tables are the largest of these.
inline constexpr int64_t kLargestSideFile = 256 << 20;

/// Whole file as bytes. Errors    FileError, also if it holds more than `most_bytes`
std::string read_file(const std::filesystem::path& path, int64_t most_bytes = std::numeric_limits<int64_t>::max());

/// read_file() of at most kLargestSideFile, for a file beside a model's weights.
std::string read_side_file(const std::filesystem::path& path);

/// read_file() for a path that the user gives and that may be a pipe (`<(zcat text.gz)`, /dev/stdin).
std::string read_file_or_pipe(const std::filesystem::path& path,
                              int64_t most_bytes = std::numeric_limits<int64_t>::max());

/// Replaces `path` by `contents` in one step: readers see the old file or the new one, and after a crash the new one is
/// complete (temporary file beside it, fsync, rename, fsync of the folder). Errors    FileError: the old file is
/// unchanged and the temporary one removed
void write_file_atomic(const std::filesystem::path& path, std::string_view contents);

/// Renames a file or folder to a name that is free. Errors    FileError (EEXIST) where another process has taken it
void rename_to_new(const std::filesystem::path& from, const std::filesystem::path& to);

/// The folder that holds `path`; "." for a bare name, whose parent_path is empty.
std::filesystem::path parent_of(const std::filesystem::path& path);

/// Makes renames and new names in `folder` survive a crash. Errors    FileError
void fsync_directory(const std::filesystem::path& folder);

/// Bytes that this user may still write at `path`, or at its nearest parent that exists.
int64_t free_disk_bytes(const std::filesystem::path& path);

/// A file's bytes, mapped read-only for as long as this object lives. The mapping is shared: what another process
/// writes into the file appears in it. An empty file maps to an empty span. Reading what the file no longer has is a
/// signal (mapped_ranges.h).
class MappedFile {
 public:
  /// Errors    FileError
  explicit MappedFile(const std::filesystem::path& path);

  std::span<const std::byte> bytes() const { return {data_.get(), data_ ? data_.get_deleter().size : 0}; }
  int64_t size_bytes() const { return std::ssize(bytes()); }
  const std::filesystem::path& path() const { return path_; }

 private:
  struct Unmap {
    size_t size;
    void operator()(const std::byte* data) const;
  };
  std::filesystem::path path_;
  std::unique_ptr<const std::byte, Unmap> data_;
};

}  // namespace trireme::base
