// Threads work on the items of a sequence, and one consumer gets the results in order. At most window_ items are in
// work or wait for the consumer, so memory is bounded. A failed item's exception replaces its result.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

namespace trireme::data {

template <typename Item, typename Result>
class OrderedWorkers {
 public:
  /// One thread at a time calls `next`. All threads call `work` at once.
  OrderedWorkers(int num_threads, std::function<std::optional<Item>()> next, std::function<Result(const Item&)> work)
      : next_(std::move(next)), work_(std::move(work)), window_(2 * num_threads + 2) {
    for (int i = 0; i < num_threads; ++i) threads_.emplace_back([this](std::stop_token stop) { run(stop); });
  }
  ~OrderedWorkers() {
    for (auto& thread : threads_) thread.request_stop();
    changed_.notify_all();
  }

  /// The next result in order; nothing at the end. Throws what `work` or `next` threw.
  std::optional<Result> get() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_.contains(consumed_) || (ended_ && consumed_ == taken_); });
    if (!done_.contains(consumed_)) return std::nullopt;
    auto node = done_.extract(consumed_++);
    changed_.notify_all();
    if (node.mapped().failure) std::rethrow_exception(node.mapped().failure);
    return std::move(node.mapped().result);
  }

 private:
  struct Done {
    std::optional<Result> result;
    std::exception_ptr failure;
  };

  // Item and its number; nothing at the end.
  std::optional<std::pair<int64_t, Item>> take(std::stop_token stop) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, stop, [&] { return ended_ || taken_ - consumed_ < window_; });
    if (stop.stop_requested() || ended_) return std::nullopt;
    try {
      if (auto item = next_()) return std::pair(taken_++, *std::move(item));
    } catch (...) {
      done_[taken_++].failure = std::current_exception();
    }
    ended_ = true;
    changed_.notify_all();
    return std::nullopt;
  }

  void run(std::stop_token stop) {
    while (auto item = take(stop)) {
      Done done;
      try {
        done.result = work_(item->second);
      } catch (...) {
        done.failure = std::current_exception();
      }
      const std::lock_guard lock(mutex_);
      ended_ = ended_ || done.failure;
      done_[item->first] = std::move(done);
      changed_.notify_all();
    }
  }

  std::function<std::optional<Item>()> next_;
  std::function<Result(const Item&)> work_;
  const int64_t window_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::map<int64_t, Done> done_;
  int64_t taken_ = 0, consumed_ = 0;
  bool ended_ = false;
  std::vector<std::jthread> threads_;  // the last member: threads stop before the members that they use are destroyed
};

}  // namespace trireme::data
