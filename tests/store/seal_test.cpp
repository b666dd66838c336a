#include "trireme/store/seal.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "trireme/base/error.h"

namespace trireme::store {
namespace {

using Bytes = std::vector<std::byte>;

Bytes bytes_of(std::string_view text) {
  Bytes bytes(text.size());
  std::transform(text.begin(), text.end(), bytes.begin(), [](char c) { return static_cast<std::byte>(c); });
  return bytes;
}

Bytes closed(const Seal& seal, const Bytes& text, Stamp stamp) {
  Bytes sealed(text.size() + Seal::kOverhead);
  seal.close(text, stamp, sealed.data());
  return sealed;
}

const std::string kKey(Seal::kKeyBytes, 'k');
const Bytes kText = bytes_of("gradients of layer 3");
constexpr Stamp kStamp{.stream = 7, .sequence = 1'000'000'000'000};

TEST(Seal, OpensWhatItClosed) {
  const Seal seal(kKey, "3 to 1"), same(kKey, "3 to 1");
  for (const std::size_t size : {0, 1, 15, 16, 17, 100'000}) {
    Bytes text(size, std::byte{42}), room(size + 5, std::byte{1});
    const Bytes sealed = closed(seal, text, kStamp);
    ASSERT_TRUE(same.open(sealed.data(), kStamp, room));
    EXPECT_TRUE(std::equal(text.begin(), text.end(), room.begin()));
  }
}

TEST(Seal, ShowsNothingOfTheText) {
  const Seal seal(kKey, "3 to 1");
  const Bytes sealed = closed(seal, kText, kStamp), later = closed(seal, kText, {kStamp.stream, kStamp.sequence + 1});
  EXPECT_EQ(std::search(sealed.begin(), sealed.end(), kText.begin() + 3, kText.begin() + 7), sealed.end());
  EXPECT_FALSE(std::equal(sealed.begin() + 8, sealed.end(), later.begin() + 8));
}

TEST(Seal, NoBitCanBeChanged) {
  const Seal seal(kKey, "3 to 1");
  const Bytes sealed = closed(seal, kText, kStamp);
  for (std::size_t bit = 0; bit < 8 * sealed.size(); ++bit) {
    Bytes changed = sealed, room(kText.size(), std::byte{1});
    changed[bit / 8] ^= std::byte{1} << (bit % 8);
    ASSERT_FALSE(seal.open(changed.data(), kStamp, room)) << bit;
    ASSERT_EQ(room, Bytes(kText.size()));
  }
}

TEST(Seal, AnotherKeyPurposeOrStampDoesNotOpen) {
  const Bytes sealed = closed(Seal(kKey, "3 to 1"), kText, kStamp);
  Bytes room(kText.size());
  EXPECT_FALSE(Seal(std::string(Seal::kKeyBytes, 'l'), "3 to 1").open(sealed.data(), kStamp, room));
  EXPECT_FALSE(Seal(kKey, "1 to 3").open(sealed.data(), kStamp, room));
  EXPECT_FALSE(Seal(kKey, "3 to 1").open(sealed.data(), {kStamp.stream + 1, kStamp.sequence}, room));
  EXPECT_FALSE(Seal(kKey, "3 to 1").open(sealed.data(), {kStamp.stream, kStamp.sequence - 1}, room));
}

TEST(Seal, ALongerTextThanThereIsRoomForIsRefused) {
  const Seal seal(kKey, "3 to 1");
  const Bytes sealed = closed(seal, kText, kStamp);
  Bytes room(kText.size() - 1, std::byte{1});
  EXPECT_FALSE(seal.open(sealed.data(), kStamp, room));
}

TEST(Seal, KeysAreDrawnAndHaveTheirSize) {
  EXPECT_NE(Seal::draw_key(), Seal::draw_key());
  EXPECT_THROW(Seal("short", "3 to 1"), Error);
}

}  // namespace
}  // namespace trireme::store
