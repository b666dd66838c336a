// The first words on a connection between two ranks, before anything else is read from it: each proves to the other
// that it knows the group's key, over random numbers of both, so that nothing recorded helps a stranger.
//
//   caller -> host    kMagic, its rank, the host's rank, a random number           48 bytes
//   host -> caller    a random number, proof "host"                                64 bytes
//   caller -> host    proof "caller"                                               32 bytes
//   host -> caller    proof "welcome"; both may use the connection now             32 bytes
//
// A side reads exactly these bytes: what follows belongs to who uses the connection. Nothing here waits.
#pragma once

#include <optional>
#include <string>

#include "trireme/base/files.h"

namespace trireme::comm {

class Greeting {
 public:
  enum class State { under_way, proven, over };

  /// `self` has called `peer`; connect(2) may still be under way.
  static Greeting call(base::FileDescriptor socket, std::string key, int self, int peer);
  /// Somebody has called `self`; ranks self+1 .. size-1 may.
  static Greeting host(base::FileDescriptor socket, std::string key, int self, int size);

  /// Does what the socket lets it do; over: the peer has hung up, or is not of the group.
  State advance();

  int fd() const { return socket_.get(); }
  short events() const;     ///< what to poll for before the next advance()
  int peer() const { return peer_; }  ///< group rank; of a host -1 until it was told
  base::FileDescriptor release() { return std::move(socket_); }

 private:
  enum class Next { hello, challenge, answer, welcome, nothing };
  Greeting(base::FileDescriptor socket, std::string key, int self)
      : socket_(std::move(socket)), key_(std::move(key)), self_(self) {}
  std::size_t expected() const;
  bool understand();
  bool read_hello();
  std::string words(const char* side) const;
  void say(std::string_view text) { unsent_ += text; }
  void say_proof(const char* side);
  bool is_proof(std::string_view shown, const char* side) const;

  base::FileDescriptor socket_;
  std::string key_;
  int self_;
  int size_ = 0;
  int peer_ = -1;
  bool calls_ = false;
  Next next_ = Next::hello;  // what the peer says next
  std::string nonces_;       // the caller's, the host's
  std::string unsent_, heard_;
};

}  // namespace trireme::comm
