#include "trireme/base/checksum.h"

#include <gtest/gtest.h>

#include <string_view>
#include <vector>

namespace trireme::base {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

TEST(Checksum, IsXxh3SixtyFourBits) {
  EXPECT_EQ(checksum_text(checksum({})), "2d06800538d394c2");  // published value for the empty input
}

TEST(Checksum, PiecesGiveTheSameValueAsTheWhole) {
  std::vector<std::byte> data(10'000);
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i * 31);
  Checksum pieces;
  const std::span<const std::byte> all(data);
  pieces.update(all.first(1));
  pieces.update(all.subspan(1, 4'999));
  pieces.update(all.subspan(5'000));
  EXPECT_EQ(pieces.value(), checksum(data));
}

TEST(Checksum, OneFlippedBitChangesIt) { EXPECT_NE(checksum(bytes_of("hello")), checksum(bytes_of("hellp"))); }

}  // namespace
}  // namespace trireme::base
