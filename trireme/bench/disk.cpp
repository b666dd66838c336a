#include "trireme/bench/disk.h"

#include <fcntl.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <ctime>
#include <random>
#include <span>
#include <vector>

#include "trireme/base/crew.h"
#include "trireme/base/files.h"
#include "trireme/base/stopwatch.h"
#include "trireme/checkpoint/disk.h"
#include "trireme/engine/arena.h"
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
  if (reserve) base::reserve_bytes(file.get(), bytes);  // if the file system cannot reserve, the writes succeed anyway
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

DiskRates offload_rates(const std::filesystem::path& folder, int64_t buffers) try {
  // A value of a tile of the optimizer's state at a time (plan::StepPlan::step_tile). Of each direction as much memory
  // as the matrices of a group, and more of the disk than its own cache may hold.
  constexpr int64_t kPart = int64_t{4} << 20, kParts = 64, kMemory = 16 * kPart;
  constexpr double kSeconds = 2;
  enum class Way { read, write };
  engine::OffloadFile file(folder, 2 * kParts * kPart);
  // As the arena, on huge pages: a disk may take a page at a time, which was measured to take up to four times as long.
  const engine::MappedMemory to_write(kMemory), to_read(kMemory);
  const auto at = [](const engine::MappedMemory& memory, int64_t part) {
    return static_cast<char*>(memory.data()) + part * kPart % kMemory;
  };
  for (int64_t piece = 0; piece < kMemory; piece += kPiece)
    std::memcpy(static_cast<char*>(to_write.data()) + piece, noise().data(), kPiece);
  const int depth = static_cast<int>(buffers);
  engine::BlockIo writes(file.descriptor(), depth), reads(file.descriptor(), depth);
  for (int64_t part = 0; part < 2 * kParts; ++part)
    file.write(writes, at(to_write, part), part * kPart, kPart, "the measurement");
  struct Measured {
    double rate, work;
  };
  const auto measure = [&](const std::vector<Way>& ways) {
    std::atomic<int64_t> moved{0};
    const std::clock_t busy = std::clock();  // of all threads
    const base::Stopwatch watch;
    base::Crew(ways.size(), [&](size_t i) {
      for (int64_t part = 0; watch.seconds() < kSeconds; part = (part + 1) % kParts) {
        if (ways[i] == Way::write)
          file.write(writes, at(to_write, part), part * kPart, kPart, "the measurement");
        else
          file.read(reads, at(to_read, part), (kParts + part) * kPart, kPart, "the measurement");
        moved += kPart;
      }
    }).join();
    const double seconds = watch.seconds(), gigabytes = 1e-9 * double(moved);
    return Measured{gigabytes / seconds, double(std::clock() - busy) / CLOCKS_PER_SEC / gigabytes};
  };
  const Measured both = measure({Way::read, Way::write});
  return {.both = both.rate, .read = measure({Way::read}).rate, .write = measure({Way::write}).rate, .work = both.work};
} catch (const UsageError&) {
  return {};
}

void drop_caches(const std::filesystem::path& path) {
  for (const auto& entry : std::filesystem::recursive_directory_iterator(path)) {
    if (!entry.is_regular_file()) continue;
    const base::FileDescriptor file = base::open_file(entry.path(), O_RDONLY);
    posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED);
  }
}

}  // namespace trireme::bench
