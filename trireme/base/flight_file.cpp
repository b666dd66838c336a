#include "trireme/base/flight_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "trireme/base/files.h"

namespace trireme::base {
namespace fs = std::filesystem;

fs::path flight_folder(const fs::path& out_dir) { return out_dir / "flight"; }

fs::path flight_file(const fs::path& folder, int global_rank) {
  return folder / fmt::format("rank{}.flight", global_rank);
}

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
  for (int i = 0; i < h.capacity; ++i, from += sizeof(FlightRecord)) {
    FlightRecord record;
    std::memcpy(&record, from, sizeof record);
    if (record.id > 0) log.records.push_back(record);
  }
  std::ranges::sort(log.records, {}, &FlightRecord::id);
  return log;
}

std::vector<FlightLog> read_flights(const fs::path& folder) {
  std::vector<FlightLog> logs;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().extension() != ".flight") continue;
    try {
      const std::string bytes = read_file(entry.path());
      logs.push_back(read_flight(bytes.data(), static_cast<int64_t>(bytes.size()), entry.path().string()));
    } catch (const UsageError&) {  // another version's, or gone meanwhile
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
