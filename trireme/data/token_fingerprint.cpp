#include "trireme/data/token_fingerprint.h"

#include <fcntl.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include "trireme/base/checksum.h"
#include "trireme/base/files.h"
#include "trireme/base/mix64.h"

namespace trireme::data {
namespace {

void add_file(const std::filesystem::path& path, int64_t bytes, base::Checksum& checksum) {
  constexpr int64_t kPieceBytes = int64_t{4} << 20;
  const base::FileDescriptor file = base::open_file(path, O_RDONLY);
  std::vector<std::byte> piece;
  for (int64_t at = 0; at < bytes; at += std::ssize(piece)) {
    piece.resize(static_cast<size_t>(std::min(kPieceBytes, bytes - at)));
    base::read_at(file, piece, at, path);
    checksum.update(piece);
  }
}

}  // namespace

uint64_t fingerprint_files(uint64_t seed, std::span<const std::filesystem::path> files) {
  for (const auto& path : files) {
    base::Checksum checksum;
    add_file(path, static_cast<int64_t>(std::filesystem::file_size(path)), checksum);
    seed = base::mix_key(seed, checksum.value());
  }
  return seed;
}

uint64_t content_hash(std::span<const std::filesystem::path> files) {
  base::Checksum checksum;
  for (const auto& path : files) {
    const auto bytes = static_cast<int64_t>(std::filesystem::file_size(path));
    checksum.update(std::as_bytes(std::span(&bytes, 1)));
    add_file(path, bytes, checksum);
  }
  return checksum.value();
}

}  // namespace trireme::data
