// Messages between this rank and its peers as sealed parcels (door/seal.h), for a transport that sends in the clear.
// Both sides count the messages of each pair of ranks and tag, so nothing but the parcel itself travels: one that is
// left out, repeated or changes places does not open.
#pragma once

#include "trireme/comm/group.h"

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "trireme/door/seal.h"

namespace trireme::comm {

class GlooParcels {
 public:
  /// Memory that a message travels in; it belongs to this object and lives as long.
  struct Parcel {
    std::vector<std::byte> memory;
    int64_t bytes = 0;  ///< of the memory, that may travel
    void* to = nullptr;  ///< of a parcel that is awaited: where its text belongs
    int64_t room = 0;
    int peer = 0;
    door::Stamp stamp = {};
  };

  /// `key` is the same on all ranks of the group and new for it.
  GlooParcels(const Group& group, std::string_view key);

  /// The next message with this tag to the peer, sealed.
  Parcel* close(const void* from, int64_t bytes, int peer, int tag);
  /// Memory for the next message with this tag from the peer, of up to `room` bytes.
  Parcel* await(void* to, int64_t room, int peer, int tag);
  /// Puts what has arrived where it belongs; false, and zeros there, when it is not what the peer sealed.
  bool open(const Parcel& parcel) const;
  /// The transport is done with it: its memory may serve another.
  void give_back(Parcel* parcel);

 private:
  struct Side {
    Side(std::string_view key, const std::string& purpose) : seal(key, purpose) {}

    door::Seal seal;
    std::map<int, uint64_t> counts;  ///< by tag
  };

  Parcel* take(int64_t text, int peer, int tag, Side& side);

  std::mutex mutex_;  // guards all but the keys: lanes send and receive at the same time
  std::deque<Side> out_, in_;  // by peer
  std::vector<std::unique_ptr<Parcel>> parcels_;
  std::vector<Parcel*> free_;
};

}  // namespace trireme::comm
