// The store where ranks of a job meet, as one of them serves it: a table of keys behind a door that only those with the
// job's token pass (channel.h). One thread, which never waits for a guest: whoever stays silent, sends rubbish or does
// not read its answers keeps nobody else waiting.
//
// A stranger can make this process refuse him, and nothing else: he has ten seconds, at most 64 KiB of handshake, and
// a place among 256 guests that are not proven yet, of which the oldest goes when another comes.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "trireme/base/files.h"
#include "trireme/door/channel.h"

namespace trireme::door {

struct ServerOptions {
  Token token;
  std::string job = {};  ///< guests of another job are refused
  std::function<void(const std::string&)> refused = {};  ///< one line for a stranger turned away; empty: a warning
  std::chrono::milliseconds patience{10'000};  ///< for a guest to prove itself
  std::size_t most_strangers = 256;  ///< guests at once that are not proven
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
  /// An address at which this host reaches it.
  const std::string& reachable_at() const { return reachable_at_; }

 private:
  class Loop;
  int port_ = 0;
  std::string reachable_at_;
  base::FileDescriptor wake_;
  std::unique_ptr<Loop> loop_;
  std::thread thread_;
};

}  // namespace trireme::door
