#include "trireme/comm/gloo/greeting.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "trireme/store/proof.h"

namespace trireme::comm {
namespace {
constexpr std::string_view kMagic = "trireme1";
constexpr std::size_t kNonceBytes = 32, kProofBytes = sizeof(store::Proof);
constexpr std::size_t kHelloBytes = kMagic.size() + 2 * sizeof(std::int32_t) + kNonceBytes;

std::string number(std::int32_t value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

std::int32_t number_at(std::string_view text) {
  std::int32_t value;
  std::memcpy(&value, text.data(), sizeof value);
  return value;
}

bool would_wait() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR || errno == ENOTCONN; }
}  // namespace

Greeting Greeting::call(base::FileDescriptor socket, std::string key, int self, int peer) {
  Greeting g(std::move(socket), std::move(key), self);
  g.calls_ = true;
  g.peer_ = peer;
  g.next_ = Next::challenge;
  g.nonces_ = store::draw_bytes(kNonceBytes);
  g.say(kMagic);
  g.say(number(self));
  g.say(number(peer));
  g.say(g.nonces_);
  return g;
}

Greeting Greeting::host(base::FileDescriptor socket, std::string key, int self, int size) {
  Greeting g(std::move(socket), std::move(key), self);
  g.size_ = size;
  return g;
}

std::string Greeting::words(const char* side) const {
  const auto [caller, host] = calls_ ? std::pair(self_, peer_) : std::pair(peer_, self_);
  return fmt::format("greeting {} {} {} ", side, caller, host) + nonces_;
}

void Greeting::say_proof(const char* side) {
  const store::Proof proof = store::prove(key_, words(side));
  say({reinterpret_cast<const char*>(proof.data()), proof.size()});
}

bool Greeting::is_proof(std::string_view shown, const char* side) const {
  return store::proves(shown, key_, words(side));
}

short Greeting::events() const { return unsent_.empty() ? POLLIN : POLLOUT; }

std::size_t Greeting::expected() const {
  switch (next_) {
    case Next::hello:
      return kHelloBytes;
    case Next::challenge:
      return kNonceBytes + kProofBytes;
    case Next::answer:
    case Next::welcome:
      return kProofBytes;
    case Next::nothing:
      break;
  }
  return 0;
}

bool Greeting::read_hello() {
  const std::string_view text = heard_;
  const int from = number_at(text.substr(kMagic.size())), to = number_at(text.substr(kMagic.size() + 4));
  if (to != self_ || from <= self_ || from >= size_) return false;
  peer_ = from;
  nonces_ = std::string(text.substr(kMagic.size() + 8)) + store::draw_bytes(kNonceBytes);
  say(std::string_view(nonces_).substr(kNonceBytes));
  say_proof("host");
  next_ = Next::answer;
  return true;
}

// Handles a complete message of the peer; false if the peer does not belong to the group.
bool Greeting::understand() {
  switch (next_) {
    case Next::hello:
      return read_hello();
    case Next::challenge:
      nonces_ += heard_.substr(0, kNonceBytes);
      if (!is_proof(std::string_view(heard_).substr(kNonceBytes), "host")) return false;
      say_proof("caller");
      next_ = Next::welcome;
      return true;
    case Next::answer:
      if (!is_proof(heard_, "caller")) return false;
      say_proof("welcome");
      next_ = Next::nothing;
      return true;
    case Next::welcome:
      next_ = Next::nothing;
      return is_proof(heard_, "welcome");
    case Next::nothing:
      break;
  }
  return false;
}

Greeting::State Greeting::advance() {
  while (true) {
    if (!unsent_.empty()) {
      const ssize_t sent = ::send(fd(), unsent_.data(), unsent_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent < 0) return would_wait() ? State::under_way : State::over;
      unsent_.erase(0, static_cast<std::size_t>(sent));
      continue;
    }
    if (next_ == Next::nothing) return State::proven;
    char room[kHelloBytes + kProofBytes];
    const ssize_t got = ::recv(fd(), room, expected() - heard_.size(), MSG_DONTWAIT);
    if (got < 0) return would_wait() ? State::under_way : State::over;
    if (got == 0) return State::over;
    heard_.append(room, static_cast<std::size_t>(got));
    // A peer with another protocol may never send the rest.
    if (next_ == Next::hello && kMagic.substr(0, heard_.size()) != std::string_view(heard_).substr(0, kMagic.size()))
      return State::over;
    if (heard_.size() < expected()) continue;
    if (!understand()) return State::over;
    heard_.clear();
  }
}

}  // namespace trireme::comm
