#include "trireme/data/token_fingerprint.h"

#include <fcntl.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include "trireme/base/checksum.h"
#include "trireme/base/files.h"
#include "trireme/data/permutation.h"

namespace trireme::data {
namespace {

uint64_t hash_file(const std::filesystem::path& path) {
  constexpr int64_t kPieceBytes = int64_t{4} << 20;
  const base::FileDescriptor file = base::open_file(path, O_RDONLY);
  const auto bytes = static_cast<int64_t>(std::filesystem::file_size(path));
  base::Checksum checksum;
  std::vector<std::byte> piece;
  for (int64_t at = 0; at < bytes; at += static_cast<int64_t>(piece.size())) {
    piece.resize(static_cast<size_t>(std::min(kPieceBytes, bytes - at)));
    base::read_at(file, piece, at, path);
    checksum.update(piece);
  }
  return checksum.value();
}

}  // namespace

uint64_t fingerprint_files(uint64_t seed, std::span<const std::filesystem::path> files) {
  for (const auto& file : files) seed = mix_key(seed, hash_file(file));
  return seed;
}

}  // namespace trireme::data
