// The flight recorder: the last calls of this rank, what it does now and what it waits for, so that after a hang or a
// loss one can see what each rank was doing. Always on: recording costs well under a microsecond. With a file it writes
// through a mapping, in the layout of base/flight_file.h, which others read while this rank is stuck and after it is
// gone (launch/hang.h, `trireme report hang`); without one it keeps the same bytes in memory. Plain object, passed in
// by the caller: nothing here is global.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>

#include "trireme/base/flight_file.h"
#include "trireme/comm/collective.h"

namespace trireme::comm {

struct Group;

/// What a call is made for, "Unshard(block 3)": ranks compare it, so that equal calls of different actions do not
/// match.
struct ActionLabel {
  explicit ActionLabel(std::string text_ = {}) : text(std::move(text_)), hash(std::hash<std::string>()(text)) {}
  std::string text;
  uint64_t hash;
};

class FlightRecorder {
 public:
  using State = base::CallState;
  struct Entry {
    uint64_t id = 0;  ///< number of the record in this process, from 1
    uint64_t sequence = 0;  ///< number of the call in its group
    std::string group;
    std::string action;  ///< of the schedule; empty outside of one
    Operation operation = Operation::barrier;
    at::ScalarType dtype = at::ScalarType::Undefined;
    int64_t elements = 0;
    std::chrono::system_clock::time_point started, finished;
    State state = State::started;
  };

  /// Who records, for those who read the file.
  struct Owner {
    int global_rank = 0, world_size = 1;
    std::string job = {};  ///< the same on all ranks, another one for each attempt
    std::chrono::milliseconds timeout{0};
  };

  /// Keeps its records in memory.
  explicit FlightRecorder(int capacity = base::kFlightRecords);
  /// Keeps them in `folder`/rank<N>.flight, a new file; in memory, with a warning, where that cannot be written.
  FlightRecorder(const std::filesystem::path& folder, const Owner& owner);
  /// In the folder that the launcher names (TRIREME_FLIGHT_FOLDER), else in `otherwise`; in memory where that is empty,
  /// and for a world of one, which waits for nobody.
  static std::shared_ptr<FlightRecorder> of_environment(Owner owner, const std::filesystem::path& otherwise = {});
  ~FlightRecorder();
  FlightRecorder(const FlightRecorder&) = delete;
  FlightRecorder& operator=(const FlightRecorder&) = delete;

  /// Makes a group known to readers; each communicator does it when it is made.
  void join(const Group& group);

  // What the rank does; by the one thread that also makes the calls.
  void set_phase(std::string_view phase);  ///< "evaluate", "save"; empty: training
  void set_step(int64_t step);
  /// `label` is compared with that of the peers' calls until the next one, or the end of the Actions around it; it has
  /// to live that long.
  void set_action(const ActionLabel& label);
  const ActionLabel* action() const { return action_; }

  /// Returns the id under which finish() knows the call. `peer` is the group rank of a message's other end.
  uint64_t start(const std::string& group, uint64_t sequence, Operation operation, at::ScalarType dtype,
                 int64_t elements, int peer = -1);
  /// Does nothing when the entry has been overwritten since.
  void finish(uint64_t id, State state);

  /// The life of a list of actions, which begins with none; at its end the rank is where it was before. Ends it by an
  /// exception, then readers still find the action that threw.
  class Actions {
   public:
    explicit Actions(FlightRecorder* recorder);
    ~Actions();
    Actions(const Actions&) = delete;
    Actions& operator=(const Actions&) = delete;

   private:
    FlightRecorder* recorder_;
    const ActionLabel* before_;
    int exceptions_;
  };

  /// Says for its life that this thread waits for record `id`; when it ends by an exception, that it gave up.
  class Waiting {
   public:
    Waiting(FlightRecorder* recorder, uint64_t id);
    ~Waiting();
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;
    /// It still waits; said now and then, so that a reader knows for how long when all is over.
    void still() const;

   private:
    FlightRecorder* recorder_;
    int exceptions_;
  };

  /// " in Unshard(block 3) of step 12" for a record that is still held; else empty.
  std::string where(uint64_t id) const;

  /// The entries that are still held, oldest first.
  std::vector<Entry> entries() const;

 private:
  void open(const std::filesystem::path& path);
  base::FlightHeader& header() const { return *static_cast<base::FlightHeader*>(memory_); }
  base::FlightRecord& record(uint64_t id) const;

  mutable std::mutex mutex_;
  std::unique_ptr<std::byte[]> own_;
  void* memory_ = nullptr;
  int64_t mapped_bytes_ = 0;
  const ActionLabel* action_ = nullptr;
};

}  // namespace trireme::comm
