#include "trireme/engine/transfer_queue.h"

#include <cstdint>
#include <utility>

namespace trireme::engine {

struct TransferQueue::State {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> jobs;
  int64_t posted = 0, done = 0;
  std::exception_ptr failure;
  bool ends = false;
};

class TransferQueue::Transfer : public comm::Work {
 public:
  Transfer(std::shared_ptr<State> state, int64_t number) : state_(std::move(state)), number_(number) {}

  bool poll() override {
    const std::lock_guard lock(state_->mutex);
    return is_over();
  }
  void wait() override {
    std::unique_lock lock(state_->mutex);
    state_->changed.wait(lock, [&] { return is_over(); });
  }

 private:
  bool is_over() const {
    if (state_->done >= number_) return true;
    if (state_->failure) std::rethrow_exception(state_->failure);
    return false;
  }

  std::shared_ptr<State> state_;
  int64_t number_;
};

TransferQueue::TransferQueue()
    : state_(std::make_shared<State>()), thread_(std::make_unique<base::Crew>(1, [this](size_t) { run(); })) {}

TransferQueue::~TransferQueue() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->ends = true;
  }
  state_->changed.notify_all();
  thread_->join();
}

comm::WorkPtr TransferQueue::post(std::function<void()> job) {
  const std::lock_guard lock(state_->mutex);
  state_->jobs.push_back(std::move(job));
  state_->changed.notify_all();
  return std::make_shared<Transfer>(state_, ++state_->posted);
}

void TransferQueue::run() {
  State& state = *state_;
  while (true) {
    std::function<void()> job;
    {
      std::unique_lock lock(state.mutex);
      state.changed.wait(lock, [&] { return state.ends || (!state.jobs.empty() && !state.failure); });
      if (state.ends) return;
      job = std::move(state.jobs.front());
      state.jobs.pop_front();
    }
    std::exception_ptr failure;
    try {
      job();
    } catch (...) {
      failure = std::current_exception();
    }
    const std::lock_guard lock(state.mutex);
    if (failure)
      state.failure = failure;
    else
      ++state.done;
    state.changed.notify_all();
  }
}

}  // namespace trireme::engine
