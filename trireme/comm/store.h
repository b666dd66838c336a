// The store through which ranks find each other: c10d's TCPStore, one rank serving and all connecting, and the
// two accesses that backends make to it, with errors that name the rank that is missing.
#pragma once

#include "trireme/comm/group.h"

#include <optional>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace trireme::comm {

struct StoreOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 0;               ///< 0 with is_server: chosen by the kernel, see StoreHandle::port
  bool is_server = false;
  std::optional<int> listen_fd;    ///< a bound, listening socket that the server takes over: no race for the port
  std::chrono::milliseconds timeout{300'000};
};

struct StoreHandle {
  c10::intrusive_ptr<c10d::Store> store;
  uint16_t port = 0;
};

/// Errors    CommError when the server cannot be reached, or the port not be had, within the timeout
StoreHandle open_store(const StoreOptions& options);

void set_text(c10d::Store& store, const std::string& key, const std::string& text);

/// Waits for what `from` (group rank) writes under `key`.
/// Errors    CommError naming that rank when it has not come within the group's timeout
std::string wait_for_text(c10d::Store& store, const Group& group, const std::string& key, int from);

}  // namespace trireme::comm
