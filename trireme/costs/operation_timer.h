// Times every operation of a run, by its shape: where a step's time goes, and what `bench calibrate` writes down.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "trireme/costs/hardware.h"
#include "trireme/ops/announce.h"

namespace trireme::costs {

/// The mean of an operation's calls of one shape, without the slowest twentieth.
struct TimedOperation {
  ops::Operation operation;
  double seconds = 0;  ///< of a call
  int64_t calls = 0;
};

/// Listens on this thread between start() and stop(). Four reads of clocks an operation; on a GPU two marks, and the
/// host does not wait.
class OperationTimer final : public ops::Listener {
 public:
  explicit OperationTimer(bool on_gpu = false) : on_gpu_(on_gpu) {}
  ~OperationTimer() override { stop(); }
  OperationTimer(const OperationTimer&) = delete;
  OperationTimer& operator=(const OperationTimer&) = delete;

  void start();
  void stop();

  bool begins(const ops::Operation& operation) override;
  void ends() override;

  /// The longest in all first. On a GPU it waits for the end of what was launched.
  std::vector<TimedOperation> operations();

  /// Seconds inside operations in which this thread was on no core; 0 on a GPU.
  double lacking() const { return lacking_; }

 private:
  using Key = std::tuple<std::string, at::ScalarType, int64_t, int64_t, int64_t>;
  struct Calls {
    ops::Operation operation;
    std::vector<float> seconds;
  };
  bool on_gpu_, listens_ = false;
  ops::Listener* before_ = nullptr;
  std::map<Key, Calls> calls_;
  Calls* current_ = nullptr;
  std::vector<Calls*> marked_;  ///< on a GPU: the call between marks 2 i and 2 i + 1
  std::chrono::steady_clock::time_point begun_;
  double cpu_begun_ = 0, lacking_ = 0;
};

}  // namespace trireme::costs
