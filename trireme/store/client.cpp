#include "trireme/store/client.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

#include "trireme/base/error.h"
#include "trireme/base/process.h"
#include "trireme/base/socket.h"

namespace trireme::store {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kOneTry = 2s;  // to reach an address, because the place file may name another one meanwhile
constexpr auto kAsk = 500ms;

// False when the time is over.
bool wait_for(int fd, short events, Clock::time_point until) {
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
    pollfd ready{fd, events, 0};
    const int count = poll(&ready, 1, static_cast<int>(std::clamp<long>(left, 0, 1'000'000)));
    if (count > 0) return true;
    if (left <= 0) return false;
  }
}

std::string name_of(const Place& place) { return fmt::format("{}:{}", place.host, place.port); }

}  // namespace

Client::Client(ClientOptions options)
    : options_(std::move(options)),
      answer_timeout_(options_.answer_timeout.value_or(options_.timeout)),
      place_(options_.place),
      credentials_(std::make_shared<Credentials>(place_.token, options_.self)) {
  idle_.push_back(connect(Clock::now() + options_.timeout));
  reached_ = true;
}

Client::~Client() = default;

std::unique_ptr<Channel> Client::connect(Clock::time_point until) {
  auto pause = 5ms;
  while (true) {
    std::string why;
    try {
      return try_to_connect(options_.place_file.empty() ? until : std::min(until, Clock::now() + kOneTry));
    } catch (const Refused&) {
      // An older job's file, perhaps, which this job's server replaces.
      if (options_.place_file.empty() || has_given_up() || Clock::now() + pause >= until) throw;
    } catch (const Unreachable& failure) {
      why = failure.what();
    }
    if (has_given_up() || Clock::now() + pause >= until ||
        ((options_.listens_already || reached_) && why == std::strerror(ECONNREFUSED)))
      throw Unreachable(fmt::format("nobody serves the store at {}: {}", place_name(), why));
    std::this_thread::sleep_for(pause);
    pause = std::min<std::chrono::milliseconds>(2 * pause, 200ms);
    if (!options_.place_file.empty()) look_again();
  }
}

bool Client::wait_for_server(int fd, short events, Clock::time_point until) const {
  while (true) {
    if (wait_for(fd, events, std::min(until, Clock::now() + kAsk))) return true;
    if (Clock::now() >= until || has_given_up()) return false;
  }
}

bool Client::has_given_up() const { return !reached_ && options_.gives_up && options_.gives_up(); }

std::string Client::place_name() {
  const std::lock_guard lock(mutex_);
  return name_of(place_);
}

void Client::look_again() {
  const auto place = read_place(options_.place_file);
  const std::lock_guard lock(mutex_);
  if (!place || *place == place_) return;
  place_ = *place;
  credentials_ = std::make_shared<Credentials>(place_.token, options_.self);
}

std::unique_ptr<Channel> Client::try_to_connect(Clock::time_point until) {
  std::unique_lock lock(mutex_);
  const Place place = place_;
  const auto credentials = credentials_;
  lock.unlock();
  const addrinfo wanted{.ai_family = AF_INET, .ai_socktype = SOCK_STREAM};
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(place.host.c_str(), std::to_string(place.port).c_str(), &wanted, &found))
    throw Unreachable(gai_strerror(error));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> addresses(found, freeaddrinfo);
  base::FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  int error = 0;
  socklen_t size = sizeof error;
  if (socket.get() < 0) throw Unreachable(base::why_no_descriptor(errno));
  if (::connect(socket.get(), found->ai_addr, found->ai_addrlen) != 0) {
    if (errno != EINPROGRESS) throw Unreachable(std::strerror(errno));
    if (!wait_for_server(socket.get(), POLLOUT, std::min(until, Clock::now() + kOneTry)))
      throw Unreachable("no answer");
    getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) throw Unreachable(std::strerror(error));
  }
  const int yes = 1;
  setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  base::enable_keepalive(socket.get());
  auto channel = std::make_unique<Channel>(credentials, std::move(socket), Channel::Side::client);
  while (!channel->handshake()) {
    if (channel->ended()) throw Unreachable("it hung up");
    if (!wait_for_server(channel->fd(), channel->wants_write() ? POLLIN | POLLOUT : POLLIN, until))
      throw Unreachable("no answer");
  }
  return channel;
}

std::unique_ptr<Channel> Client::idle_or_new() {
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      auto channel = std::move(idle_.back());
      idle_.pop_back();
      return channel;
    }
  }
  return connect(Clock::now() + answer_timeout_);
}

// A channel that failed is closed, and the next call makes a new connection.
Reply Client::call(const Request& request) {
  auto channel = idle_or_new();
  const auto until = Clock::now() + answer_timeout_ + request.timeout;
  const auto lost = [&](const char* how) { return Unreachable(fmt::format("the store at {} {}", place_name(), how)); };
  channel->send(frame_of(request));
  std::string received;
  std::optional<std::string> frame;
  while (!(frame = take_frame(received))) {
    if (channel->ended()) throw lost("has gone: its server ended, or the network between is cut");
    const short events = channel->wants_write() ? POLLIN | POLLOUT : POLLIN;
    if (!wait_for(channel->fd(), events, until)) throw lost("does not answer");
    channel->flush();
    channel->receive(received);
  }
  {
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(channel));
  }
  Reply reply = reply_of(*frame);
  if (reply.status == Reply::Status::refused)
    throw Error(fmt::format("the store at {} refused: {}", place_name(), reply.value));
  return reply;
}

void Client::set(const std::string& key, const std::string& value) {
  call({.operation = Operation::set, .keys = {key}, .value = value});
}

std::int64_t Client::add(const std::string& key, std::int64_t number) {
  return call({.operation = Operation::add, .keys = {key}, .number = number}).number;
}

bool Client::check(const std::vector<std::string>& keys) {
  return call({.operation = Operation::check, .keys = keys}).number != 0;
}

bool Client::remove(const std::string& key) {
  return call({.operation = Operation::remove, .keys = {key}}).number != 0;
}

std::int64_t Client::count() { return call({.operation = Operation::count}).number; }

std::string Client::compare_set(const std::string& key, const std::string& expected, const std::string& value) {
  return call({.operation = Operation::compare_set, .keys = {key}, .value = value, .expected = expected}).value;
}

std::optional<std::string> Client::get(const std::string& key, std::chrono::milliseconds timeout) {
  Reply reply = call({.operation = Operation::get, .keys = {key}, .timeout = timeout});
  if (reply.status == Reply::Status::timed_out) return std::nullopt;
  return std::move(reply.value);
}

bool Client::wait(const std::vector<std::string>& keys, std::chrono::milliseconds timeout) {
  return call({.operation = Operation::wait, .keys = keys, .timeout = timeout}).status == Reply::Status::done;
}

}  // namespace trireme::store
