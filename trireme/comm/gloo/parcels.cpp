#include "trireme/comm/gloo/parcels.h"

#include <fmt/format.h>

#include <algorithm>

namespace trireme::comm {

GlooParcels::GlooParcels(const Group& group, std::string_view key) {
  const auto purpose = [](int from, int to) { return fmt::format("gloo {} to {}", from, to); };
  for (int peer = 0; peer < group.size; ++peer) {
    out_.emplace_back(key, purpose(group.rank, peer));
    in_.emplace_back(key, purpose(peer, group.rank));
  }
}

// The map of tags stays small: a tag is a length (gloo/channel.h), and a model has few lengths.
GlooParcels::Parcel* GlooParcels::take(int64_t text, int peer, int tag, Side& side) {
  const int64_t bytes = text + static_cast<int64_t>(store::Seal::kOverhead);
  const std::lock_guard lock(mutex_);
  // A small message does not get the memory of a large one: the next large message would need new pages.
  const auto fits = std::find_if(free_.begin(), free_.end(), [&](const Parcel* parcel) {
    const auto size = static_cast<int64_t>(parcel->memory.size());
    return size >= bytes && size <= 4 * bytes;
  });
  Parcel* parcel;
  if (fits != free_.end()) {
    parcel = *fits;
    free_.erase(fits);
  } else {
    parcel = parcels_.emplace_back(std::make_unique<Parcel>()).get();
    parcel->memory.resize(static_cast<std::size_t>(bytes));
  }
  parcel->bytes = bytes;
  parcel->peer = peer;
  parcel->stamp = {.stream = static_cast<uint32_t>(tag), .sequence = side.counts[tag]++};
  return parcel;
}

GlooParcels::Parcel* GlooParcels::close(const void* from, int64_t bytes, int peer, int tag) {
  Side& side = out_[static_cast<std::size_t>(peer)];
  Parcel* parcel = take(bytes, peer, tag, side);
  side.seal.close({static_cast<const std::byte*>(from), static_cast<std::size_t>(bytes)}, parcel->stamp,
                  parcel->memory.data());
  return parcel;
}

GlooParcels::Parcel* GlooParcels::await(void* to, int64_t room, int peer, int tag) {
  Parcel* parcel = take(room, peer, tag, in_[static_cast<std::size_t>(peer)]);
  parcel->to = to;
  parcel->room = room;
  return parcel;
}

bool GlooParcels::open(const Parcel& parcel) const {
  return in_[static_cast<std::size_t>(parcel.peer)].seal.open(
      parcel.memory.data(), parcel.stamp, {static_cast<std::byte*>(parcel.to), static_cast<std::size_t>(parcel.room)});
}

void GlooParcels::give_back(Parcel* parcel) {
  const std::lock_guard lock(mutex_);
  parcel->to = nullptr;
  free_.push_back(parcel);
}

}  // namespace trireme::comm
