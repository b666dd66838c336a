// The server of a job's store, through which its ranks find each other; one of the ranks runs it. The store is a table
// of keys, open only to guests (connected processes) that know the job's token (channel.h). The server has one thread
// and never waits for a guest: a guest that is silent, sends garbage or does not read its answers delays nobody else.
//
// All that a stranger can achieve is a refusal. A guest has ten seconds and 64 KiB of handshake to prove itself. At
// most 256 guests at a time may be unproven; if one more connects, the oldest of them is disconnected.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "trireme/base/files.h"
#include "trireme/store/channel.h"

namespace trireme::store {

struct ServerOptions {
  Token token;
  std::string job = {};  ///< its name; guests of another job are refused
  std::function<void(const std::string&)> refused = {};  ///< gets one line for each refused stranger; empty: a warning
  std::chrono::milliseconds patience{10'000};  ///< the time that a guest has to prove itself
  std::size_t most_strangers = 256;  ///< most guests at a time that are not proven
};

/// A socket that listens at `port` of `host`, a numeric IPv4 address; port 0: the kernel chooses one.
///
/// Errors    Error with errno's text
base::FileDescriptor listen_at(const std::string& host, int port);

class Server {
 public:
  /// Serves at `listener`, a bound and listening socket, until destroyed.
  ///
  /// Errors    Error when the system has no thread or descriptor left
  Server(base::FileDescriptor listener, ServerOptions options);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  int port() const { return port_; }
  /// An address at which processes of this host reach the server.
  const std::string& reachable_at() const { return reachable_at_; }

 private:
  class Loop;
  int port_ = 0;
  std::string reachable_at_;
  base::FileDescriptor wake_;
  std::unique_ptr<Loop> loop_;
  std::thread thread_;
};

}  // namespace trireme::store
