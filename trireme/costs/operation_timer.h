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

/// Listens on this thread from its construction to its destruction. Two reads of the clock an operation.
class OperationTimer final : public ops::Listener {
 public:
  OperationTimer() : before_(ops::listen(this)) {}
  ~OperationTimer() override { ops::listen(before_); }
  OperationTimer(const OperationTimer&) = delete;
  OperationTimer& operator=(const OperationTimer&) = delete;

  bool begins(const ops::Operation& operation) override;
  void ends() override;

  /// The longest in all first.
  std::vector<TimedOperation> operations() const;

 private:
  using Key = std::tuple<std::string, at::ScalarType, int64_t, int64_t, int64_t>;
  struct Calls {
    ops::Operation operation;
    std::vector<float> seconds;
  };
  ops::Listener* before_;
  std::map<Key, Calls> calls_;
  Calls* current_ = nullptr;
  std::chrono::steady_clock::time_point begun_;
};

}  // namespace trireme::costs
