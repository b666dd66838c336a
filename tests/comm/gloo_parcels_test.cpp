// Messages that somebody between two ranks has touched do not arrive.
#include "trireme/comm/gloo/parcels.h"

#include <gtest/gtest.h>

#include <cstring>

namespace trireme::comm {
namespace {

const std::string kKey(store::Seal::kKeyBytes, 'k');
constexpr int kTag = 4;

Group group_of(int rank) { return {.name = "world", .rank = rank, .size = 3}; }

class Parcels : public ::testing::Test {
 protected:
  // Rank 0 sends `value` to rank 1; what is on the wire.
  std::vector<std::byte> sent(int value) {
    auto* parcel = from_.close(&value, sizeof value, 1, kTag);
    auto wire = parcel->memory;
    from_.give_back(parcel);
    return wire;
  }

  // What rank 1 makes of it: -1 where it does not open.
  int received(const std::vector<std::byte>& wire) {
    int value = 0;
    auto* parcel = to_.await(&value, sizeof value, 0, kTag);
    std::memcpy(parcel->memory.data(), wire.data(), wire.size());
    const bool opened = to_.open(*parcel);
    to_.give_back(parcel);
    return opened ? value : -1;
  }

  GlooParcels from_{group_of(0), kKey}, to_{group_of(1), kKey};
};

TEST_F(Parcels, ArriveInTheirOrder) {
  const auto first = sent(11), second = sent(12);
  EXPECT_EQ(received(first), 11);
  EXPECT_EQ(received(second), 12);
}

TEST_F(Parcels, CannotChangePlaces) {
  const auto first = sent(11), second = sent(12);
  EXPECT_EQ(received(second), -1);
  EXPECT_EQ(received(first), -1);
}

TEST_F(Parcels, CannotBeRepeated) {
  const auto first = sent(11);
  EXPECT_EQ(received(first), 11);
  EXPECT_EQ(received(first), -1);
}

TEST_F(Parcels, CannotBeSentBackOrToAnother) {
  const auto first = sent(11);
  GlooParcels other(group_of(2), kKey);
  int value = 0;
  auto* parcel = other.await(&value, sizeof value, 0, kTag);
  std::memcpy(parcel->memory.data(), first.data(), first.size());
  EXPECT_FALSE(other.open(*parcel));
  parcel = from_.await(&value, sizeof value, 1, kTag);
  std::memcpy(parcel->memory.data(), first.data(), first.size());
  EXPECT_FALSE(from_.open(*parcel));
}

TEST_F(Parcels, MemoryIsUsedAgainButNotForMuchSmallerOnes) {
  std::vector<std::byte> large(1 << 20);
  auto* parcel = from_.close(large.data(), static_cast<int64_t>(large.size()), 1, kTag);
  const auto* memory = parcel->memory.data();
  from_.give_back(parcel);
  int value = 5;
  EXPECT_NE(from_.close(&value, sizeof value, 1, kTag)->memory.data(), memory);
  EXPECT_EQ(from_.close(large.data(), static_cast<int64_t>(large.size()), 1, kTag)->memory.data(), memory);
}

}  // namespace
}  // namespace trireme::comm
