#include "trireme/base/flight_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <optional>

#include "trireme/base/files.h"

namespace trireme::base {
namespace fs = std::filesystem;

fs::path flight_folder(const fs::path& out_dir) { return out_dir / "flight"; }

fs::path flight_file(const fs::path& folder, int global_rank) {
  return folder / fmt::format("rank{}.flight", global_rank);
}

namespace {

// The rank may overwrite the record at any time. Meanwhile the id (the first field) is 0, and afterwards it is a new
// one. So if the id is the same before and after the copy, the copy is one whole record. Nothing if there is no record,
// or if the rank overwrites it during each of a few tries.
std::optional<FlightRecord> read_record(const std::byte* from) {
  constexpr int kTries = 8;
  const auto* id = reinterpret_cast<const uint64_t*>(from);
  static_assert(offsetof(FlightRecord, id) == 0 && sizeof(FlightRecord) % alignof(uint64_t) == 0);
  for (int i = 0; i < kTries; ++i) {
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

}  // namespace

FlightLog read_flight(const void* bytes, int64_t size, const std::string& what) {
  FlightLog log{};
  const auto refuse = [&](const char* why) {
    throw UsageError(fmt::format("{} is no flight recorder's file of this version: {}", what, why));
  };
  if (size < static_cast<int64_t>(sizeof(FlightHeader))) refuse("it is too short");
  // Read first, so that the groups that it counts are whole.
  const int32_t num_groups = __atomic_load_n(&static_cast<const FlightHeader*>(bytes)->num_groups, __ATOMIC_ACQUIRE);
  std::memcpy(&log.header, bytes, sizeof log.header);
  FlightHeader& h = log.header;
  if (std::memcmp(h.magic, kFlightMagic, sizeof h.magic) != 0) refuse("it begins with other bytes");
  if (h.header_bytes != sizeof(FlightHeader) || h.record_bytes != sizeof(FlightRecord))
    refuse("its parts differ in size");
  if (h.capacity < 1 || h.capacity > 1 << 20 || size < flight_file_bytes(h.capacity)) refuse("records are missing");
  h.num_groups = std::clamp(num_groups, 0, kFlightGroups);
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
      const MappedFile file(entry.path());
      logs.push_back(read_flight(file.bytes().data(), std::ssize(file.bytes()), entry.path().string()));
    } catch (const Error&) {  // of another version, or removed meanwhile
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
