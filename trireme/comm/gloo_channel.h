// Bytes between this rank and each peer, over a c10d backend that sends and receives (ProcessGroupGloo). Errors of
// the transport leave as one exception that names the peer; waits end when another thread says stop().
#pragma once

#include "trireme/comm/group.h"

#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "trireme/comm/gloo_parcels.h"
#include "trireme/comm/transport_failure.h"

namespace trireme::comm {

/// Who sends: each keeps an order of its own.
enum class GlooStream { collective, second_phase, message };

/// Gloo ends the process when more bytes come than a receive has room for. So the length of a message is part of its
/// tag, and what another call has sent never meets this one's receives. 0: a header, received with room for any.
constexpr int gloo_tag(GlooStream stream, int64_t bytes) {
  return static_cast<int>(bytes * 4) + static_cast<int>(stream);
}

class GlooChannel {
 public:
  static constexpr int64_t kMaxBytes = 512 << 10;  ///< of a message, by choice; the tag has room for 2^29

  struct Transfer {
    c10::intrusive_ptr<c10d::Work> work;
    int peer;
    GlooParcels::Parcel* parcel = nullptr;  ///< where messages are sealed
  };

  /// `key`: of door::Seal, the same on all ranks; with one all messages are sealed.
  GlooChannel(Group group, c10::intrusive_ptr<c10d::Backend> transport, const std::optional<std::string>& key = {});

  /// Messages of one pair of ranks and tag arrive in the order they were posted. A receive may have
  /// room for more bytes than are sent. The memory must stay until the transfer has been waited for or the channel is
  /// given up. Errors    TransportFailure when the peer is known to be gone
  Transfer send(const void* from, int64_t bytes, int peer, int tag);
  Transfer receive(void* to, int64_t bytes, int peer, int tag);

  /// Waits for each, then forgets them.
  /// Errors    TransportFailure on timeout (of each transfer), loss of the peer, stop(), or where what came is not
  ///           what the peer has sealed
  void wait(std::vector<Transfer>& transfers);

  /// Ends waits of other threads, now and later.
  void stop();
  bool stopping();

  const Group& group() const { return group_; }

 private:
  template <typename F>
  auto translated(int peer, F&& f);
  void wait(const Transfer& t);
  void open(const Transfer& t);
  void begin_wait(const Transfer& t);
  void end_wait(const Transfer& t);

  Group group_;
  std::unique_ptr<GlooParcels> parcels_;  // outlives the transport, which writes to their memory
  c10::intrusive_ptr<c10d::Backend> transport_;
  std::mutex mutex_;  // guards what lanes and stop() share
  bool stopping_ = false;
  std::set<c10::intrusive_ptr<c10d::Work>> waiting_;
};

}  // namespace trireme::comm
