// One decision of all ranks whether the run stops, and with it what else they tell each other at a safe point.
//
// A signal or a notice reaches one rank (launch/stop_signal.h, launch/notice.h). agree() makes it the decision of all,
// at the same place. Between two safe points a rank may also *hear* that another was asked to stop: that is a hint, by
// which it gives up a step that would take too long, and no decision.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "trireme/comm/communicator.h"
#include "trireme/config/settings.h"
#include "trireme/launch/environment.h"
#include "trireme/launch/notice.h"

namespace trireme::train {

launch::NoticeOptions notice_options(const config::LaunchSettings& settings);

/// What one rank says at a safe point, and what all of them together do: each is true where any rank says so.
struct StopWord {
  bool time_is_up = false;  ///< train.max_time
  bool is_busy = false;     ///< with a save beside training
  bool gave_up = false;     ///< the step under way
};

class StopDecision {
 public:
  struct Options {
    comm::Communicator* world = nullptr;
    c10::intrusive_ptr<c10d::Store> store = {};  ///< ranks hear each other through it; null: only at safe points
    std::string name = {};                       ///< this attempt's, in the store's keys
    std::chrono::milliseconds grace{30'000};
    std::optional<launch::NoticeOptions> notice = {};  ///< on the rank that looks for its machine
  };

  /// Cost      with a store, one thread that makes a request of some 50 bytes twice a second
  explicit StopDecision(Options options);
  ~StopDecision();
  StopDecision(const StopDecision&) = delete;
  StopDecision& operator=(const StopDecision&) = delete;

  /// Whether all stop, decided together. Every rank must call.
  /// Cost      an all_reduce of 32 bytes
  struct Agreed : StopWord {
    bool stops = false;
  };
  Agreed agree(const StopWord& mine = {});

  /// Whether a stop was asked here, or, up to a second ago, at another rank. Cheap: two atomic loads.
  bool heard() const;
  /// Of the grace time, from the request on; meaningless before heard().
  std::chrono::duration<double> left() const;
  /// "SIGTERM at rank 3", "SIGINT at the launcher", once the ranks have agreed to stop.
  const std::string& why() const { return why_; }
  /// No hearing any more: before the store's rank may go.
  void close();

 private:
  struct Ear;
  Options options_;
  std::shared_ptr<Ear> ear_;  ///< outlives this where its thread is stuck in a request
  std::unique_ptr<launch::NoticeWatch> notice_;
  std::string why_;
};

}  // namespace trireme::train
