// Bytes between this rank and each peer, over a c10d backend that sends and receives (ProcessGroupGloo). Errors of
// the transport become one exception that names the peer. Another thread can end waits by stop().
#pragma once

#include "trireme/comm/group.h"

#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "trireme/comm/gloo/parcels.h"
#include "trireme/comm/lane.h"

namespace trireme::comm {

/// The part of this backend that sends. Messages of each part have their own order.
enum class GlooStream { collective, second_phase, message };

/// Gloo ends the process if more bytes arrive than a receive has room for. So the length of a message is part of its
/// tag, and a receive never gets a longer message of another call. 0 stands for a header of any length.
constexpr int gloo_tag(GlooStream stream, int64_t bytes) {
  return static_cast<int>(bytes * 4) + static_cast<int>(stream);
}

class GlooChannel {
 public:
  static constexpr int64_t kMaxBytes = 512 << 10;  ///< per message; a tag has room for 2^29

  struct Transfer {
    c10::intrusive_ptr<c10d::Work> work;
    int peer;
    GlooParcels::Parcel* parcel = nullptr;  ///< if messages are encrypted
  };

  /// If `key` is given, all messages are encrypted with it (store::Seal). It is the same on all ranks.
  GlooChannel(Group group, c10::intrusive_ptr<c10d::Backend> transport, const std::optional<std::string>& key = {});

  /// Messages of one pair of ranks and one tag arrive in the order in which they were posted. A receive may have
  /// room for more bytes than are sent. The memory must stay until the transfer has been waited for, or until the
  /// channel has failed.
  /// Errors    TransportFailure if the peer is known to be gone
  Transfer send(const void* from, int64_t bytes, int peer, int tag);
  Transfer receive(void* to, int64_t bytes, int peer, int tag);

  /// Waits for each transfer, then clears the vector.
  /// Errors    TransportFailure on timeout (each transfer has its own), loss of the peer, stop(), or a message that
  ///           the peer has not encrypted
  void wait(std::vector<Transfer>& transfers);

  /// Ends all current and later waits of other threads.
  void stop();
  bool stopping();

  const Group& group() const { return group_; }

 private:
  template <typename F>
  auto translated(int peer, F&& f);
  void wait(const Transfer& t);
  void open(const Transfer& t);

  Group group_;
  std::unique_ptr<GlooParcels> parcels_;  // outlives the transport, which writes to their memory
  c10::intrusive_ptr<c10d::Backend> transport_;
  std::mutex mutex_;  // guards the members below, which lanes and stop() share
  bool stopping_ = false;
  std::set<c10::intrusive_ptr<c10d::Work>> waiting_;
};

}  // namespace trireme::comm
