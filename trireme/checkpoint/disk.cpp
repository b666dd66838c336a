#include "trireme/checkpoint/disk.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/text.h"

namespace trireme::checkpoint {

base::FileDescriptor create_file(const std::filesystem::path& path, int64_t bytes) {
  base::FileDescriptor file = base::open_file(path, O_RDWR | O_CREAT | O_EXCL, 0666);
  if (const int code = base::reserve_bytes(file.get(), bytes); code != 0)
    base::throw_file_error(fmt::format("reserve {} for", base::plural(bytes, "byte")), path, code);
  return file;
}

void write_new_file(const std::filesystem::path& path, std::string_view text) {
  const base::FileDescriptor file = create_file(path, 0);
  try {
    base::write_at(file, std::as_bytes(std::span(text)), 0, path);
    flush(file, path);
  } catch (...) {
    ::unlink(path.c_str());
    throw;
  }
}

void start_writing_out(const base::FileDescriptor& file, int64_t begin, int64_t end) {
  if (end > begin) ::sync_file_range(file.get(), begin, end - begin, SYNC_FILE_RANGE_WRITE);
}

base::FileDescriptor open_direct(const std::filesystem::path& path, int flags) try {
  return base::open_file(path, flags | O_DIRECT);
} catch (const base::FileError& error) {
  if (error.code != EINVAL && error.code != EOPNOTSUPP) throw;
  return {};
}

void flush(const base::FileDescriptor& file, const std::filesystem::path& path) {
  if (::fsync(file.get()) != 0) base::throw_file_error("flush", path, errno);
}

void write_elements(const base::FileDescriptor& file, const std::filesystem::path& path, int64_t first_byte,
                    Dtype stored, int64_t begin, int64_t end, const void* data, Dtype dtype,
                    const std::function<void(std::span<const std::byte>)>& written) {
  const int64_t size = size_of(stored), block = (1 << 20) / size;
  const auto* source = static_cast<const std::byte*>(data);
  std::vector<std::byte> buffer(dtype == stored ? 0 : static_cast<size_t>(std::min(block, end - begin) * size));
  for (int64_t from = begin; from < end; from += block) {
    const int64_t count = std::min(block, end - from);
    if (dtype != stored) convert(source, dtype, buffer.data(), stored, count);
    const std::span<const std::byte> bytes(dtype == stored ? source : buffer.data(), static_cast<size_t>(count * size));
    if (written) written(bytes);
    base::write_at(file, bytes, first_byte + from * size, path);
    source += count * size_of(dtype);
  }
}

int64_t file_bytes(const base::FileDescriptor& file, const std::filesystem::path& path) {
  struct stat info{};
  if (::fstat(file.get(), &info) != 0) base::throw_file_error("read the size of", path, errno);
  return info.st_size;
}

void throw_disk_full(const std::filesystem::path& path, int64_t needed_bytes, const std::string& elsewhere) {
  const std::string needed = needed_bytes > 0 ? base::plural(needed_bytes, "byte") + " needed, " : "";
  throw base::StorageError(
      fmt::format("cannot save a checkpoint below {}: the disk is full, {}{} free; free some "
                  "space, or {}",
                  path.string(), needed, base::plural(base::free_disk_bytes(path), "byte"), elsewhere),
      path.string(), ENOSPC);
}

void translate_file_errors(const std::filesystem::path& path, int64_t needed_bytes, const std::function<void()>& work,
                           const std::string& elsewhere) {
  try {
    work();
  } catch (const base::FileError& error) {
    if (error.code == ENOSPC || error.code == EDQUOT) throw_disk_full(path, needed_bytes, elsewhere);
    throw base::StorageError(error.what(), error.path.string(), error.code);
  } catch (const std::filesystem::filesystem_error& error) {
    const int code = error.code().value();
    if (code == ENOSPC || code == EDQUOT) throw_disk_full(path, needed_bytes, elsewhere);
    throw base::StorageError(error.what(), error.path1().string(), code);
  }
}

}  // namespace trireme::checkpoint
