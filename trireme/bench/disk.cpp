#include "trireme/bench/disk.h"

#include <fcntl.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "trireme/base/crew.h"
#include "trireme/base/files.h"
#include "trireme/base/stopwatch.h"
#include "trireme/checkpoint/disk.h"
#include "trireme/engine/offload_file.h"

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

double offload_rate(const std::filesystem::path& folder, int64_t buffers) try {
  constexpr int64_t kHalf = int64_t{64} << 20;
  constexpr double kSeconds = 2;
  engine::OffloadFile file(folder, 2 * kHalf);
  struct Free {
    void operator()(char* memory) const { std::free(memory); }
  };
  const auto buffer = [] {
    std::unique_ptr<char, Free> memory(static_cast<char*>(std::aligned_alloc(4096, kHalf)));
    std::memset(memory.get(), 7, kHalf);
    return memory;
  };
  const auto to_write = buffer(), to_read = buffer();
  const int depth = static_cast<int>(buffers);
  engine::BlockIo writes(file.descriptor(), depth), reads(file.descriptor(), depth);
  for (const int64_t half : {int64_t{0}, kHalf}) file.write(writes, to_write.get(), half, kHalf, "the measurement");
  std::atomic<int64_t> moved{0};
  const base::Stopwatch watch;
  base::Crew(2, [&](size_t i) {
    while (watch.seconds() < kSeconds) {
      if (i == 0)
        file.write(writes, to_write.get(), 0, kHalf, "the measurement");
      else
        file.read(reads, to_read.get(), kHalf, kHalf, "the measurement");
      moved += kHalf;
    }
  }).join();
  return 1e-9 * double(moved) / watch.seconds();
} catch (const UsageError&) {
  return 0;
}

void drop_caches(const std::filesystem::path& path) {
  for (const auto& entry : std::filesystem::recursive_directory_iterator(path)) {
    if (!entry.is_regular_file()) continue;
    const base::FileDescriptor file = base::open_file(entry.path(), O_RDONLY);
    posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED);
  }
}

}  // namespace trireme::bench
