// The handshake on a new connection between two ranks. Each side proves that it knows the group's key (store/proof.h).
// The proofs cover random numbers of both sides, so a recorded handshake is useless to a stranger.
//
//   caller -> host    kMagic, its rank, the host's rank, a random number           48 bytes
//   host -> caller    a random number, proof "host"                                64 bytes
//   caller -> host    proof "caller"                                               32 bytes
//   host -> caller    proof "welcome"; both may use the connection now             32 bytes
//
// Each side reads exactly these bytes and leaves the rest to the connection's user. Nothing here waits.
#pragma once

#include <string>

#include "trireme/base/files.h"

namespace trireme::comm {

class Greeting {
 public:
  enum class State { under_way, proven, over };

  /// `self` connects to `peer`; connect(2) may still be in progress.
  static Greeting call(base::FileDescriptor socket, std::string key, int self, int peer);
  /// Somebody has connected to `self`; only ranks self+1 .. size-1 are accepted.
  static Greeting host(base::FileDescriptor socket, std::string key, int self, int size);

  /// Reads and writes as much as the socket allows. over: the peer has disconnected, or does not belong to the group.
  State advance();

  int fd() const { return socket_.get(); }
  short events() const;  ///< what to poll for before the next advance()
  int peer() const { return peer_; }  ///< group rank; on the host's side -1 until the caller has sent it
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
  Next next_ = Next::hello;  // what the peer sends next
  std::string nonces_;  // the caller's, the host's
  std::string unsent_, heard_;
};

}  // namespace trireme::comm
