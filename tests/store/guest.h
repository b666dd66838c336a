// A store under test with a record of whom it refused, and strangers who come to it with bytes of their own.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "trireme/store/client.h"
#include "trireme/store/server.h"

namespace trireme::store::testing {

inline const Token kToken(64, 'a'), kOtherToken(64, 'b');

class Store {
 public:
  explicit Store(ServerOptions options = {});

  /// A member, unless the test says otherwise.
  std::unique_ptr<Client> client(const Token& token = kToken, const std::string& job = "job",
                                 std::chrono::milliseconds timeout = std::chrono::seconds(20)) const;
  int port() const { return server_->port(); }
  std::vector<std::string> refused() const;
  /// Waits until so many were refused, or gives up; all of them in one text.
  std::string await_refusals(std::size_t count) const;
  void stop() { server_.reset(); }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> refused_;
  std::unique_ptr<Server> server_;
};

/// A plain TCP connection to 127.0.0.1.
class Stranger {
 public:
  explicit Stranger(int port);
  void say(const std::string& bytes) const;
  /// What comes until the other side hangs up, or nothing more within two seconds.
  std::string listen() const;
  int fd() const { return socket_.get(); }
  /// A second descriptor of the same connection.
  base::FileDescriptor share() const;
  /// True once the other side has hung up.
  bool is_out() const;

 private:
  base::FileDescriptor socket_;
};

}  // namespace trireme::store::testing
