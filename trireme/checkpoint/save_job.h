// SaveJob: a save in phases, so that it can run in the background of a training loop. In a phase (writing, hashing,
// publishing, ...) every rank works alone. Between two phases the ranks communicate.
//
//     SaveJob job(request, world, {.background = true});   // collective; checked, folder made, writing has begun
//     while (training) {
//       step();
//       if (job.idle() on all ranks) job.advance();        // collective; the loop must learn whether all are idle
//     }
//     job.finish();                                        // collective; waits
//
// Background threads only read and write files: they call no collective.
#pragma once

#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "trireme/checkpoint/extreme.h"
#include "trireme/checkpoint/folders.h"
#include "trireme/checkpoint/piece_writer.h"
#include "trireme/checkpoint/save.h"
#include "trireme/checkpoint/save_plan.h"

namespace trireme::checkpoint {

class SaveJob {
 public:
  struct Options {
    bool background = false;  ///< true: phases run in a thread of low priority; false: inside advance()
  };

  /// Begins to plan, without communication: the ranks compare their plans in advance(). The pieces' memory must not
  /// change until committed().
  ///
  /// Ordering  every rank of `world` must make a job, and call advance() and finish() in the same order
  SaveJob(SaveRequest request, comm::Communicator& world, Options options);
  /// Abandons a save that is not committed: stops its thread and removes the folder, without communication.
  ~SaveJob();

  int64_t step() const { return request_.step; }
  /// True if this rank has finished the phase, so that advance() will not wait for it.
  bool idle() const { return idle_; }
  bool committed() const { return phase_ == Phase::committed; }

  /// Waits for the end of the phase and begins the next one.
  /// Errors    as save_checkpoint, the same on every rank; the unfinished folder is then removed
  void advance();

  /// Advances to the end. Without Options::background, all remaining work is done here.
  SaveResult finish();
  /// Of a committed save.
  const SaveResult& result() const { return result_; }

 private:
  enum class Phase { planning, preparing, writing, hashing, publishing, committed };

  void prepare();
  std::string folder_name() const;
  void begin(const char* name, std::function<void(const BytesDone&, std::stop_token)> work);
  void begin_planning();
  void begin_preparing();
  void begin_writing();
  void begin_hashing();
  void begin_publishing();
  std::vector<uint64_t> gather_hashes();
  void publish(const std::vector<uint64_t>& hashes);
  void abandon();

  SaveRequest request_;
  comm::Communicator& world_;
  Options options_;
  std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
  SavePlan plan_;
  std::filesystem::path folder_;  // the unfinished folder, on every rank
  std::unique_ptr<TemporaryFolder> temporary_;  // on rank 0, its owner
  Phase phase_ = Phase::planning;
  std::vector<BlockHash> hashes_;  // of this rank
  Extreme extreme_;  // of this rank's pieces
  std::chrono::duration<double> worked_{};
  SaveResult result_;

  // The phase under way.
  std::function<void(std::stop_token)> work_;  // without a background: not yet done
  std::exception_ptr failure_;
  std::atomic<bool> idle_{true};
  std::jthread thread_;
};

}  // namespace trireme::checkpoint
