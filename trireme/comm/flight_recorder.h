// The flight recorder: the last calls of this rank, what the rank does now, and what it waits for. After a hang or the
// loss of a rank it shows what each rank was doing. It is always on: recording costs well under a microsecond. It
// writes to a mapped file in the layout of base/flight_file.h, which other processes read while this rank is stuck or
// after it has ended (launch/hang/hang.h, `trireme report hang`). Without a file it keeps the same bytes in memory.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>

#include "trireme/base/checksum.h"
#include "trireme/base/flight_file.h"
#include "trireme/comm/collective.h"

namespace trireme::comm {

struct Group;

/// The entry of the training step's list that makes a call: "Unshard(block 3)". Ranks compare it: equal calls of
/// different actions do not match.
struct ActionLabel {
  explicit ActionLabel(std::string text_ = {}) : text(std::move(text_)), hash(base::hash_text(text)) {}
  std::string text;
  uint64_t hash;
};

class FlightRecorder {
 public:
  using State = base::CallState;

  /// The recording rank, as the file names it.
  struct Owner {
    int global_rank = 0, world_size = 1;
    std::string job = {};  ///< the same on all ranks, new for each attempt
    std::chrono::milliseconds timeout{0};
  };

  /// Keeps its records in memory.
  explicit FlightRecorder(int capacity = base::kFlightRecords);
  /// Keeps them in a new file, `folder`/rank<N>.flight. If it cannot be written, warns and keeps them in memory.
  FlightRecorder(const std::filesystem::path& folder, const Owner& owner);
  /// Uses the launcher's folder (TRIREME_FLIGHT_FOLDER), or else the folder `otherwise`. Keeps the records in memory if
  /// there is no folder, or in a world of one rank.
  static std::shared_ptr<FlightRecorder> of_environment(Owner owner, const std::filesystem::path& otherwise = {});
  ~FlightRecorder();

  /// Adds a group to the file. Each new communicator calls it.
  void join(const Group& group);

  // What the rank does; called by the thread that makes the calls.
  void set_phase(std::string_view phase);  ///< "evaluate", "save"; empty: training
  void set_step(int64_t step);
  /// Calls carry `label` until the next set_action, or until the surrounding Actions ends. `label` must live that long.
  void set_action(const ActionLabel& label);
  const ActionLabel* action() const { return action_; }

  /// Returns the id for finish(). `peer` is the group rank of a message's other end.
  uint64_t start(const std::string& group, uint64_t sequence, Operation operation, at::ScalarType dtype,
                 int64_t elements, int peer = -1);
  /// Does nothing if the record has been overwritten since.
  void finish(uint64_t id, State state);

  /// The scope of a list of actions. It begins without an action, and its end restores the earlier action. If an
  /// exception ends the scope, readers still see the action that threw.
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

  /// While this object lives, the thread waits for record `id`. If an exception ends it, the thread has given up.
  class Waiting {
   public:
    Waiting(FlightRecorder* recorder, uint64_t id);
    ~Waiting();
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;
    /// Call it regularly during the wait: readers see from it how long the wait lasted.
    void still() const;

   private:
    FlightRecorder* recorder_;
    int exceptions_;
  };

  /// " in Unshard(block 3) of step 12" if the record is still held; else empty.
  std::string where(uint64_t id) const;

  /// The records that are still held, oldest first.
  std::vector<base::FlightRecord> records() const;

 private:
  void keep_in_memory(int capacity);
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
