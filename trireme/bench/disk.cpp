#include "trireme/bench/disk.h"

#include <fcntl.h>

#include <algorithm>
#include <random>
#include <span>
#include <vector>

#include "trireme/base/files.h"
#include "trireme/checkpoint/disk.h"

namespace trireme::bench {
namespace {

constexpr int64_t kPiece = int64_t{8} << 20;

// Random bytes, which no file system can compress.
const std::vector<std::byte>& noise() {
  static const std::vector<std::byte> bytes = [] {
    std::vector<std::byte> all(kPiece);
    std::mt19937_64 random(1);
    for (std::byte& b : all) b = static_cast<std::byte>(random());
    return all;
  }();
  return bytes;
}

void write_pieces(const std::filesystem::path& path, int64_t bytes, int64_t piece, bool reserve) {
  const base::FileDescriptor file = base::open_file(path, O_WRONLY | O_CREAT | O_TRUNC);
  if (reserve) posix_fallocate(file.get(), 0, bytes);  // if the file system cannot reserve, the writes succeed anyway
  for (int64_t at = 0; at < bytes; at += piece)
    base::write_at(file, std::span(noise()).first(std::min(piece, bytes - at)), at, path);
  checkpoint::flush(file, path);
}

}  // namespace

void write_plainly(const std::filesystem::path& path, int64_t bytes) { write_pieces(path, bytes, kPiece, true); }

void write_as_dd(const std::filesystem::path& path, int64_t bytes) {
  write_pieces(path, bytes, int64_t{4} << 20, false);
}

int64_t read_plainly(const std::filesystem::path& path) {
  const base::FileDescriptor file = base::open_file(path, O_RDONLY);
  const auto bytes = static_cast<int64_t>(std::filesystem::file_size(path));
  static std::vector<std::byte> piece(kPiece);
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
