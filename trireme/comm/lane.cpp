#include "trireme/comm/lane.h"

#include <exception>

#include "trireme/base/error.h"
#include "trireme/base/meter.h"

namespace trireme::comm {

class Lane::Job final : public LaneWork {
 public:
  explicit Job(std::function<void()> job) : job_(std::move(job)) {}

  bool poll() override {
    std::lock_guard lock(mutex_);
    if (done_ && error_) std::rethrow_exception(error_);
    return done_;
  }

  void wait() override {
    while (!wait_for(std::chrono::hours(1))) continue;
  }

  bool wait_for(std::chrono::milliseconds limit) override {
    const base::Metered metered(base::Activity::communication);
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, limit, [this] { return done_; })) return false;
    if (error_) std::rethrow_exception(error_);
    return true;
  }

  void run() {
    std::exception_ptr error;
    try {
      job_();
    } catch (...) {
      error = std::current_exception();
    }
    finish(error);
  }

  void finish(std::exception_ptr error) {
    job_ = nullptr;  // releases its tensors before the waiting thread continues
    std::lock_guard lock(mutex_);
    error_ = error;
    done_ = true;
    changed_.notify_all();
  }

 private:
  std::function<void()> job_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::exception_ptr error_;
  bool done_ = false;
};

Lane::Lane() : thread_([this] { loop(); }) {}

Lane::~Lane() {
  std::deque<std::shared_ptr<Job>> dropped;
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    dropped.swap(jobs_);
    changed_.notify_all();
  }
  for (const auto& job : dropped)
    job->finish(std::make_exception_ptr(CommError(
        "[comm] the communicator was destroyed before this call began; keep it until its works are done", {})));
  thread_.join();
}

std::shared_ptr<LaneWork> Lane::run(std::function<void()> job) {
  auto work = std::make_shared<Job>(std::move(job));
  std::lock_guard lock(mutex_);
  jobs_.push_back(work);
  changed_.notify_all();
  return work;
}

double Lane::busy_seconds() const {
  std::lock_guard lock(mutex_);
  return busy_;
}

void Lane::loop() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
    if (stopping_) return;
    const auto job = jobs_.front();
    jobs_.pop_front();
    lock.unlock();
    const auto start = std::chrono::steady_clock::now();
    job->run();
    lock.lock();
    busy_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
}

}  // namespace trireme::comm
