// A save in phases, so that it can go on beside a training loop: each phase is work of every rank for itself
// (write the pieces, hash blocks that several ranks filled, publish), and between two of them the ranks meet.
//
//     SaveJob job(request, world, {.background = true});   // collective; checked, folder made, writing has begun
//     while (training) {
//       step();
//       if (all ranks: job.idle()) job.advance();          // collective; agree on it with whatever the loop sends
//       anyway
//     }
//     job.finish();                                        // collective; waits
//
// Threads in the background only touch files: no collective is called from them.
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
    bool background = false;  ///< phases run in a thread of low priority; otherwise inside advance()
  };

  /// Begins to plan, alone: what ranks have to agree on waits for advance(). The pieces' memory must not change until
  /// committed().
  ///
  /// Ordering  every rank of `world` must make one, and call advance() or finish() alike
  SaveJob(SaveRequest request, comm::Communicator& world, Options options);
  /// Abandons a save that is not committed: stops its thread and removes the folder, without any other rank.
  ~SaveJob();

  int64_t step() const { return request_.step; }
  /// True when this rank's work of the phase is over: advance() will not wait for this rank.
  bool idle() const { return idle_; }
  bool committed() const { return phase_ == Phase::committed; }

  /// Ends the phase (waits where it is not over) and begins the next.
  /// Errors    as save_checkpoint, the same on every rank; the unfinished folder is gone then
  void advance();

  /// Advances to the end. With Options::background off this is where everything happens.
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
  std::unique_ptr<TemporaryFolder> temporary_;  // rank 0's hold on it
  Phase phase_ = Phase::planning;
  std::vector<BlockHash> hashes_;  // of this rank
  Extreme extreme_;  // of this rank's pieces
  std::chrono::duration<double> worked_{};
  SaveResult result_;

  // The phase under way.
  std::function<void(std::stop_token)> work_;  // in the foreground: not yet done
  std::exception_ptr failure_;
  std::atomic<bool> idle_{true};
  std::jthread thread_;
};

}  // namespace trireme::checkpoint
