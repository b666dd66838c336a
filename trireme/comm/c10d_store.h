// The store through which ranks find each other: a c10d::Store over Trireme's own server (store/server.h). Only
// processes with the job's token may use it, whereas c10d's TCPStore lets anybody read and delete keys. One rank runs
// the server, and all ranks connect to it. The functions at the end of this file write and read texts in any store.
#pragma once

#include "trireme/comm/group.h"

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace trireme::store {
class Client;
class Server;
}  // namespace trireme::store

namespace trireme::comm {

struct StoreOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 0;  ///< 0 with is_server: the kernel chooses one, see StoreHandle::port
  std::string token = {};  ///< the job's secret; empty with is_server: a new one, see StoreHandle::token
  std::string job = {};  ///< the job's name, equal on all ranks
  std::string name = "a rank";  ///< the name of this process in refusals: "rank 3"
  bool is_server = false;
  std::optional<int> listen_fd;  ///< a listening socket for the server, so that nobody else can take the port
  std::shared_ptr<store::Server> server = {};  ///< with is_server: one that serves already; empty: a new one
  std::filesystem::path place_file = {};  ///< clients: store::ClientOptions::place_file
  bool listens_already = false;  ///< clients: store::ClientOptions::listens_already
  std::chrono::milliseconds timeout{300'000};
  std::optional<std::chrono::milliseconds> reach_timeout;  ///< clients: the longest wait for the server; empty: timeout
  /// Called about twice a second during waits for the server or a key. An exception from it ends the wait.
  std::function<void()> while_waiting = {};
};

struct StoreHandle {
  c10::intrusive_ptr<c10d::Store> store;
  uint16_t port = 0;
  std::string token;
  std::shared_ptr<store::Client> client = {};  ///< the store's own, whose waits are not cut by while_waiting
};

/// A server without listen_fd listens at 127.0.0.1. It runs as long as the returned store or a clone lives.
///
/// Threads   may share a store; a waiting thread does not block the others
/// Errors    UsageError for a token that is none, such as a client's empty one; CommError if the server is not reached,
///           or the port not free, within the timeout, and at once if the server has another token. Exceptions of
///           while_waiting pass through this call and the store's calls
StoreHandle open_store(const StoreOptions& options);

void set_text(c10d::Store& store, const std::string& key, const std::string& text);
std::string get_text(c10d::Store& store, const std::string& key);

/// Waits for what `from` (group rank) writes under `key`.
/// Errors    CommError naming that rank if nothing has come within the group's timeout
std::string wait_for_text(c10d::Store& store, const Group& group, const std::string& key, int from);

}  // namespace trireme::comm
