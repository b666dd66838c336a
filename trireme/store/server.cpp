#include "trireme/store/server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <vector>

#include "trireme/base/log.h"
#include "trireme/base/process.h"
#include "trireme/base/socket.h"
#include "trireme/store/refusals.h"
#include "trireme/store/table.h"

namespace trireme::store {
namespace {

constexpr int kPauseWithoutDescriptorsMs = 50;

std::string text_of(const sockaddr_in& address) {
  char text[INET_ADDRSTRLEN] = "?";
  inet_ntop(AF_INET, &address.sin_addr, text, sizeof text);
  return fmt::format("{}:{}", text, ntohs(address.sin_port));
}

Refusals::Say warn_unless(const Refusals::Say& given) {
  return given ? given : [](const std::string& line) { base::warn("{}", line); };
}

sockaddr_in address_of(const base::FileDescriptor& listener) {
  sockaddr_in address{};
  socklen_t size = sizeof address;
  if (getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0)
    throw Error(fmt::format("the socket where ranks meet has no address: {}", std::strerror(errno)));
  return address;
}

// Signals go to the process' other threads.
std::thread thread_without_signals(std::function<void()> body) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread(std::move(body));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

}  // namespace

/// The thread of the server: its guests, and what happens when one of them sends something.
class Server::Loop {
 public:
  Loop(base::FileDescriptor listener, int wake_fd, ServerOptions options);

  /// Until `wake_fd` becomes readable.
  void run();

 private:
  using Clock = std::chrono::steady_clock;
  using Id = std::uint64_t;  // in the order of arrival; not the descriptor, whose number is reused

  struct Guest {
    std::unique_ptr<Channel> channel;
    std::string address;
    Clock::time_point until;            // it is disconnected if it is not proven by then
    bool member = false;
    std::string received = {};          // of a member: the start of the next message
    std::optional<Request> waits_for = {};
    Clock::time_point waits_until = {};
  };

  int poll_timeout_ms() const;
  void let_in();
  void attend(Id id);
  void listen_to_member(Id id, Guest& guest);
  void handle(Id id, Guest& guest, Request request);
  void tell_waiting(const std::string& key);
  void end_waits();
  void stop_waiting(Id id, Guest& guest);
  void turn_away(Id id, const std::string& why);
  void answer_waiting(Id id, const Reply& reply);
  void forget(Id id);

  const base::FileDescriptor listener_;
  const int wake_fd_;
  const ServerOptions options_;
  const std::shared_ptr<const Credentials> credentials_;
  // A limit of lines for each kind of stranger, so that a flood of one kind does not hide the others: those who sent
  // nothing, those who gave no name, those who gave one.
  Refusals silent_, nameless_, named_;
  Table table_;
  std::map<Id, Guest> guests_;
  std::set<Id> strangers_;                                     // of them, those not proven yet
  std::set<Id> waiting_;                                       // and those who wait for a key
  std::unordered_map<std::string, std::set<Id>> waiting_for_;  // the same by key
  Id next_ = 0;
  bool no_descriptor_left_ = false;
};

Server::Loop::Loop(base::FileDescriptor listener, int wake_fd, ServerOptions options)
    : listener_(std::move(listener)),
      wake_fd_(wake_fd),
      options_(std::move(options)),
      credentials_(std::make_shared<Credentials>(options_.token, Identity{options_.job, "the store"})),
      silent_(warn_unless(options_.refused)),
      nameless_(warn_unless(options_.refused)),
      named_(warn_unless(options_.refused)) {}

void Server::Loop::run() {
  while (true) {
    std::vector<pollfd> fds = {{wake_fd_, POLLIN, 0}, {no_descriptor_left_ ? -1 : listener_.get(), POLLIN, 0}};
    std::vector<Id> ids;
    for (const auto& [id, guest] : guests_) {
      // A guest that does not read its answers gets no further questions read.
      fds.push_back({guest.channel->fd(), static_cast<short>(guest.channel->wants_write() ? POLLOUT : POLLIN), 0});
      ids.push_back(id);
    }
    if (poll(fds.data(), fds.size(), poll_timeout_ms()) < 0 && errno != EINTR) continue;
    no_descriptor_left_ = false;
    if (fds[0].revents != 0) return;
    for (std::size_t i = 0; i < ids.size(); ++i)
      if (fds[i + 2].revents != 0) attend(ids[i]);
    if (fds[1].revents != 0) let_in();
    const auto now = Clock::now();
    while (!strangers_.empty() && guests_.at(*strangers_.begin()).until <= now)
      turn_away(*strangers_.begin(), "has not proven itself in time");
    end_waits();
  }
}

int Server::Loop::poll_timeout_ms() const {
  auto until = Clock::time_point::max();
  if (!strangers_.empty()) until = guests_.at(*strangers_.begin()).until;  // the oldest is the first to go
  for (const Id id : waiting_) until = std::min(until, guests_.at(id).waits_until);
  const int longest = no_descriptor_left_ ? kPauseWithoutDescriptorsMs : -1;
  if (until == Clock::time_point::max()) return longest;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
  const int timeout = static_cast<int>(std::clamp<long>(left, 0, 1'000'000));
  return longest < 0 ? timeout : std::min(timeout, longest);
}

void Server::Loop::let_in() {
  while (true) {
    sockaddr_in address{};
    socklen_t size = sizeof address;
    base::FileDescriptor socket(
        accept4(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (socket.get() < 0) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM) return;
      if (strangers_.empty()) {
        no_descriptor_left_ = true;  // members hold them all: look again in a moment
        return;
      }
      turn_away(*strangers_.begin(), "was the oldest stranger when descriptors ran out");
      continue;
    }
    if (strangers_.size() >= options_.most_strangers)
      turn_away(*strangers_.begin(), fmt::format("was the oldest of {} strangers at once", strangers_.size()));
    const int yes = 1;
    setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    base::enable_keepalive(socket.get());
    const Id id = next_++;
    try {
      guests_[id] = {.channel = std::make_unique<Channel>(credentials_, std::move(socket), Channel::Side::server),
                     .address = text_of(address),
                     .until = Clock::now() + options_.patience};
      strangers_.insert(id);
    } catch (const std::exception&) {  // no memory for one more: the others are served
      guests_.erase(id);
      return;
    }
    attend(id);
  }
}

void Server::Loop::attend(Id id) {
  const auto found = guests_.find(id);
  if (found == guests_.end()) return;
  Guest& guest = found->second;
  try {
    guest.channel->flush();
    if (!guest.member && guest.channel->handshake()) {
      guest.member = true;
      strangers_.erase(id);
    }
    if (guest.member && !guest.channel->wants_write()) listen_to_member(id, guest);
    if (guest.channel->ended()) {
      // A guest that leaves without a word only tested whether somebody listens.
      guest.member || !guest.channel->has_spoken() ? forget(id) : turn_away(id, "left before it had proven itself");
    }
  } catch (const Refused& why) {
    turn_away(id, why.what());
  } catch (const Malformed& why) {
    turn_away(id, fmt::format("({}) sent a malformed message: {}", guest.channel->peer().name, why.what()));
  } catch (const std::exception& failure) {
    turn_away(id, fmt::format("cannot be served: {}", failure.what()));
  }
}

void Server::Loop::listen_to_member(Id id, Guest& guest) {
  guest.channel->receive(guest.received);
  while (auto frame = take_frame(guest.received)) {
    if (guest.waits_for) throw Malformed("a question before the last one was answered");
    handle(id, guest, request_of(*frame));
  }
}

void Server::Loop::handle(Id id, Guest& guest, Request request) {
  const bool waits = request.operation == Operation::get || request.operation == Operation::wait;
  if (!waits || table_.has_all(request.keys)) {
    guest.channel->send(frame_of(table_.answer(request)));
    const bool writes = request.operation == Operation::set || request.operation == Operation::add ||
                        request.operation == Operation::compare_set;
    if (writes) tell_waiting(request.keys[0]);
    return;
  }
  constexpr auto kLongest = std::chrono::hours(24 * 365);
  guest.waits_until =
      Clock::now() + std::clamp<std::chrono::milliseconds>(request.timeout, std::chrono::milliseconds(0), kLongest);
  waiting_.insert(id);
  for (const auto& key : request.keys) waiting_for_[key].insert(id);
  guest.waits_for = std::move(request);
}

void Server::Loop::tell_waiting(const std::string& key) {
  const auto found = waiting_for_.find(key);
  if (found == waiting_for_.end()) return;
  for (const Id id : std::set<Id>(found->second)) {
    Guest& guest = guests_.at(id);
    if (!table_.has_all(guest.waits_for->keys)) continue;
    const Request request = *guest.waits_for;
    stop_waiting(id, guest);
    answer_waiting(id, table_.answer(request));
  }
}

void Server::Loop::end_waits() {
  const auto now = Clock::now();
  for (const Id id : std::set<Id>(waiting_)) {
    Guest& guest = guests_.at(id);
    if (guest.waits_until > now) continue;
    stop_waiting(id, guest);
    answer_waiting(id, {.status = Reply::Status::timed_out});
  }
}

// One that cannot be answered does not end another's request, nor the store.
void Server::Loop::answer_waiting(Id id, const Reply& reply) {
  try {
    guests_.at(id).channel->send(frame_of(reply));
  } catch (const std::exception& failure) {
    turn_away(id, fmt::format("cannot be answered: {}", failure.what()));
  }
}

void Server::Loop::stop_waiting(Id id, Guest& guest) {
  for (const auto& key : guest.waits_for->keys) {
    const auto found = waiting_for_.find(key);
    if (found == waiting_for_.end()) continue;  // a key that was named twice
    found->second.erase(id);
    if (found->second.empty()) waiting_for_.erase(found);
  }
  waiting_.erase(id);
  guest.waits_for.reset();
}

void Server::Loop::turn_away(Id id, const std::string& why) {
  const Guest& guest = guests_.at(id);
  Refusals& of_its_kind = !guest.channel->peer().name.empty() ? named_
                          : guest.channel->has_spoken()       ? nameless_
                                                              : silent_;
  of_its_kind.tell(fmt::format("refused where ranks meet: {} {}", guest.address, why));
  forget(id);
}

void Server::Loop::forget(Id id) {
  Guest& guest = guests_.at(id);
  if (guest.waits_for) stop_waiting(id, guest);
  strangers_.erase(id);
  guests_.erase(id);
}

base::FileDescriptor listen_at(const std::string& host, int port) {
  base::FileDescriptor listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  const int yes = 1;
  if (port != 0) setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (inet_pton(AF_INET, host.c_str(), &address.sin_addr) != 1)
    errno = EINVAL;
  else if (bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 &&
           listen(listener.get(), SOMAXCONN) == 0)
    return listener;
  throw Error(fmt::format("cannot listen at {}:{}: {}", host, port, std::strerror(errno)));
}

Server::Server(base::FileDescriptor listener, ServerOptions options) : wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  const sockaddr_in address = address_of(listener);
  port_ = ntohs(address.sin_port);
  char text[INET_ADDRSTRLEN] = "127.0.0.1";
  if (address.sin_addr.s_addr != htonl(INADDR_ANY)) inet_ntop(AF_INET, &address.sin_addr, text, sizeof text);
  reachable_at_ = text;
  if (wake_.get() < 0) throw Error("no descriptor left for the store: " + base::why_no_descriptor(errno));
  fcntl(listener.get(), F_SETFL, fcntl(listener.get(), F_GETFL) | O_NONBLOCK);
  loop_ = std::make_unique<Loop>(std::move(listener), wake_.get(), std::move(options));
  thread_ = thread_without_signals([this] {
    try {
      loop_->run();
    } catch (const std::exception& error) {
      base::warn("the store where ranks meet has ended, and its job will: {}", error.what());
    }
  });
}

Server::~Server() {
  const std::uint64_t one = 1;
  (void)!write(wake_.get(), &one, sizeof one);
  thread_.join();
}

}  // namespace trireme::store
