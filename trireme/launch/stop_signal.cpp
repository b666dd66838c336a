#include "trireme/launch/stop_signal.h"

#include <signal.h>

#include <atomic>

namespace trireme::launch {
namespace {

std::atomic<int> stop_signal_number{0};
static_assert(std::atomic<int>::is_always_lock_free, "a signal handler may only touch lock-free atomics");

// Runs in signal context: only atomics, signal() and raise().
void on_stop_signal(int number) {
  const int earlier = stop_signal_number.exchange(number);
  if (number == SIGINT && earlier == SIGINT) {
    signal(SIGINT, SIG_DFL);
    raise(SIGINT);
  }
}

void install(int number) {
  struct sigaction present{};
  sigaction(number, nullptr, &present);
  if (present.sa_handler == SIG_IGN) return;  // started by nohup or in the background: leave it so
  struct sigaction action{};
  action.sa_handler = on_stop_signal;
  action.sa_flags = SA_RESTART;  // no read or write in the loop need know about us
  sigemptyset(&action.sa_mask);
  sigaction(number, &action, nullptr);
}

}  // namespace

void install_stop_signal() {
  install(SIGTERM);
  install(SIGINT);
}

bool stop_requested() noexcept { return stop_signal_number.load(std::memory_order_relaxed) != 0; }

int stop_signal() noexcept { return stop_signal_number.load(std::memory_order_relaxed); }

void request_stop(int signal_number) noexcept { stop_signal_number.store(signal_number); }

void clear_stop_request() noexcept { stop_signal_number.store(0); }

}  // namespace trireme::launch
