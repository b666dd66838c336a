#include "trireme/comm/gloo/links.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <list>
#include <optional>
#include <stdexcept>

#include "trireme/base/process.h"
#include "trireme/base/socket.h"
#include "trireme/comm/gloo/greeting.h"

namespace trireme::comm {
namespace {
using LinkClock = std::chrono::steady_clock;

// The most connections without proof yet. Beyond them the oldest is closed; a real rank connects again.
constexpr std::size_t kMostGuests = 256;
constexpr int kAcceptedAtOnce = 32;
constexpr auto kBeforeNextCall = std::chrono::milliseconds(20);
constexpr auto kLongestPoll = std::chrono::milliseconds(50);
// After this time a caller connects again, because the host may be busy with strangers.
constexpr auto kLongestGreeting = std::chrono::seconds(5);

class Linking {
 public:
  Linking(const Group& group, const std::string& key, int listener, const std::vector<std::string>& addresses)
      : group_(group), key_(key), listener_(listener), addresses_(addresses), calls_(group.rank) {
    links_.sockets.resize(group.size);
  }

  Links run() {
    const auto until = LinkClock::now() + group_.timeout;
    while (!missing().empty()) {
      hear_calls();  // before a call is given up: the answer may be there since this rank was suspended
      call();
      if (LinkClock::now() > until)
        throw std::runtime_error(fmt::format("no connection with rank {}", fmt::join(missing(), ", ")));
      wait();
      hear_calls();
      hear_guests();
      accept();
    }
    return std::move(links_);
  }

 private:
  struct Call {
    std::optional<Greeting> greeting;
    LinkClock::time_point next{}, give_up{};
  };

  std::vector<int> missing() const {
    std::vector<int> ranks;
    for (int k = 0; k < group_.size; ++k)
      if (k != group_.rank && links_.sockets[k].get() < 0) ranks.push_back(group_.global_rank(k));
    return ranks;
  }

  void call() {
    const auto now = LinkClock::now();
    for (int k = 0; k < group_.rank; ++k) {
      Call& call = calls_[k];
      if (links_.sockets[k].get() >= 0 || now < call.next) continue;
      if (call.greeting && now < call.give_up) continue;
      call = {.next = now + kBeforeNextCall, .give_up = now + kLongestGreeting};
      const auto* address = reinterpret_cast<const sockaddr*>(addresses_[k].data());
      base::FileDescriptor socket(::socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
      if (socket.get() < 0) require_descriptors();
      base::enable_keepalive(socket.get());
      const int result = ::connect(socket.get(), address, static_cast<socklen_t>(addresses_[k].size()));
      if (result != 0 && errno != EINPROGRESS && errno != EINTR) continue;
      call.greeting = Greeting::call(std::move(socket), key_, group_.rank, k);
    }
  }

  void wait() {
    std::vector<pollfd> polled{{.fd = listener_, .events = POLLIN, .revents = 0}};
    const auto add = [&](const Greeting& g) { polled.push_back({.fd = g.fd(), .events = g.events(), .revents = 0}); };
    for (const Call& call : calls_)
      if (call.greeting) add(*call.greeting);
    for (const Greeting& guest : guests_) add(guest);
    (void)::poll(polled.data(), polled.size(), static_cast<int>(kLongestPoll.count()));
  }

  void hear_calls() {
    for (int k = 0; k < group_.rank; ++k) {
      auto& greeting = calls_[k].greeting;
      if (!greeting) continue;
      const auto state = greeting->advance();
      if (state == Greeting::State::proven) links_.sockets[k] = greeting->release();
      if (state != Greeting::State::under_way) greeting.reset();
    }
  }

  void hear_guests() {
    for (auto guest = guests_.begin(); guest != guests_.end();) {
      const auto state = guest->advance();
      if (state == Greeting::State::under_way) {
        ++guest;
        continue;
      }
      // A rank that connects again has lost its first connection.
      if (state == Greeting::State::proven)
        links_.sockets[guest->peer()] = guest->release();
      else
        ++links_.strangers;
      guest = guests_.erase(guest);
    }
  }

  void accept() {
    for (int i = 0; i < kAcceptedAtOnce; ++i) {
      base::FileDescriptor socket(::accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (socket.get() < 0) return require_descriptors();
      base::enable_keepalive(socket.get());
      guests_.push_back(Greeting::host(std::move(socket), key_, group_.rank, group_.size));
      if (guests_.size() <= kMostGuests) continue;
      guests_.pop_front();
      ++links_.strangers;
    }
  }

  // Without them all ranks would wait for the whole timeout, and blame each other.
  static void require_descriptors() {
    if (errno == EMFILE || errno == ENFILE) throw std::runtime_error(base::why_no_descriptor(errno));
  }

  const Group& group_;
  const std::string& key_;
  const int listener_;
  const std::vector<std::string>& addresses_;
  Links links_;
  std::vector<Call> calls_;     // by group rank, of those below this one
  std::list<Greeting> guests_;  // the oldest first
};
}  // namespace

Links link_ranks(const Group& group, const std::string& key, int listener, const std::vector<std::string>& addresses) {
  return Linking(group, key, listener, addresses).run();
}

}  // namespace trireme::comm
