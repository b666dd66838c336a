// The heartbeat of rendezvous.h: each launcher shows that it lives, and learns that another machine has ended the
// round.
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <cstdint>

#include "trireme/base/log.h"
#include "trireme/launch/machines/rendezvous.h"

namespace trireme::launch {
namespace {
using namespace std::chrono_literals;
constexpr auto kBeat = 500ms;
}  // namespace

void Rendezvous::start_beating() {
  stop_beating();
  stop_ = running_ = false;
  std::uint64_t ignored;
  while (read(end_fd_.get(), &ignored, sizeof ignored) > 0) {
  }
  {
    const std::lock_guard lock(pulses_mutex_);
    pulses_.clear();
  }
  // The main thread takes all signals.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  heart_ = std::thread([this] { beat(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Rendezvous::stop_beating() {
  stop_ = true;
  if (heart_.joinable()) heart_.join();
}

void Rendezvous::beat() {
  bool told = false;
  try {
    while (!stop_) {
      client_->add(key("alive", slot_), 1);
      if (server_ && running_) look_for_the_lost();
      if (told) {
        std::this_thread::sleep_for(kBeat);
      } else if (client_->wait({key("end")}, kBeat)) {
        told = true;
        const std::string why = client_->get(key("end"), 0ms).value_or("");
        if (running_ && !why.starts_with(name_ + ":")) base::info("the ranks here stop; machine {}", why);
        wake();
      }
    }
  } catch (const std::exception& error) {
    if (running_)
      base::warn("the machine at {}, where the launchers meet, is gone: the ranks here stop ({})", place_,
                 error.what());
    wake();
  }
}

// A machine without a network connection sends nothing; the others must not wait for it for ever.
void Rendezvous::look_for_the_lost() {
  for (const Member& member : members_) {
    if (member.slot == slot_ || !is_gone(member.slot) || client_->check({key("result", member.slot)})) continue;
    end_round(is_silent(member.slot) ? fmt::format("nothing has been heard of machine {} for {} s", member.name,
                                                   std::chrono::ceil<std::chrono::seconds>(options_.silence).count())
                                     : fmt::format("the launcher of machine {} has ended", member.name));
  }
}

bool Rendezvous::is_gone(int slot) { return is_silent(slot) || client_->check({key("bye", slot)}); }

bool Rendezvous::is_silent(int slot) {
  const std::int64_t count = client_->add(key("alive", slot), 0);
  const std::lock_guard lock(pulses_mutex_);
  if (pulses_.size() <= static_cast<std::size_t>(slot)) pulses_.resize(static_cast<std::size_t>(slot) + 1);
  Pulse& pulse = pulses_[static_cast<std::size_t>(slot)];
  if (pulse.count != count) pulse = {count, Clock::now()};
  return Clock::now() - pulse.since > options_.silence;
}

// Keeps the first reason.
void Rendezvous::end_round(const std::string& why) {
  client_->compare_set(key("end"), "", fmt::format("{}: {}", name_, why));
}

void Rendezvous::wake() {
  const std::uint64_t one = 1;
  (void)!write(end_fd_.get(), &one, sizeof one);
}

}  // namespace trireme::launch
