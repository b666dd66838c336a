// Gloo's device without Gloo's own way of connecting. That way knows a peer by a small number alone which the peer says
// of itself, so whoever may connect could take a rank's place. Here nobody who connects is heard by Gloo: the socket on
// which it listens is taken away from it, ranks connect by link_ranks (gloo_links.h), and Gloo gets the finished
// connections, as if each had come to it with the right number.
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
  /// Starts Gloo's thread. `interface`: empty: that of the host's name.
  /// Errors    std::exception of Gloo's where there is no such interface
  explicit GlooDevice(const std::string& interface);

  int listener() const;  ///< where others connect; nothing but link_ranks takes connections from it
  std::string address() const;  ///< its address: the bytes of a sockaddr

  /// Once, before the ProcessGroupGloo is made: one connected socket for each other rank. Nobody can connect
  /// afterwards.
  void hand_over(std::vector<base::FileDescriptor> sockets) const;

  /// The store of the ProcessGroupGloo: it has no address to tell anybody, and finds none in it.
  c10::intrusive_ptr<c10d::Store> directory(int rank, int size) const;

  const std::shared_ptr<gloo::transport::Device>& device() const { return device_; }

 private:
  std::shared_ptr<gloo::transport::Device> device_;
};

}  // namespace trireme::comm
