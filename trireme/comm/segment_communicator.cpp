#include "trireme/comm/segment_communicator.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <iterator>

#include "trireme/base/error.h"

namespace trireme::comm {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kPeerCheckInterval{20};
constexpr milliseconds kLongestSleep{5};
// Another segment's doorbell does not wake us, so with calls under way there sleep is short.
constexpr std::chrono::microseconds kSleepBetweenSiblings{100};

milliseconds since(Clock::time_point t) { return std::chrono::duration_cast<milliseconds>(Clock::now() - t); }

void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Spinning pays only when every rank has a core of its own.
int choose_spin_limit(int size) { return size <= sysconf(_SC_NPROCESSORS_ONLN) ? 2000 : 20; }

}  // namespace

SegmentCommunicator::SegmentCommunicator(Group group, std::shared_ptr<SharedSegment> segment)
    : CheckedCommunicator(std::move(group)), sends_(size()), receives_(size()), spin_limit_(choose_spin_limit(size())) {
  context_.group = CheckedCommunicator::group();
  context_.segment = std::move(segment);
}

SegmentCommunicator::~SegmentCommunicator() { context_.segment->leave(rank()); }

WorkPtr SegmentCommunicator::start(Call call) { return enqueue(std::move(call)); }

WorkPtr SegmentCommunicator::enqueue(Call call) {
  if (const auto text = context_.segment->abort_text()) throw_aborted(call, *text);
  // The work may outlive the communicator; then it can only say so.
  auto driver = [owner = weak_from_this()](SegmentTask& task, bool wait) {
    const auto communicator = owner.lock();
    if (!communicator)
      throw UsageError(
          fmt::format("[comm] a {} was waited for after its communicator was destroyed; keep the "
                      "communicator until its works are done",
                      to_string(task.call().collective.operation)));
    return communicator->drive_for(task, wait);
  };
  const Operation operation = call.collective.operation;
  if (operation == Operation::send || operation == Operation::receive) {
    Queue& queue = (operation == Operation::send ? sends_ : receives_)[call.collective.root];
    auto task = std::make_shared<MessageTask>(context_, std::move(call), std::move(driver));
    queue.push_back(task);
    drive(queue);
    return task;
  }
  auto task = std::make_shared<CollectiveTask>(context_, std::move(call), std::move(driver));
  collectives_.push_back(task);
  // Only in the order of the calls: when an earlier one still waits for room, so does this one.
  if (collectives_.size() == 1 || static_cast<CollectiveTask&>(*collectives_[collectives_.size() - 2]).publish())
    task->publish();
  return task;
}

bool SegmentCommunicator::drive(Queue& queue) {
  bool moved = false;
  while (!queue.empty()) {
    const SegmentTaskPtr task = queue.front();
    try {
      moved |= task->advance();
    } catch (const CommError&) {
      failed(task->call());
      throw;
    }
    if (!task->done()) break;
    finished(task->call());
    queue.pop_front();
  }
  return moved;
}

bool SegmentCommunicator::drive() {
  for (const SegmentTaskPtr& task : collectives_)
    if (!static_cast<CollectiveTask&>(*task).publish()) break;
  bool moved = drive(collectives_);
  for (int k = 0; k < size(); ++k) {
    if (!sends_[k].empty()) moved |= drive(sends_[k]);
    if (!receives_[k].empty()) moved |= drive(receives_[k]);
  }
  return moved;
}

void SegmentCommunicator::progress() {
  if (!collectives_.empty())
    if (const auto text = context_.segment->abort_text()) throw_aborted(collectives_.front()->call(), *text);
  drive();
}

void SegmentCommunicator::drive_while_waiting(const std::vector<std::shared_ptr<Communicator>>& others) {
  siblings_.clear();
  for (const auto& other : others)
    if (const auto sibling = std::dynamic_pointer_cast<SegmentCommunicator>(other); sibling && sibling.get() != this)
      siblings_.push_back(sibling);
}

bool SegmentCommunicator::has_work() const {
  const auto busy = [](const Queue& queue) { return !queue.empty(); };
  return busy(collectives_) || std::ranges::any_of(sends_, busy) || std::ranges::any_of(receives_, busy);
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
  if (!wait) return poll(task);
  this->wait(task);
  return true;
}

bool SegmentCommunicator::poll(SegmentTask& task) {
  const bool moved = drive();
  if (task.done()) return true;
  if (const auto text = context_.segment->abort_text()) throw_aborted(task.call(), *text);
  const auto now = Clock::now();
  // Only time that this rank spent looking counts: while it computed, its peers may have waited for it.
  stalled_ =
      moved ? Clock::duration{} : stalled_ + std::min<Clock::duration>(now - last_poll_, std::chrono::seconds(1));
  last_poll_ = now;
  if (stalled_ > kPeerCheckInterval && now - last_peer_check_ > kPeerCheckInterval) {
    last_peer_check_ = now;
    check_peers(task, std::chrono::duration_cast<milliseconds>(stalled_));
  }
  return task.done();
}

void SegmentCommunicator::wait(SegmentTask& task) {
  SharedSegment& s = *context_.segment;
  auto stalled = Clock::now(), last_check = stalled;
  for (int spins = 0;;) {
    const uint32_t seen = s.doorbell();
    bool siblings_work = false;
    const bool moved = drive() | drive_siblings(siblings_work);
    if (task.done()) return;
    if (const auto text = s.abort_text()) throw_aborted(task.call(), *text, since(stalled));
    if (moved) {
      spins = 0;
      stalled = Clock::now();
      continue;
    }
    if (++spins < spin_limit_) {
      pause_briefly();
      continue;
    }
    const auto now = Clock::now();
    if (now - last_check > kPeerCheckInterval) {
      last_check = now;
      check_peers(task, since(stalled));
      if (task.done()) return;
    }
    s.sleep(seen, siblings_work ? kSleepBetweenSiblings : std::chrono::microseconds(kLongestSleep));
  }
}

// Throws when a rank that the task waits for is gone, or nothing has moved for too long.
void SegmentCommunicator::check_peers(SegmentTask& task, milliseconds elapsed) {
  const auto stuck_on = [&]() -> std::pair<int, std::string> {
    for (int k : front_before(task).lagging()) {
      const std::string gone = context_.segment->gone(k);
      if (!gone.empty()) return {k, gone};
    }
    return {-1, ""};
  };
  if (const auto [peer, gone] = stuck_on(); peer >= 0) {
    // It may have done its part just before it went.
    while (drive()) {
    }
    if (task.done()) return;
    const SegmentTask& front = front_before(task);
    const auto lagging = front.lagging();
    if (std::ranges::find(lagging, peer) != lagging.end()) {
      failed(front.call());
      context_.fail(front.call(), peer, elapsed,
                    fmt::format("{} {}: {}", name_rank(group(), peer), front.lacks(peer), gone));
    }
  }
  if (elapsed <= group().timeout) return;
  const SegmentTask& front = front_before(task);
  const auto lagging = front.lagging();
  std::string who;
  for (int k : lagging) who += fmt::format("{}{} {}", who.empty() ? "" : "; ", name_rank(group(), k), front.lacks(k));
  failed(front.call());
  context_.fail(front.call(), lagging.empty() ? -1 : lagging.front(), elapsed,
                fmt::format("nothing has moved for the timeout of {} ms: {}", group().timeout.count(), who));
}

// The call that `task` queues behind; itself when it is the first.
SegmentTask& SegmentCommunicator::front_before(SegmentTask& task) {
  const Operation operation = task.call().collective.operation;
  Queue* queue = &collectives_;
  if (operation == Operation::send) queue = &sends_[task.call().collective.root];
  if (operation == Operation::receive) queue = &receives_[task.call().collective.root];
  return queue->empty() ? task : *queue->front();
}

void SegmentCommunicator::throw_aborted(const Call& call, const std::string& text, milliseconds elapsed) {
  failed(call);
  throw_comm_error(group(), call.collective.operation, call.sequence, -1, elapsed, text);
}

// An all_gather of small records for set-up; calls that differ in extent do not match.
void SegmentCommunicator::exchange_blobs(void* all, const void* mine, int64_t bytes_each, int64_t extent,
                                         bool host_shared) {
  at::Tensor in = at::empty({bytes_each}, at::kByte), out = at::empty({bytes_each * size()}, at::kByte);
  std::memcpy(in.mutable_data_ptr(), mine, bytes_each);
  Collective c{.operation = Operation::allocate_shared,
               .output = out,
               .input = in,
               .counts = std::vector<int64_t>(size(), bytes_each),
               .root = host_shared,
               .extent = extent};
  enqueue(make_call(std::move(c)))->wait();
  std::memcpy(all, out.const_data_ptr(), out.nbytes());
}

SharedBuffer SegmentCommunicator::allocate_shared(int64_t bytes, bool host_shared) {
  const int64_t rounded = whole_pages(bytes);
  SharedSegment& s = *context_.segment;
  const std::string what = fmt::format("allocate_shared of group '{}' on {}", name(), name_rank(group(), rank()));
  std::vector<std::shared_ptr<Mapping>> parts(size());
  MemoryTicket mine;
  if (!host_shared || rank() == 0) {
    try {
      parts[rank()] = s.offer(rounded, host_shared ? rounded : rounded * size(), what, mine);
    } catch (const CommError& error) {
      std::strncpy(mine.refusal, error.what(), sizeof mine.refusal - 1);
    }
  }
  std::vector<MemoryTicket> tickets(size());
  exchange_blobs(tickets.data(), &mine, sizeof mine, bytes, host_shared);

  // The first refusal is every rank's error; the group stays usable.
  const auto refuse = [&](const char* text) {
    throw CommError(text,
                    {.operation = "allocate_shared", .group = name(), .global_rank = group().global_rank(rank())});
  };
  for (const MemoryTicket& t : tickets)
    if (t.refusal[0]) refuse(t.refusal);

  MemoryTicket opened;
  for (int k = 0; k < size(); ++k) {
    if (parts[k] || (host_shared && k != 0)) continue;
    std::string why_not;
    parts[k] = s.accept(tickets[k], why_not);
    if (!parts[k]) std::strncpy(opened.refusal, (what + ": " + why_not).c_str(), sizeof opened.refusal - 1);
  }
  exchange_blobs(tickets.data(), &opened, sizeof opened, bytes, host_shared);
  for (const MemoryTicket& t : tickets)
    if (t.refusal[0]) refuse(t.refusal);

  SegmentContext::Region region{{}, rounded, host_shared};
  SharedBuffer buffer{.host_shared = host_shared};
  for (int k = 0; k < size(); ++k) {
    void* data = (host_shared ? parts[0] : parts[k])->data();
    region.parts.push_back(static_cast<std::byte*>(data));
    buffer.parts.push_back(data);
  }
  buffer.mine = buffer.parts[rank()];
  // All peers have it mapped. Only the one that made it: thread ranks share the object.
  if (mine.bytes > 0) parts[rank()]->close_fd();
  std::ranges::copy_if(parts, std::back_inserter(mappings_), [](const auto& mapping) { return mapping != nullptr; });
  context_.regions.push_back(std::move(region));
  return buffer;
}

}  // namespace trireme::comm
