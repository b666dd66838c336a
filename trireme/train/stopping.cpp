#include "trireme/train/stopping.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "trireme/base/log.h"
#include "trireme/comm/c10d_store.h"
#include "trireme/launch/supervise/stop_signal.h"
#include "trireme/train/resume_settings.h"

namespace trireme::train {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr int64_t kAtLauncher = 0x7fffffff;  // in place of a rank: the request came to the launcher
constexpr auto kListen = 500ms;
constexpr auto kPatience = 1s;  // with a request under way when the run ends

}  // namespace

launch::NoticeOptions notice_options(const launch::LaunchSettings& settings) {
  return {.file = settings.notice_file, .url = settings.notice_url, .interval = settings.notice_interval};
}

// Tells the store of a request to stop here, or hears of one elsewhere; then it is done.
struct Stopping::Ear {
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

  // If the store does not answer, the rank that serves it is lost; the next collective reports that better.
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

Stopping::Stopping(Session& session) : s_(session) {
  const launch::RankEnvironment& e = s_.environment;
  if (e.local_rank == 0) notice_ = std::make_unique<launch::NoticeWatch>(notice_options(s_.settings.launch));
  const RankMeeting& meeting = s_.ranks.meeting;
  if (e.world_size == 1 || !meeting.store.store) return;
  ear_ = std::make_shared<Ear>();
  ear_->store = meeting.store.store;
  ear_->key = "stop" + meeting.options.name;
  std::thread([ear = ear_] { ear->listen(); }).detach();
}

void Stopping::close() {
  notice_.reset();
  if (!ear_) return;
  std::unique_lock lock(ear_->mutex);
  ear_->closed = true;
  ear_->changed.notify_all();
  ear_->changed.wait_for(lock, kPatience, [this] { return ear_->ended; });
}

std::array<int64_t, 4> Stopping::exchange(bool time_is_up, bool is_busy, bool gave_up) {
  comm::Communicator& world = s_.world();
  const int64_t reason = launch::stop_signal(), here = launch::stop_came_from_launcher() ? kAtLauncher : world.rank();
  const std::vector<int64_t> mine = {reason == 0 ? 0 : (reason << 32) + here, time_is_up, is_busy, gave_up};
  const at::Tensor said = at::tensor(mine, at::kLong), largest = at::empty_like(said);
  world.all_reduce(largest, said, {.op = comm::ReduceOp::max})->wait();
  std::array<int64_t, 4> all;
  std::copy_n(largest.data_ptr<int64_t>(), all.size(), all.begin());
  if (all[0] > 0 && why_.empty()) {
    why_ = launch::name_of_stop(static_cast<int>(all[0] >> 32));
    const int64_t place = all[0] & 0xffffffff;
    if (world.size() > 1) why_ += place == kAtLauncher ? " at the launcher" : fmt::format(" at rank {}", place);
  }
  return all;
}

bool Stopping::agree() { return stops_ |= exchange(false, false, false)[0] > 0; }

bool Stopping::commit(bool gave_up, bool is_busy) {
  const auto& limit = s_.settings.train.max_time;
  const auto [request, time_is_up, any_is_busy, given_up] =
      exchange(limit && Clock::now() - began_ >= *limit, is_busy, gave_up);
  stops_ = request > 0 || given_up > 0;
  time_is_up_ = time_is_up > 0;
  any_is_busy_ = any_is_busy > 0;
  return given_up == 0;
}

bool Stopping::is_requested() const { return launch::stop_requested() || (ear_ && ear_->heard); }

double Stopping::seconds_to_limit() const {
  const auto& limit = s_.settings.train.max_time;
  return limit ? std::max(0.0, std::chrono::duration<double>(*limit - (Clock::now() - began_)).count()) : std::nan("");
}

double Stopping::seconds_left() const {
  using Seconds = std::chrono::duration<double>;
  const Seconds since = launch::stop_requested()
                            ? launch::time_since_stop_request()
                            : Seconds(Clock::now().time_since_epoch() - Clock::duration(ear_->heard_at));
  return (Seconds(s_.settings.launch.grace) - since).count();
}

std::string Stopping::reason() const {
  return launch::stop_signal() == launch::kOthersEnded ? "because other ranks have ended"
                                                       : fmt::format("by request ({})", why_);
}

void Stopping::tell(const std::string& where) const {
  if (s_.is_first_rank())
    base::info("stopped {} {}", where, reason());
  else if (s_.environment.launcher == "trireme")
    base::info("rank {} stopped {} {}", s_.environment.global_rank, where, reason());
}

std::string Stopping::last_words(int64_t step, bool is_early, bool has_held_out) const {
  if (is_early)
    return fmt::format("stopped at step {} {}; continue with: {}", step, reason(), how_to_go_on(s_.settings));
  return fmt::format(
      "a stop was requested ({}) when training was complete: nothing is left{}", why_,
      has_held_out && s_.settings.eval.final_validation ? ", but the last evaluation was interrupted" : "");
}

}  // namespace trireme::train
