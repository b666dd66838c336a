// Gloo's device without Gloo's own way of connecting. Gloo identifies a peer only by a small number that the peer
// sends, so anybody on the network could take a rank's place. Here Gloo accepts no connections itself. Ranks connect by
// link_ranks (gloo/links.h) on Gloo's listening socket, and Gloo gets the finished connections, as if each peer had
// connected to it and sent the right number.
#pragma once

#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "trireme/base/files.h"

namespace gloo::transport {
class Device;
}

namespace trireme::comm {

class GlooDevice {
 public:
  /// Starts Gloo's thread. An empty `interface` means the interface of the host's name.
  /// Errors    std::exception of Gloo if there is no such interface
  explicit GlooDevice(const std::string& interface);

  int listener() const;  ///< the listening socket; only link_ranks accepts connections on it
  std::string address() const;  ///< of the listener: the bytes of a sockaddr

  /// Gives Gloo one connected socket for each other rank, and ends listening. Call it once, before the ProcessGroupGloo
  /// is made.
  void hand_over(std::vector<base::FileDescriptor> sockets) const;

  /// A local store for the ProcessGroupGloo. It holds no real addresses, and no other rank sees it.
  c10::intrusive_ptr<c10d::Store> directory(int rank, int size) const;

  const std::shared_ptr<gloo::transport::Device>& device() const { return device_; }

 private:
  std::shared_ptr<gloo::transport::Device> device_;
};

}  // namespace trireme::comm
