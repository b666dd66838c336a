// The store through which ranks find each other: a c10d::Store on Trireme's own door (door/server.h), which only those
// with the job's token pass, where c10d's TCPStore lets any stranger read and delete keys. One rank serves it, all
// connect. Besides, the two accesses that backends make to it, with errors that name the rank that is missing.
#pragma once

#include "trireme/comm/group.h"

#include <filesystem>
#include <functional>
#include <optional>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace trireme::comm {

struct StoreOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 0;               ///< 0 with is_server: chosen by the kernel, see StoreHandle::port
  std::string token = {};          ///< the job's secret; empty with is_server: drawn, see StoreHandle::token
  std::string job = {};            ///< its name, equal on all ranks
  std::string name = "a rank";     ///< what refusals call this process: "rank 3"
  bool is_server = false;
  std::optional<int> listen_fd;    ///< a bound, listening socket that the server takes over: no race for the port
  std::filesystem::path place_file = {};  ///< clients: door::ClientOptions::place_file
  bool listens_already = false;  ///< clients: likewise
  std::chrono::milliseconds timeout{300'000};
  std::optional<std::chrono::milliseconds> reach_timeout;  ///< clients, for the server to come; empty: timeout
  /// Called every half second or so while the server or a key is waited for; what it throws ends the wait.
  std::function<void()> while_waiting = {};
};

struct StoreHandle {
  c10::intrusive_ptr<c10d::Store> store;
  uint16_t port = 0;
  std::string token;
};

/// A server without listen_fd listens at 127.0.0.1. It is served as long as one of its stores lives.
///
/// Threads   may share a store: one that waits does not keep the others from working
/// Errors    CommError when the server cannot be reached, or the port not be had, within the timeout, and at once
///           when it knows another token; what while_waiting throws, here and from the store
StoreHandle open_store(const StoreOptions& options);

void set_text(c10d::Store& store, const std::string& key, const std::string& text);

/// Waits for what `from` (group rank) writes under `key`.
/// Errors    CommError naming that rank when it has not come within the group's timeout
std::string wait_for_text(c10d::Store& store, const Group& group, const std::string& key, int from);

}  // namespace trireme::comm
