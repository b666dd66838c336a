// Threads for one piece of work. An exception in a thread does not end the process: join() throws it.
#pragma once

#include <atomic>
#include <cstddef>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace trireme::base {

class Crew {
 public:
  /// Runs work(0) to work(count - 1), each on a thread of its own.
  Crew(std::size_t count, std::function<void(std::size_t)> work) : work_(std::move(work)) {
    for (std::size_t i = 0; i < count; ++i) threads_.emplace_back([this, i] { run(i); });
  }

  /// Whether a thread has thrown, so that the others may stop.
  bool has_failed() const { return failed_; }

  /// Waits for all threads; throws the first exception.
  void join() {
    threads_.clear();
    if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  }

 private:
  void run(std::size_t i) {
    try {
      work_(i);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!failure_) failure_ = std::current_exception();
      failed_ = true;
    }
  }

  std::function<void(std::size_t)> work_;
  std::mutex mutex_;
  std::exception_ptr failure_;
  std::atomic<bool> failed_{false};
  std::vector<std::jthread> threads_;  // last, so that they end before the members they use
};

}  // namespace trireme::base
