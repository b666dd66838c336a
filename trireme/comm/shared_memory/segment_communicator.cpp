#include "trireme/comm/shared_memory/segment_communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>

#include "trireme/base/error.h"
#include "trireme/base/meter.h"
#include "trireme/comm/flight_recorder.h"

namespace trireme::comm {
namespace {
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kPeerCheckInterval{20};
// What counts of the time between two looks: more has passed where the rank was suspended (Ctrl-Z), as its peers were.
constexpr std::chrono::seconds kMostBetweenLooks{1};
constexpr milliseconds kLongestSleep{5};
// Another segment's doorbell does not wake this rank. So sleep is short while calls of siblings are in progress.
constexpr std::chrono::microseconds kSleepBetweenSiblings{100};

// Tasks kept for reuse: more than the number of calls in progress during a training step.
constexpr size_t kMaxFinished = 64;

// This rank's share of the last-level cache, in bytes.
int64_t cache_share(int size) {
  // Not from the C library: under a hypervisor it said 320 MiB where there were 32.
  std::ifstream file("/sys/devices/system/cpu/cpu0/cache/index3/size");
  int64_t kib = 0;
  return (file >> kib && kib > 0 ? kib << 10 : int64_t{32} << 20) / size;
}
}  // namespace

SegmentCommunicator::SegmentCommunicator(Group group, std::shared_ptr<SharedSegment> segment)
    : CheckedCommunicator(std::move(group)),
      sends_(size()),
      receives_(size()),
      spinner_(segment->has_core_for_each_rank()) {
  context_.group = CheckedCommunicator::group();
  context_.segment = std::move(segment);
  context_.cache_bytes = cache_share(size());
  context_.crowded = !context_.segment->has_core_for_each_rank();
}

SegmentCommunicator::~SegmentCommunicator() { context_.segment->leave(rank()); }

void TaskQueue::pop() {
  tasks_[first_++].reset();
  if (first_ == tasks_.size()) {
    tasks_.clear();
    first_ = 0;
  } else if (first_ >= 256) {  // a queue that is never empty must not grow for ever
    tasks_.erase(tasks_.begin(), tasks_.begin() + static_cast<std::ptrdiff_t>(first_));
    first_ = 0;
  }
}

std::shared_ptr<CollectiveTask> SegmentCommunicator::task_for(Call&& call) {
  for (auto& finished : finished_) {
    if (finished.use_count() > 1) continue;
    std::atomic_thread_fence(std::memory_order_acquire);  // another thread may have released it
    auto task = std::move(finished);
    finished = std::move(finished_.back());
    finished_.pop_back();
    task->reuse(call);
    recycle(std::move(call));
    return task;
  }
  return std::make_shared<CollectiveTask>(context_, std::move(call), weak_from_this());
}

WorkPtr SegmentCommunicator::enqueue(Call&& call) {
  if (const auto text = context_.segment->abort_text()) throw_aborted(call, *text);
  const Operation operation = call.collective.operation;
  if (is_message(operation)) {
    TaskQueue& queue = (operation == Operation::send ? sends_ : receives_)[call.collective.root];
    auto task = std::make_shared<MessageTask>(context_, std::move(call), weak_from_this());
    queue.push(task);
    ++num_messages_;
    drive(queue);
    return task;
  }
  auto task = task_for(std::move(call));
  collectives_.push(task);
  ++num_unpublished_;
  publish();
  return task;
}

// In the order of the calls: while one call waits for room, so do all later ones.
void SegmentCommunicator::publish() {
  const auto all = collectives_.all();
  while (num_unpublished_ > 0) {
    const size_t next = all.size() - num_unpublished_;
    if (!static_cast<CollectiveTask&>(*all[next]).publish(next == 0)) return;
    --num_unpublished_;
  }
}

bool SegmentCommunicator::drive(TaskQueue& queue) {
  bool moved = false;
  while (!queue.empty()) {
    SegmentTask& task = queue.front();
    try {
      moved |= task.advance();
    } catch (const CommError&) {
      failed(task.call());
      throw;
    }
    if (!task.done()) break;
    finished(task.call());
    if (&queue != &collectives_)
      --num_messages_;
    else if (finished_.size() < kMaxFinished)
      finished_.push_back(std::static_pointer_cast<CollectiveTask>(queue.front_pointer()));
    queue.pop();
  }
  return moved;
}

bool SegmentCommunicator::drive() {
  if (num_unpublished_ > 0) publish();
  bool moved = drive(collectives_);
  if (num_messages_ == 0) return moved;
  for (int k = 0; k < size(); ++k) {
    if (!sends_[k].empty()) moved |= drive(sends_[k]);
    if (!receives_[k].empty()) moved |= drive(receives_[k]);
  }
  return moved;
}

void SegmentCommunicator::progress() {
  if (!collectives_.empty())
    if (const auto text = context_.segment->abort_text()) throw_aborted(collectives_.front().call(), *text);
  drive();
}

void SegmentCommunicator::drive_while_waiting(const std::vector<std::shared_ptr<Communicator>>& others) {
  siblings_.clear();
  for (const auto& other : others)
    if (const auto sibling = std::dynamic_pointer_cast<SegmentCommunicator>(other); sibling && sibling.get() != this)
      siblings_.push_back(sibling);
}

bool SegmentCommunicator::drive_siblings(bool& have_work) {
  bool moved = false;
  have_work = false;
  for (const auto& weak : siblings_) {
    const auto sibling = weak.lock();
    if (!sibling || !sibling->has_work()) continue;
    moved |= sibling->drive();
    have_work |= sibling->has_work();
  }
  return moved;
}

bool SegmentCommunicator::drive_for(SegmentTask& task, bool wait) {
  const base::Metered metered(base::Activity::communication);
  if (!wait) return poll(task);
  this->wait(task);
  return true;
}

bool SegmentCommunicator::poll(SegmentTask& task) {
  const bool moved = drive();
  if (task.done()) {
    stalled_ = {};
    return true;
  }
  if (const auto text = context_.segment->abort_text()) throw_aborted(task.call(), *text);
  const auto now = Clock::now();
  if (task.is_first_look()) last_poll_ = now;  // what lies between two calls is no wait
  // While this rank computed, its peers may have waited for it.
  stalled_ = moved ? Clock::duration{} : stalled_ + std::min<Clock::duration>(now - last_poll_, kMostBetweenLooks);
  last_poll_ = now;
  if (stalled_ > kPeerCheckInterval && now - last_peer_check_ > kPeerCheckInterval) {
    last_peer_check_ = now;
    check_peers(task, std::chrono::duration_cast<milliseconds>(stalled_));
  }
  return task.done();
}

void SegmentCommunicator::wait(SegmentTask& task) {
  SharedSegment& s = *context_.segment;
  std::optional<Clock::time_point> last_look, last_check;  // set in long waits only
  std::optional<FlightRecorder::Waiting> waiting;          // likewise
  Clock::duration stalled{};
  bool siblings_work = false;
  const auto look = [&] {
    const bool mine = drive(), theirs = drive_siblings(siblings_work), moved = mine || theirs;
    if (moved) last_look = last_check = std::nullopt, stalled = {};
    return moved;
  };
  for (spinner_.reset();;) {
    const bool moved = look();
    if (task.done()) return;
    if (const auto text = s.abort_text())
      throw_aborted(task.call(), *text, std::chrono::duration_cast<milliseconds>(stalled));
    if (moved) {
      spinner_.reset();
      continue;
    }
    if (spinner_.pause()) continue;
    const auto now = Clock::now();
    if (!last_look) last_look = last_check = now;
    stalled += std::min<Clock::duration>(now - *last_look, kMostBetweenLooks);
    last_look = now;
    if (!waiting) waiting.emplace(group().recorder.get(), task.call().record_id);
    if (now - *last_check > kPeerCheckInterval) {
      last_check = now;
      waiting->still();
      check_peers(task, std::chrono::duration_cast<milliseconds>(stalled));
      if (task.done()) return;
    }
    Sleeper sleeper(s);
    if (look() || s.abort_text()) continue;
    sleeper.sleep(siblings_work ? kSleepBetweenSiblings : std::chrono::microseconds(kLongestSleep));
  }
}

// Throws if a rank that the task waits for is gone, or if there was no progress for the timeout.
void SegmentCommunicator::check_peers(SegmentTask& task, milliseconds elapsed) {
  const auto stuck_on = [&]() -> std::pair<int, std::string> {
    const SegmentTask& front = front_before(task);
    for (int k = 0; k < size(); ++k) {
      const std::string gone = front.waits_for(k) ? context_.segment->gone(k) : "";
      if (!gone.empty()) return {k, gone};
    }
    return {-1, ""};
  };
  if (const auto [peer, gone] = stuck_on(); peer >= 0) {
    // The peer may have done its part just before it ended.
    while (drive()) {
    }
    if (task.done()) return;
    const SegmentTask& front = front_before(task);
    if (front.waits_for(peer)) {
      failed(front.call());
      context_.fail(front.call(), peer, elapsed,
                    fmt::format("{} {}: {}", name_rank(group(), peer), front.lacks(peer), gone));
    }
  }
  if (elapsed <= group().longest_wait()) return;
  const SegmentTask& front = front_before(task);
  std::string who;
  int first = -1;
  for (int k = 0; k < size(); ++k) {
    if (!front.waits_for(k)) continue;
    if (first < 0) first = k;
    who += fmt::format("{}{} {}", who.empty() ? "" : "; ", name_rank(group(), k), front.lacks(k));
  }
  failed(front.call());
  context_.fail(front.call(), first, elapsed,
                fmt::format("there was no progress for the timeout of {} ms: {}", group().timeout.count(), who));
}

// The first call in the queue of `task`, perhaps `task` itself.
SegmentTask& SegmentCommunicator::front_before(SegmentTask& task) {
  const Operation operation = task.call().collective.operation;
  TaskQueue* queue = &collectives_;
  if (operation == Operation::send) queue = &sends_[task.call().collective.root];
  if (operation == Operation::receive) queue = &receives_[task.call().collective.root];
  return queue->empty() ? task : queue->front();
}

void SegmentCommunicator::throw_aborted(const Call& call, const std::string& text, milliseconds elapsed) {
  failed(call);
  throw_comm_error(group(), call, -1, elapsed, text);
}

}  // namespace trireme::comm
