#include "trireme/text/byte_tokenizer.h"

#include <gtest/gtest.h>

#include <random>

#include "trireme/base/error.h"

namespace trireme::text {
namespace {

TEST(ByteTokenizer, RandomBytesComeBackUnchanged) {
  std::mt19937 random(7);
  const ByteTokenizer tokenizer;
  for (int length : {0, 1, 2, 100, 65'537}) {
    std::string text(static_cast<size_t>(length), '\0');
    for (char& c : text) c = static_cast<char>(random());
    const auto ids = tokenizer.encode(text);
    for (const int32_t id : ids) ASSERT_TRUE(id >= 0 && id < tokenizer.vocab_size());
    EXPECT_EQ(tokenizer.decode(ids), text);
  }
}

TEST(ByteTokenizer, IdsAreBytes) {
  EXPECT_EQ(ByteTokenizer().encode("A\xC3\xA9"), (std::vector<int32_t>{65, 0xC3, 0xA9}));
}

TEST(ByteTokenizer, AnIdThatIsNoByteIsRefusedByNumber) {
  const std::vector<int32_t> ids{65, 256};
  try {
    ByteTokenizer().decode(ids);
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("token id 256"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace trireme::text
