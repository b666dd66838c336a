#include "trireme/launch/supervise/stop_signal.h"

#include <fmt/format.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <string_view>
#include <utility>

#include "trireme/base/child_process.h"
#include "trireme/base/stop_signals.h"

namespace trireme::launch {
namespace {
using base::kStopSignals;

std::atomic<int> stop_reason{0};
std::atomic<bool> passed_on{false};
std::atomic<std::int64_t> requested_at_ns{0};
static_assert(std::atomic<std::int64_t>::is_always_lock_free, "a signal handler may only touch lock-free atomics");

std::int64_t monotonic_ns() noexcept {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);  // allowed in signal handlers, unlike std::chrono by the letter
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

bool only_warns(int reason) {
  return reason == 0 || reason == SIGUSR1 || reason == kNoticeFile || reason == kNoticeUrl;
}

// The launcher passes on which signal it got itself (pass_on_stop).
int reason_of(int number, const siginfo_t& info) {
  const int named = info.si_code == SI_QUEUE ? info.si_value.sival_int : 0;
  return named == SIGINT || named == SIGHUP || named == kOthersEnded ? named : number;
}

// Runs in signal context: only atomics, clock_gettime(), getppid(), kill(), signal() and raise().
void on_stop_signal(int number, siginfo_t* info, void*) {
  const int earlier = stop_reason.load();
  const std::int64_t now = monotonic_ns();
  if (only_warns(earlier)) {
    if (earlier != 0 && only_warns(number)) return;
    requested_at_ns.store(now);
    passed_on.store(info->si_pid == getppid());
    stop_reason.store(reason_of(number, *info));
    return;
  }
  if (number == SIGUSR1) return;
  if (std::chrono::nanoseconds(now - requested_at_ns.load()) < same_request(number, earlier)) return;
  base::kill_child_groups();  // the kernel would end the programs, but not what they have started
  signal(number, SIG_DFL);
  raise(number);
}

// Runs in signal context too. A program that still reads settings or files has nothing to save.
void on_early_stop(int number, siginfo_t*, void*) {
  constexpr std::string_view kBefore = "stopped before anything began (", kAfter = ")\n";
  for (const std::string_view text : {kBefore, std::string_view(name_of_stop(number)), kAfter})
    if (write(STDERR_FILENO, text.data(), text.size()) < 0) break;
  _exit(kStoppedEarly);
}

void install(int number, void (*handler)(int, siginfo_t*, void*)) {
  struct sigaction present{};
  sigaction(number, nullptr, &present);
  if (present.sa_handler == SIG_IGN) return;  // ignored by nohup or a background shell: stays ignored
  struct sigaction action{};
  action.sa_sigaction = handler;
  action.sa_flags = SA_RESTART | SA_SIGINFO;  // so that no read or write fails with EINTR
  sigemptyset(&action.sa_mask);
  for (const int other : kStopSignals) sigaddset(&action.sa_mask, other);
  sigaction(number, &action, nullptr);
}
}  // namespace

std::chrono::milliseconds same_request(int number, int first) noexcept {
  return std::chrono::milliseconds(number == SIGINT && first == SIGINT ? 100 : 1000);
}

void install_stop_signal() {
  for (const int number : kStopSignals) install(number, on_stop_signal);
  unblock_stop_signals();
}

void leave_when_stopped() {
  for (const int number : kStopSignals) install(number, on_early_stop);
  unblock_stop_signals();
}

void pass_on_stop(int pid, int number) noexcept {
  sigval got{};
  got.sival_int = number;
  const int sent = number == SIGUSR1 ? SIGUSR1 : SIGTERM;
  if (sigqueue(pid, sent, got) != 0) kill(pid, sent);  // no room is left in the queue (ulimit -i)
}

void unblock_stop_signals() {
  sigset_t ours;
  sigemptyset(&ours);
  for (const int number : kStopSignals) sigaddset(&ours, number);
  pthread_sigmask(SIG_UNBLOCK, &ours, nullptr);
}

bool stop_requested() noexcept { return stop_reason.load(std::memory_order_relaxed) != 0; }

int stop_signal() noexcept { return stop_reason.load(std::memory_order_relaxed); }

bool stop_came_from_launcher() noexcept { return passed_on.load(std::memory_order_relaxed); }

const char* name_of_stop(int reason) noexcept {
  static constexpr std::pair<int, const char*> kNames[] = {{SIGTERM, "SIGTERM"},
                                                           {SIGINT, "SIGINT"},
                                                           {SIGUSR1, "SIGUSR1"},
                                                           {SIGHUP, "SIGHUP"},
                                                           {kNoticeFile, "the notice file"},
                                                           {kNoticeUrl, "the notice address"},
                                                           {kOthersEnded, "the end of other ranks"}};
  for (const auto& [known, name] : kNames)
    if (known == reason) return name;
  return "a signal";
}

const char* head_of_last_words() noexcept {
  return stop_signal() == kOthersEnded ? "ended because other ranks have ended" : "stopped by request";
}

std::chrono::duration<double> time_since_stop_request() noexcept {
  if (!stop_requested()) return {};
  return std::chrono::nanoseconds(monotonic_ns() - requested_at_ns.load());
}

std::chrono::milliseconds patience_when_stopped(std::chrono::milliseconds grace) {
  using std::chrono::seconds;
  return std::max<std::chrono::milliseconds>(grace - seconds(1), seconds(1));
}

void end_wait_when_stopped(std::chrono::milliseconds patience, const std::string& waited_for) {
  if (stop_signal() == kOthersEnded)  // they will not come
    throw Stopped(fmt::format("{} while this one waited for {}", head_of_last_words(), waited_for));
  if (stop_requested() && time_since_stop_request() >= patience)
    throw Stopped(fmt::format("stopped by {} while waiting for {}", name_of_stop(stop_signal()), waited_for));
}

void end_work_when_stopped() {
  if (stop_requested()) throw Stopped(fmt::format("{}: nothing was written", head_of_last_words()));
}

void request_stop(int reason) noexcept {
  int none = 0;
  const std::int64_t now = monotonic_ns();
  if (stop_reason.load() == 0) requested_at_ns.store(now);
  stop_reason.compare_exchange_strong(none, reason);
}

void clear_stop_request() noexcept {
  stop_reason.store(0);
  passed_on.store(false);
  requested_at_ns.store(0);
}

}  // namespace trireme::launch
