// The flight recorder: the last N communications of this rank, kept in a ring, so that after a hang or a loss
// one can see what each rank was doing. Recording costs well under a microsecond; dump() writes JSON lines that
// can be laid side by side for all ranks. Plain object, passed in by the caller: nothing here is global.
#pragma once

#include "trireme/comm/collective.h"

#include <mutex>

namespace trireme::comm {

class FlightRecorder {
 public:
  enum class State : uint8_t { started, finished, failed };
  struct Entry {
    uint64_t id = 0;        ///< number of the record in this process, from 1
    uint64_t sequence = 0;  ///< number of the call in its group
    std::string group;
    Operation operation = Operation::barrier;
    at::ScalarType dtype = at::ScalarType::Undefined;
    int64_t elements = 0;
    std::chrono::system_clock::time_point started, finished;
    State state = State::started;
  };

  explicit FlightRecorder(int capacity = 1024);

  /// Returns the id under which finish() knows the call.
  uint64_t start(const std::string& group, uint64_t sequence, Operation operation, at::ScalarType dtype,
                 int64_t elements);
  /// Does nothing when the entry has been overwritten since.
  void finish(uint64_t id, State state);

  /// The entries that are still held, oldest first.
  std::vector<Entry> entries() const;

  /// Writes entries() to `path`, one JSON object a line with the keys id, sequence, group, operation, dtype,
  /// elements, started_us, finished_us (null while under way; microseconds since 1970) and state.
  /// Errors    UsageError when the file cannot be written
  void dump(const std::string& path) const;

 private:
  mutable std::mutex mutex_;
  std::vector<Entry> ring_;
  uint64_t last_id_ = 0;
};

}  // namespace trireme::comm
