#include "trireme/train/stop_decision.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

#include "trireme/comm/store.h"
#include "trireme/launch/stop_signal.h"

namespace trireme::train {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr int64_t kAtLauncher = 0x7fffffff;  // instead of a rank: where the request came in
constexpr auto kListen = 500ms;
constexpr auto kPatience = 1s;  // with a request under way when the run ends

}  // namespace

launch::NoticeOptions notice_options(const config::LaunchSettings& settings) {
  return {.file = settings.notice_file, .url = settings.notice_url, .interval = settings.notice_interval};
}

// Tells the store of a request to stop here, or hears of one elsewhere; then it is done.
struct StopDecision::Ear {
  c10::intrusive_ptr<c10d::Store> store;
  std::string key;
  std::mutex mutex;
  std::condition_variable changed;
  bool closed = false, ended = false;
  std::atomic<bool> heard{false};
  std::atomic<Clock::rep> heard_at{0};

  void listen() {
    std::unique_lock lock(mutex);
    while (!closed && !heard) {
      changed.wait_for(lock, kListen, [this] { return closed; });
      if (closed) break;
      lock.unlock();
      const bool told = exchange();
      lock.lock();
      if (told) break;
    }
    ended = true;
    changed.notify_all();
  }

  // A store that does not answer has lost its rank, which the next collective says better.
  bool exchange() try {
    if (launch::stop_requested()) {
      comm::set_text(*store, key, launch::name_of_stop(launch::stop_signal()));
      return true;
    }
    if (!store->check({key})) return false;
    heard_at = (Clock::now() - kListen).time_since_epoch().count();
    heard = true;
    return true;
  } catch (const std::exception&) {
    return true;
  }
};

StopDecision::StopDecision(Options options) : options_(std::move(options)) {
  if (options_.notice) notice_ = std::make_unique<launch::NoticeWatch>(*options_.notice);
  if (!options_.store) return;
  ear_ = std::make_shared<Ear>();
  ear_->store = options_.store;
  ear_->key = "stop" + options_.name;
  std::thread([ear = ear_] { ear->listen(); }).detach();
}

StopDecision::~StopDecision() { close(); }

void StopDecision::close() {
  notice_.reset();
  if (!ear_) return;
  std::unique_lock lock(ear_->mutex);
  ear_->closed = true;
  ear_->changed.notify_all();
  ear_->changed.wait_for(lock, kPatience, [this] { return ear_->ended; });
}

StopDecision::Agreed StopDecision::agree(const StopWord& mine) {
  comm::Communicator& world = *options_.world;
  const at::Tensor said = at::zeros({4}, at::kLong), all = at::empty({4}, at::kLong);
  auto* words = said.data_ptr<int64_t>();
  const int64_t reason = launch::stop_signal();
  words[0] = reason == 0 ? 0 : (reason << 32) + (launch::stop_came_from_launcher() ? kAtLauncher : world.rank());
  words[1] = mine.time_is_up;
  words[2] = mine.is_busy;
  words[3] = mine.gave_up;
  world.all_reduce(all, said, {.op = comm::ReduceOp::max})->wait();
  const auto* together = all.data_ptr<int64_t>();
  Agreed agreed{{together[1] > 0, together[2] > 0, together[3] > 0}, together[0] > 0};
  if (agreed.stops && why_.empty()) {
    why_ = launch::name_of_stop(static_cast<int>(together[0] >> 32));
    const int64_t place = together[0] & 0xffffffff;
    if (world.size() > 1 && place == kAtLauncher)
      why_ += " at the launcher";
    else if (world.size() > 1)
      why_ += fmt::format(" at rank {}", place);
  }
  return agreed;
}

bool StopDecision::heard() const { return launch::stop_requested() || (ear_ && ear_->heard); }

std::chrono::duration<double> StopDecision::left() const {
  const auto since =
      launch::stop_requested()
          ? launch::time_since_stop_request()
          : std::chrono::duration<double>(Clock::now().time_since_epoch() - Clock::duration(ear_->heard_at));
  return std::chrono::duration<double>(options_.grace) - since;
}

}  // namespace trireme::train
