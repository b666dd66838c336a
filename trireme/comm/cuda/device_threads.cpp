// Ranks that are threads of one process and share one GPU: for tests, and for machines with fewer GPUs than ranks.
//
// A call only posts the rank's tensors and an event after the work that its stream holds. The last rank to post runs
// the call for all ranks, on the group's own stream: the stream waits for all events, then copies and folds from tensor
// to tensor without staging, and an event marks the end. So no call blocks the host, and a posted call needs nothing
// more from its rank. No rank's stream continues after a call before all ranks have read its tensors. The GPU waits
// only for work that was issued earlier, so it cannot deadlock. Work::wait() blocks the host until the last rank has
// posted. Of a message's two ranks, the one that posts later runs it.
#include <ATen/ATen.h>
#include <c10/cuda/CUDAGuard.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "trireme/base/error.h"
#include "trireme/comm/call_descriptor.h"
#include "trireme/comm/cuda/device_communicator.h"
#include "trireme/comm/cuda/device_loader.h"
#include "trireme/comm/flight_recorder.h"
#include "trireme/comm/shared_memory/threads.h"
#include "trireme/comm/tensor_exchange.h"

namespace trireme::comm {
namespace {
using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kBetweenLooks{20};

struct Posted : DeviceCall {
  using DeviceCall::DeviceCall;

  std::string failure;  // why it will not run; empty: it may run
  int peer_at_fault = -1;
  std::optional<Clock::time_point> awaited_since;  // the first look of its rank for its end
};

using PostedPtr = std::shared_ptr<Posted>;
using Parts = std::vector<PostedPtr>;  // of one call, by rank; null: not posted yet

// Where the ranks of one group meet.
class DeviceMeeting {
 public:
  explicit DeviceMeeting(int size)
      : size_(size), gone_(size), stream_(c10::cuda::getStreamFromPool(/*isHighPriority=*/true)) {}

  // All ranks' tensors must be on the GPU of rank 0's thread.
  void join(const Group& group) {
    const int mine = c10::cuda::current_device(), here = stream_.device_index();
    if (mine == here) return;
    const std::string text = fmt::format("{} sits on GPU {}, but {} on GPU {}", name_rank(group, group.rank), mine,
                                         name_rank(group, 0), here);
    std::lock_guard lock(mutex_);
    break_group(text);
    throw UsageError(fmt::format("[comm] group '{}': {}; threads share one GPU, use backend nccl", group.name, text));
  }

  void leave(int rank) {
    std::lock_guard lock(mutex_);
    gone_[rank] = true;
    changed_.notify_all();
  }

  void post(const PostedPtr& posted) {
    std::lock_guard lock(mutex_);
    if (!broken_.empty()) throw_comm_error(*posted->group, posted->call, -1, {}, broken_);
    last_post_ = Clock::now();
    if (is_message(posted->call.collective.operation))
      post_message(posted);
    else
      post_collective(posted);
  }

  bool is_issued(Posted& posted) {
    std::lock_guard lock(mutex_);
    return look(posted);
  }

  void wait(Posted& posted) {
    std::unique_lock lock(mutex_);
    if (look(posted)) return;
    const FlightRecorder::Waiting waiting(posted.group->recorder.get(), posted.call.record_id);
    while (!look(posted)) {
      changed_.wait_for(lock, kBetweenLooks);
      waiting.still();
    }
  }

 private:
  void post_collective(const PostedPtr& posted) {
    Parts& parts = rounds_[posted->call.sequence];
    parts.resize(size_);
    parts[posted->group->rank] = posted;
    if (std::ranges::find(parts, nullptr) != parts.end()) return;
    const Parts all = std::move(parts);
    rounds_.erase(posted->call.sequence);
    run(all, [&] {
      compare(all);
      std::vector<const Collective*> calls;
      for (const PostedPtr& part : all) calls.push_back(&part->call.collective);
      exchange_all(calls);
    });
  }

  void post_message(const PostedPtr& posted) {
    const Collective& call = posted->call.collective;
    const int me = posted->group->rank;
    const bool sends = call.operation == Operation::send;
    Messages& messages = sends ? messages_[{me, call.root}] : messages_[{call.root, me}];
    auto& mine = sends ? messages.sends : messages.receives;
    auto& theirs = sends ? messages.receives : messages.sends;
    if (theirs.empty()) return mine.push_back(posted);
    const PostedPtr other = theirs.front();
    theirs.pop_front();
    const PostedPtr &sent = sends ? posted : other, &received = sends ? other : posted;
    run({sent, received}, [&] {
      compare_message(*sent, *received);
      received->call.collective.output.view({-1}).copy_(sent->call.collective.input.view({-1}));
    });
  }

  // The text for calls that do not match; thrown to run().
  struct Refusal {
    std::string text;
  };

  // Each rank compares with all others, because only its two ends know a slice of an all_to_all.
  void compare(const Parts& parts) {
    std::vector<std::vector<uint8_t>> written;
    std::vector<CallView> calls;
    for (const PostedPtr& part : parts) {
      written.emplace_back(descriptor_bytes(size_));
      write_descriptor(written.back().data(), part->call, 0, {}, {}, size_);
      calls.push_back(read_descriptor(written.back().data(), size_));
    }
    std::string text;
    for (const PostedPtr& part : parts)
      if (const auto mismatch = find_mismatch(*part->group, calls)) {
        part->failure = text = mismatch->text;
        part->peer_at_fault = mismatch->rank;
      }
    if (!text.empty()) throw Refusal{text};
  }

  static void compare_message(Posted& sent, Posted& received) {
    const at::Tensor &from = sent.call.collective.input, &to = received.call.collective.output;
    if (from.numel() == to.numel() && from.scalar_type() == to.scalar_type()) return;
    const Group& group = *sent.group;
    const int sender = group.rank, receiver = received.group->rank;
    sent.peer_at_fault = receiver;
    received.peer_at_fault = sender;
    throw Refusal{fmt::format("{} sends {}[{}] but {} receives {}[{}]; both must name the same size and dtype",
                              name_rank(group, sender), dtype_name(from.scalar_type()), from.numel(),
                              name_rank(group, receiver), dtype_name(to.scalar_type()), to.numel())};
  }

  // Issues `work`, which runs the calls of all these ranks. On an error it fails the calls and the group.
  template <typename F>
  void run(const Parts& parts, F&& work) {
    std::string failure;
    try {
      const c10::cuda::CUDAStreamGuard on_stream(stream_);
      for (const PostedPtr& part : parts) part->ready.block(stream_);
      work();
      const auto done = std::make_shared<at::cuda::CUDAEvent>();
      done->record(stream_);
      for (const PostedPtr& part : parts) {
        part->done = done;
        part->record_end(false);
        in_flight_.add(part);
      }
    } catch (const Refusal& refusal) {
      failure = refusal.text;
    } catch (const c10::Error& error) {
      failure = error.what_without_backtrace();
    } catch (const std::exception& error) {
      failure = error.what();
    }
    if (failure.empty()) return changed_.notify_all();
    // Part of the work may be on the stream, so the tensors stay until the stream has finished it.
    for (const PostedPtr& part : parts) {
      if (!part->done) in_flight_.keep_failed(part, stream_);
      fail(*part, failure);
    }
    break_group(
        fmt::format("{} #{}: {}", to_string(parts[0]->call.collective.operation), parts[0]->call.sequence, failure));
  }

  static void fail(Posted& posted, const std::string& text) {
    if (posted.done) return;
    if (posted.failure.empty()) posted.failure = text;
    posted.record_end(true);
  }

  // Fails all calls that wait for a rank.
  void break_group(const std::string& text) {
    if (broken_.empty()) broken_ = fmt::format("the group is unusable since {}", text);
    for (auto& [sequence, parts] : rounds_)
      for (const PostedPtr& part : parts)
        if (part) fail(*part, broken_);
    for (auto& [ends, messages] : messages_) {
      for (const PostedPtr& part : messages.sends) fail(*part, broken_);
      for (const PostedPtr& part : messages.receives) fail(*part, broken_);
    }
    rounds_.clear();
    messages_.clear();
    changed_.notify_all();
  }

  // True when the call has been issued; throws if it never will be.
  bool look(Posted& posted) {
    if (posted.done) return true;
    if (posted.failure.empty()) give_up_if_hopeless(posted);
    if (posted.failure.empty()) return false;
    throw_comm_error(*posted.group, posted.call, posted.peer_at_fault, posted.elapsed(), posted.failure);
  }

  void give_up_if_hopeless(Posted& posted) {
    const Group& group = *posted.group;
    if (!posted.awaited_since) posted.awaited_since = Clock::now();
    const std::vector<int> missing = missing_ranks(posted);
    std::vector<std::string> names;
    for (const int k : missing) names.push_back(name_rank(group, k));
    const auto gone = std::ranges::find_if(missing, [&](int k) { return gone_[k]; });
    std::string text;
    if (gone != missing.end()) {
      posted.peer_at_fault = *gone;
      text = fmt::format("{} has left the group", name_rank(group, *gone));
    } else if (Clock::now() - std::max(*posted.awaited_since, last_post_) > group.timeout) {
      posted.peer_at_fault = missing[0];
      text = fmt::format(
          "{} did not make its part of this call within the timeout of {} ms; see what it does, or raise comm.timeout",
          fmt::join(names, ", "), group.timeout.count());
    }
    if (text.empty()) return;
    fail(posted, text);
    break_group(fmt::format("{} #{} of {}: {}", to_string(posted.call.collective.operation), posted.call.sequence,
                            name_rank(group, group.rank), text));
  }

  std::vector<int> missing_ranks(const Posted& posted) const {
    const Collective& call = posted.call.collective;
    if (is_message(call.operation)) return {call.root};
    std::vector<int> missing;
    const Parts& parts = rounds_.at(posted.call.sequence);
    for (int k = 0; k < size_; ++k)
      if (!parts[k]) missing.push_back(k);
    return missing;
  }

  struct Messages {
    std::deque<PostedPtr> sends, receives;  // one of them is empty
  };

  std::mutex mutex_;
  std::condition_variable changed_;  // a call was issued or failed, or a rank has left
  const int size_;
  std::vector<bool> gone_;
  std::string broken_;  // empty: the group is usable
  std::map<uint64_t, Parts> rounds_;  // by number of the collective
  std::map<std::pair<int, int>, Messages> messages_;  // by sending and receiving rank
  Clock::time_point last_post_ = Clock::now();
  c10::cuda::CUDAStream stream_;
  CallsInFlight in_flight_;
};

class ThreadsWork final : public DeviceWork {
 public:
  ThreadsWork(std::shared_ptr<DeviceMeeting> meeting, PostedPtr posted)
      : DeviceWork(posted), meeting_(std::move(meeting)), posted_(std::move(posted)) {}

 protected:
  bool is_issued() override { return meeting_->is_issued(*posted_); }
  void wait_until_issued() override { meeting_->wait(*posted_); }

 private:
  std::shared_ptr<DeviceMeeting> meeting_;
  PostedPtr posted_;
};

class ThreadsOnDevice final : public DeviceCommunicator {
 public:
  ThreadsOnDevice(const Group& group, std::shared_ptr<DeviceMeeting> meeting)
      : DeviceCommunicator(group), meeting_(std::move(meeting)) {}
  ~ThreadsOnDevice() override { meeting_->leave(rank()); }

  std::string backend() const override { return "threads"; }

 protected:
  WorkPtr issue(Call call) override {
    const auto posted = std::make_shared<Posted>(shared_group(), std::move(call));
    meeting_->post(posted);
    return std::make_shared<ThreadsWork>(meeting_, posted);
  }

 private:
  std::shared_ptr<DeviceMeeting> meeting_;
};
}  // namespace
}  // namespace trireme::comm

extern "C" __attribute__((visibility("default"))) trireme::comm::CommunicatorPtr trireme_make_device_threads(
    const trireme::comm::Group& group, const c10::intrusive_ptr<c10d::Store>& store) {
  using namespace trireme::comm;
  const auto meeting = std::static_pointer_cast<DeviceMeeting>(
      share_in_process(group, *store, [&] { return std::make_shared<DeviceMeeting>(group.size); }));
  meeting->join(group);
  return std::make_shared<ThreadsOnDevice>(group, meeting);
}
