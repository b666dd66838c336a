#include "trireme/comm/lane_communicator.h"

#include <fmt/format.h>

#include <chrono>

namespace trireme::comm {
namespace {

using Clock = std::chrono::steady_clock;

bool is_message(Operation operation) { return operation == Operation::send || operation == Operation::receive; }

}  // namespace

LaneCommunicator::LaneCommunicator(Group group)
    : CheckedCommunicator(std::move(group)), collectives_(std::make_unique<Lane>()) {}

SharedBuffer LaneCommunicator::allocate_shared(int64_t bytes, bool) {
  const int64_t rounded = whole_pages(bytes);
  mappings_.push_back(Mapping::create_private(
      rounded, rounded, fmt::format("allocate_shared of group '{}' on {}", name(), name_rank(group(), rank()))));
  void* mine = mappings_.back()->data();
  return {.mine = mine, .parts = {mine}, .host_shared = false};
}

double LaneCommunicator::background_seconds() const {
  double sum = collectives_->busy_seconds();
  for (const auto& [key, lane] : messages_) sum += lane->busy_seconds();
  return sum;
}

WorkPtr LaneCommunicator::start(Call call) {
  Lane& lane = lane_of(call);
  return lane.run([this, call = std::move(call)] {
    const auto begin = Clock::now();
    try {
      check_usable(call);
      is_message(call.collective.operation) ? run_message(call) : run_collective(call);
      finished(call);
    } catch (const TransportFailure& failure) {
      failed(call);
      break_group(call, failure, std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begin));
    } catch (...) {
      failed(call);
      throw;
    }
  });
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
  std::string broken;
  {
    std::lock_guard lock(mutex_);
    broken = broken_;
  }
  if (!broken.empty()) throw_comm_error(group(), call.collective.operation, call.sequence, -1, {}, broken);
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
  throw_comm_error(group(), call.collective.operation, call.sequence, failure.peer, elapsed, failure.what());
}

}  // namespace trireme::comm
