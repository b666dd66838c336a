#include "trireme/bench/disk.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <random>
#include <vector>

#include "trireme/base/files.h"

namespace trireme::bench {
namespace {

constexpr int64_t kPiece = int64_t{8} << 20;

// Bytes that no file system can make smaller.
const std::vector<std::byte>& noise() {
  static const std::vector<std::byte> bytes = [] {
    std::vector<std::byte> all(static_cast<size_t>(kPiece));
    std::mt19937_64 random(1);
    for (std::byte& b : all) b = static_cast<std::byte>(random());
    return all;
  }();
  return bytes;
}

}  // namespace

void write_plainly(const std::filesystem::path& path, int64_t bytes) {
  const base::FileDescriptor file = base::open_file(path, O_WRONLY | O_CREAT | O_TRUNC);
  posix_fallocate(file.get(), 0, bytes);  // where the file system cannot, the writes do without
  for (int64_t at = 0; at < bytes; at += kPiece)
    base::write_at(file, {noise().data(), static_cast<size_t>(std::min(kPiece, bytes - at))}, at, path);
  if (fsync(file.get()) != 0) base::throw_file_error("flush", path, errno);
}

void write_as_dd(const std::filesystem::path& path, int64_t bytes) {
  constexpr int64_t kBlock = int64_t{4} << 20;
  const base::FileDescriptor file = base::open_file(path, O_WRONLY | O_CREAT | O_TRUNC);
  for (int64_t at = 0; at < bytes; at += kBlock)
    base::write_at(file, {noise().data(), static_cast<size_t>(std::min(kBlock, bytes - at))}, at, path);
  if (fsync(file.get()) != 0) base::throw_file_error("flush", path, errno);
}

int64_t read_plainly(const std::filesystem::path& path) {
  const base::FileDescriptor file = base::open_file(path, O_RDONLY);
  const auto bytes = static_cast<int64_t>(std::filesystem::file_size(path));
  static std::vector<std::byte> piece(static_cast<size_t>(kPiece));
  for (int64_t at = 0; at < bytes; at += kPiece)
    base::read_at(file, {piece.data(), static_cast<size_t>(std::min(kPiece, bytes - at))}, at, path);
  return bytes;
}

void drop_caches(const std::filesystem::path& path) {
  for (const auto& entry : std::filesystem::recursive_directory_iterator(path)) {
    if (!entry.is_regular_file()) continue;
    const base::FileDescriptor file = base::open_file(entry.path(), O_RDONLY);
    posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED);
  }
}

}  // namespace trireme::bench
