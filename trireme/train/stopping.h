// Stopping: all ranks decide together whether a run ends before its last step, because a rank was asked to stop or
// because train.max_time is over.
//
// A signal or a notice reaches one rank (launch/supervise/stop_signal.h, launch/supervise/notice.h). agree() and
// commit() make it the decision of all ranks, at the same place. Between two such calls a rank may *hear* that another
// rank was asked to stop. That is only a hint: with it, a rank can give up a step that would take too long.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "trireme/launch/supervise/notice.h"
#include "trireme/train/session.h"

namespace trireme::train {

launch::NoticeOptions notice_options(const launch::LaunchSettings& settings);

class Stopping {
 public:
  /// Cost      with several ranks, one thread that sends a request of some 50 bytes twice a second
  explicit Stopping(Session& session);
  ~Stopping() { close(); }
  Stopping(const Stopping&) = delete;
  Stopping& operator=(const Stopping&) = delete;

  /// train.max_time counts from here.
  void start_clock() { began_ = std::chrono::steady_clock::now(); }
  /// Until train.max_time, at least 0; NaN without.
  double seconds_to_limit() const;

  /// Call it where a run can stop, with nothing half done. Returns whether all ranks stop. Every rank must call.
  /// Cost      an all_reduce of 32 bytes
  bool agree();

  /// Called once a step, before the optimizer. Returns whether the step counts. A request or the time limit at any rank
  /// stops all ranks after the same step. `is_busy`: this rank works on a save beside training. Every rank must call.
  /// Cost      an all_reduce of 32 bytes
  bool commit(bool gave_up, bool is_busy);

  /// Whether a stop was requested here, or up to a second ago at another rank. Cheap: two atomic loads.
  bool is_requested() const;
  /// What is left of launch.grace since the request; meaningless before is_requested().
  double seconds_left() const;

  bool stops() const { return stops_; }
  bool time_is_up() const { return time_is_up_; }
  bool any_is_busy() const { return any_is_busy_; }  ///< when the last step was committed

  /// Stops listening to other ranks: called before the rank that serves the store may go.
  void close();
  /// Says "stopped before the first step by request (...)". Rank 0 says it to the user; other ranks of our launcher say
  /// it in their logs.
  void tell(const std::string& where) const;
  /// What rank 0 says at the end of a run that was asked to stop: before its last step (`is_early`), or too late.
  std::string last_words(int64_t step, bool is_early, bool has_held_out) const;

 private:
  struct Ear;
  /// Returns the largest of each word over all ranks; the first word is a request to stop.
  std::array<int64_t, 4> exchange(bool time_is_up, bool is_busy, bool gave_up);
  /// "by request (SIGTERM at rank 3)"
  std::string reason() const;

  Session& s_;
  std::shared_ptr<Ear> ear_;  ///< outlives this object if its thread waits for an answer
  std::unique_ptr<launch::NoticeWatch> notice_;
  std::string why_;  ///< "SIGTERM at rank 3", "SIGINT at the launcher"; set when the ranks have agreed to stop
  bool stops_ = false, time_is_up_ = false, any_is_busy_ = false;
  std::chrono::steady_clock::time_point began_;
};

}  // namespace trireme::train
