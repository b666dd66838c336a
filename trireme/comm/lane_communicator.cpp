#include "trireme/comm/lane_communicator.h"

#include <fmt/format.h>

#include <chrono>

#include "trireme/comm/flight_recorder.h"

namespace trireme::comm {
namespace {
using Clock = std::chrono::steady_clock;

// Records that the calling thread waits for the call.
class RecordedWork final : public Work {
 public:
  RecordedWork(std::shared_ptr<LaneWork> work, std::shared_ptr<FlightRecorder> recorder, uint64_t record_id)
      : work_(std::move(work)), recorder_(std::move(recorder)), record_id_(record_id) {}

  bool poll() override { return work_->poll(); }
  void wait() override {
    if (poll()) return;
    const FlightRecorder::Waiting waiting(recorder_.get(), record_id_);
    while (!work_->wait_for(std::chrono::milliseconds(100))) waiting.still();
  }

 private:
  std::shared_ptr<LaneWork> work_;
  std::shared_ptr<FlightRecorder> recorder_;
  uint64_t record_id_;
};
}  // namespace

LaneCommunicator::LaneCommunicator(Group group)
    : CheckedCommunicator(std::move(group)), collectives_(std::make_unique<Lane>()) {}

double LaneCommunicator::background_seconds() const {
  double sum = collectives_->busy_seconds();
  for (const auto& [key, lane] : messages_) sum += lane->busy_seconds();
  return sum;
}

WorkPtr LaneCommunicator::start(Call call) {
  Lane& lane = lane_of(call);
  const uint64_t record_id = call.record_id;
  std::shared_ptr<LaneWork> work = lane.run([this, call = std::move(call)] {
    const auto begin = Clock::now();
    try {
      check_usable(call);
      is_message(call.collective.operation) ? run_message(call) : run_collective(call);
      finished(call);
    } catch (const TransportFailure& failure) {
      failed(call);
      break_group(call, failure, elapsed_since(begin));
    } catch (...) {
      failed(call);
      throw;
    }
  });
  if (!group().recorder) return work;
  return std::make_shared<RecordedWork>(std::move(work), group().recorder, record_id);
}

Lane& LaneCommunicator::lane_of(const Call& call) {
  if (!is_message(call.collective.operation)) return *collectives_;
  auto& lane = messages_[{call.collective.operation, call.collective.root}];
  if (!lane) lane = std::make_unique<Lane>();
  return *lane;
}

void LaneCommunicator::end_lanes() {
  collectives_.reset();
  messages_.clear();
}

bool LaneCommunicator::is_broken() const {
  std::lock_guard lock(mutex_);
  return !broken_.empty();
}

void LaneCommunicator::check_usable(const Call& call) const {
  std::lock_guard lock(mutex_);
  if (!broken_.empty()) throw_comm_error(group(), call, -1, {}, broken_);
}

void LaneCommunicator::break_group(const Call& call, const TransportFailure& failure,
                                   std::chrono::milliseconds elapsed) {
  gave_up();
  {
    std::lock_guard lock(mutex_);
    if (broken_.empty())
      broken_ = fmt::format("the group is unusable since {} #{}: {}", to_string(call.collective.operation),
                            call.sequence, failure.what());
  }
  throw_comm_error(group(), call, failure.peer, elapsed, failure.what());
}

}  // namespace trireme::comm
