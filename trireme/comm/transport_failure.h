// What has gone wrong between ranks on a transport whose waits block; LaneCommunicator makes a CommError of it.
#pragma once

#include <stdexcept>
#include <string>

namespace trireme::comm {

struct TransportFailure : std::runtime_error {
  TransportFailure(int peer_, const std::string& reason) : std::runtime_error(reason), peer(peer_) {}
  int peer;  ///< group rank at fault; -1: unknown
};

}  // namespace trireme::comm
