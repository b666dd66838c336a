// Encrypted messages ("parcels", store/seal.h) between this rank and its peers, for a transport that does not encrypt.
// Both sides number the messages, for each pair of ranks and each tag. The number is part of the cipher's nonce. So
// decryption fails if a message is lost, repeated or reordered.
#pragma once

#include "trireme/comm/group.h"

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "trireme/store/seal.h"

namespace trireme::comm {

class GlooParcels {
 public:
  /// One message in transit. The GlooParcels owns it, and frees it in its own destructor.
  struct Parcel {
    std::vector<std::byte> memory;
    int64_t bytes = 0;   ///< of `memory`: what is sent, or the most that may arrive
    void* to = nullptr;  ///< receiving: where the decrypted message goes
    int64_t room = 0;    ///< bytes at `to`
    int peer = 0;        ///< group rank
    store::Stamp stamp = {};
  };

  /// Every group has a `key` of its own, the same on all its ranks.
  GlooParcels(const Group& group, std::string_view key);

  /// Encrypts the next message with this tag to the peer.
  Parcel* close(const void* from, int64_t bytes, int peer, int tag);
  /// Returns a parcel to receive the peer's next message with this tag. open() decrypts up to `room` bytes to `to`.
  Parcel* await(void* to, int64_t room, int peer, int tag);
  /// Decrypts a received message to `parcel.to`. If the peer did not encrypt it, writes zeros and returns false.
  bool open(const Parcel& parcel) const;
  /// Call it when the transport has finished with the parcel; its memory is then reused.
  void give_back(Parcel* parcel);

 private:
  struct Side {
    Side(std::string_view key, const std::string& purpose) : seal(key, purpose) {}

    store::Seal seal;
    std::map<int, uint64_t> counts;  ///< messages so far, by tag
  };

  Parcel* take(int64_t text, int peer, int tag, Side& side);

  std::mutex mutex_;  // guards everything but the keys: threads (lane.h) send and receive at the same time
  std::deque<Side> out_, in_;  // one Side per peer
  std::vector<std::unique_ptr<Parcel>> parcels_;
  std::vector<Parcel*> free_;
};

}  // namespace trireme::comm
