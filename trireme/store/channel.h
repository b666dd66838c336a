// An encrypted connection whose two ends have proven that they know the job's token: TLS 1.3 with the token as
// pre-shared key (RFC 8446, 2.2). Its handshake is the challenge and the response: each side sends an HMAC-SHA-256,
// with a key derived from the token, over fresh random numbers of both. The token itself is never sent, and recorded
// sessions stay unreadable if it leaks later (an ephemeral X25519 key is mixed in).
//
// There is no certificate and no fallback: a peer that does not know the token gets an alert.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "trireme/base/files.h"
#include "trireme/store/token.h"

struct ssl_st;
struct ssl_ctx_st;

namespace trireme::store {

/// How a process introduces itself when it joins. The name is for messages. The job must be equal on both sides, so
/// that two jobs with the same token file do not mix.
struct Identity {
  std::string job;
  std::string name;  ///< "rank 3"
};

/// What a process needs to prove that it belongs to the job.
class Credentials {
 public:
  Credentials(Token token, Identity self);
  ~Credentials();
  Credentials(const Credentials&) = delete;
  Credentials& operator=(const Credentials&) = delete;

  const Token token;
  const Identity self;
  ssl_ctx_st* const context;
};

/// A peer is refused; what() says why: "has the token of another job".
struct Refused : Error {
  using Error::Error;
};

/// One end of a connection. Nothing here waits: the owner polls the socket.
class Channel {
 public:
  enum class Side { server, client };
  Channel(std::shared_ptr<const Credentials> credentials, base::FileDescriptor socket, Side side);
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  int fd() const { return socket_.get(); }
  bool wants_write() const { return !unsent_.empty(); }  ///< some bytes are unsent: call flush() when poll(2) says so
  bool ended() const { return ended_; }  ///< the peer has closed, or the network failed

  /// Reads what has arrived and answers it. True once both sides have proven themselves.
  /// Errors    Refused, after the peer was sent an alert
  bool handshake();

  /// Encrypts `text` and sends as much as the socket takes.
  void send(std::string_view text);
  void flush();

  /// Appends what has arrived to `text`.
  /// Errors    Refused if bytes were not encrypted by the peer
  void receive(std::string& text);

  const Identity& peer() const { return peer_; }  ///< server: what the peer says it is
  bool has_spoken() const { return received_ > 0; }  ///< the peer has sent something

 private:
  friend struct Callbacks;
  void take_from_socket();
  void take_sealed();
  void refuse_strangers_language();
  std::string why_refused() const;

  const std::shared_ptr<const Credentials> credentials_;
  const base::FileDescriptor socket_;
  const Side side_;
  ssl_st* ssl_;
  std::string first_bytes_;  ///< of the peer, before it is proven
  std::string unsent_;
  std::size_t received_ = 0;
  bool ended_ = false, proven_ = false;
  Identity peer_;
  bool peer_named_itself_ = false;
};

}  // namespace trireme::store
