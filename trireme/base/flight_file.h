// The flight recorder's file: what one rank is doing now, and its last calls, in a layout of fixed size. The rank
// writes it through a mapping (comm/flight_recorder.h). The launcher reads it while the rank hangs or is stopped, and
// `trireme report hang` after the job has ended. Reading needs no help from the rank. The file outlives the rank; if
// the machine fails, the last seconds are lost. Nothing here needs LibTorch, because the launcher runs without it.
#pragma once

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::base {

constexpr char kFlightMagic[8] = {'T', 'R', 'F', 'L', 'I', 'G', 'H', '1'};
constexpr int kFlightRecords = 256, kFlightGroups = 24, kFlightMembers = 64;

/// Text in N bytes: cut if it is too long, always with a terminating zero.
template <int N>
struct FixedText {
  char text[N];
  void operator=(std::string_view from) {
    const size_t n = from.copy(text, N - 1);
    text[n] = '\0';
  }
  std::string_view view() const { return {text, strnlen(text, N)}; }
};

enum class CallState : int32_t { started, finished, failed };

struct FlightRecord {
  uint64_t id;  ///< number of the record in its process, from 1; 0: no record
  uint64_t sequence;  ///< of the call in its group
  int64_t elements, bytes;
  int64_t started_us, finished_us;  ///< since 1970; finished_us is 0 until the call ends
  int64_t step;
  int32_t peer;  ///< the other rank's number in the group if this is a message, else -1
  CallState state;
  uint8_t operation_code, dtype_code;  ///< comm::Operation, at::ScalarType
  FixedText<30> operation;
  FixedText<16> dtype;
  FixedText<32> group;
  FixedText<64> action;
};

/// A group of ranks that the rank belongs to.
struct FlightGroup {
  FixedText<32> name;
  uint64_t key;  ///< made from name and members: equal on all members, and on no other rank
  int32_t size, rank;  ///< `rank`: of this rank in the group
  uint64_t num_calls;  ///< collectives made so far
  int32_t members[kFlightMembers];  ///< global ranks, as many as fit
};

struct FlightHeader {
  char magic[8];
  int64_t header_bytes, record_bytes;
  int32_t capacity, num_groups;
  int32_t global_rank, world_size;
  int64_t pid;
  uint64_t process_start;  ///< clock ticks since boot, because a pid may be reused
  int64_t opened_us;
  int64_t timeout_ms;
  FixedText<64> host;
  FixedText<64> job;
  // What the rank does now.
  uint64_t last_id;
  int64_t step;
  int64_t since_us;  ///< when the rank began the phase or action below
  FixedText<64> phase;  ///< "evaluate", "save"; empty in a training step
  FixedText<64> action;  ///< of the schedule; empty between steps
  uint64_t waiting_id;  ///< the record that the thread waits for; 0: it does not wait
  int64_t waiting_since_us;
  int64_t seen_us;  ///< when the waiting thread last checked
  int64_t gave_up_us;  ///< when it stopped waiting, with an error; 0: it has not
  FlightGroup groups[kFlightGroups];
};

/// One rank's file as read.
struct FlightLog {
  FlightHeader header;
  std::vector<FlightRecord> records;  ///< oldest first
};

constexpr int64_t flight_file_bytes(int capacity) {
  return static_cast<int64_t>(sizeof(FlightHeader)) + capacity * static_cast<int64_t>(sizeof(FlightRecord));
}

/// "<out_dir>/flight".
std::filesystem::path flight_folder(const std::filesystem::path& out_dir);
/// "<folder>/rank3.flight".
std::filesystem::path flight_file(const std::filesystem::path& folder, int global_rank);

/// Reads the bytes of a flight file, aligned as in a mapping. Each record is consistent in itself. The header's fields,
/// and a record's end, may be from slightly different moments.
/// Errors    UsageError naming `what` if it is not a flight file of this version
FlightLog read_flight(const void* bytes, int64_t size, const std::string& what);

/// The ranks' files of the newest job in `folder`, by rank. Other files, and those of earlier jobs, are left out.
std::vector<FlightLog> read_flights(const std::filesystem::path& folder);

/// Microseconds since 1970.
int64_t now_us();

}  // namespace trireme::base
