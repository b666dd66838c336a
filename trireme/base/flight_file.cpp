#include "trireme/base/flight_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <optional>
#include <span>

#include "trireme/base/files.h"

namespace trireme::base {
namespace fs = std::filesystem;

fs::path flight_folder(const fs::path& out_dir) { return out_dir / "flight"; }

fs::path flight_file(const fs::path& folder, int global_rank) {
  return folder / fmt::format("rank{}.flight", global_rank);
}

namespace {

// The rank may be writing over it. The id, its first field, is 0 meanwhile and another one afterwards: what was read
// between two looks at the same id is of one record. A rank that writes faster than this reads has no old record here.
std::optional<FlightRecord> read_record(const std::byte* from) {
  constexpr int kLooks = 8;
  const auto* id = reinterpret_cast<const uint64_t*>(from);
  static_assert(offsetof(FlightRecord, id) == 0 && sizeof(FlightRecord) % alignof(uint64_t) == 0);
  for (int i = 0; i < kLooks; ++i) {
    const uint64_t before = __atomic_load_n(id, __ATOMIC_ACQUIRE);
    FlightRecord record;
    std::memcpy(&record, from, sizeof record);
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    if (__atomic_load_n(id, __ATOMIC_RELAXED) != before) continue;
    if (before == 0) return std::nullopt;
    record.id = before;
    return record;
  }
  return std::nullopt;
}

// A file as it lies in memory now, shared with the rank that writes it; empty where it cannot be had.
class LiveFile {
 public:
  explicit LiveFile(const fs::path& path) {
    const FileDescriptor file = open_file(path, O_RDONLY);
    struct stat about{};
    if (fstat(file.get(), &about) != 0 || about.st_size < static_cast<off_t>(sizeof(FlightHeader))) return;
    void* at = mmap(nullptr, static_cast<size_t>(about.st_size), PROT_READ, MAP_SHARED, file.get(), 0);
    if (at != MAP_FAILED) bytes_ = {static_cast<const std::byte*>(at), static_cast<size_t>(about.st_size)};
  }
  ~LiveFile() {
    if (!bytes_.empty()) munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
  }
  LiveFile(const LiveFile&) = delete;
  LiveFile& operator=(const LiveFile&) = delete;
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace

FlightLog read_flight(const void* bytes, int64_t size, const std::string& what) {
  FlightLog log{};
  const auto refuse = [&](const char* why) {
    throw UsageError(fmt::format("{} is no flight recorder's file of this version: {}", what, why));
  };
  if (size < static_cast<int64_t>(sizeof(FlightHeader))) refuse("it is too short");
  std::memcpy(&log.header, bytes, sizeof log.header);
  FlightHeader& h = log.header;
  if (std::memcmp(h.magic, kFlightMagic, sizeof h.magic) != 0) refuse("it begins otherwise");
  if (h.header_bytes != sizeof(FlightHeader) || h.record_bytes != sizeof(FlightRecord))
    refuse("its parts differ in size");
  if (h.capacity < 1 || h.capacity > 1 << 20 || size < flight_file_bytes(h.capacity)) refuse("records are missing");
  h.num_groups = std::clamp(h.num_groups, 0, kFlightGroups);
  for (FlightGroup& g : h.groups) g.size = std::max(g.size, 0);
  const auto* from = static_cast<const std::byte*>(bytes) + sizeof h;
  for (int i = 0; i < h.capacity; ++i, from += sizeof(FlightRecord))
    if (const auto record = read_record(from)) log.records.push_back(*record);
  std::ranges::sort(log.records, {}, &FlightRecord::id);
  return log;
}

std::vector<FlightLog> read_flights(const fs::path& folder) {
  std::vector<FlightLog> logs;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().extension() != ".flight") continue;
    try {
      const LiveFile file(entry.path());
      logs.push_back(read_flight(file.bytes().data(), std::ssize(file.bytes()), entry.path().string()));
    } catch (const Error&) {  // another version's, or gone meanwhile
    }
  }
  if (logs.empty()) return logs;
  const FlightHeader newest =
      std::ranges::max_element(logs, {}, [](const FlightLog& l) { return l.header.opened_us; })->header;
  std::erase_if(logs, [&](const FlightLog& l) {
    return l.header.job.view() != newest.job.view() || l.header.world_size != newest.world_size;
  });
  std::ranges::sort(logs, {}, [](const FlightLog& l) { return l.header.global_rank; });
  return logs;
}

int64_t now_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace trireme::base
