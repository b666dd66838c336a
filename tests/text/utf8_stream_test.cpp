#include "trireme/text/utf8.h"

#include <gtest/gtest.h>

#include <random>

namespace trireme::text {
namespace {

std::string byte_by_byte(std::string_view bytes) {
  Utf8Stream stream;
  std::string out;
  for (const char byte : bytes) out += stream.push({&byte, 1});
  return out + stream.finish();
}

const std::string kText = "£20,000 café – naïve 東京 𝄞 \U0001F600.";

TEST(Utf8Stream, ACharacterComesOnlyWhenItsLastByteHasCome) {
  Utf8Stream stream;
  EXPECT_EQ(stream.push("a\xF0\x9F"), "a");
  EXPECT_EQ(stream.push("\x98"), "");
  EXPECT_EQ(stream.push("\x80z"), "\U0001F600z");
  EXPECT_EQ(stream.finish(), "");
}

TEST(Utf8Stream, CuttingWellFormedTextAnywhereChangesNothing) {
  EXPECT_EQ(byte_by_byte(kText), kText);
  for (size_t cut = 0; cut <= kText.size(); ++cut) {
    Utf8Stream stream;
    std::string out = stream.push(kText.substr(0, cut));
    out += stream.push(kText.substr(cut));
    EXPECT_EQ(out + stream.finish(), kText);
  }
}

TEST(Utf8Stream, BytesOfNoCharacterBecomeReplacementCharacters) {
  EXPECT_EQ(byte_by_byte("a\xFFz"), "a\uFFFDz");
  EXPECT_EQ(byte_by_byte("\x80"), "\uFFFD");
  EXPECT_EQ(byte_by_byte("\xC0\xAF"), "\uFFFD\uFFFD");               // overlong
  EXPECT_EQ(byte_by_byte("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");     // a surrogate
  EXPECT_EQ(byte_by_byte("\xF4\x90\x80\x80"), "\uFFFD\uFFFD\uFFFD\uFFFD");  // above U+10FFFF
  EXPECT_EQ(byte_by_byte("\xE2\x82"
                         "A"),
            "\uFFFD"
            "A");             // cut short
  EXPECT_EQ(byte_by_byte("\xE2\x82"), "\uFFFD");                     // cut short at the end
}

TEST(Utf8Stream, AnyBytesGiveTheSameTextHoweverTheyArrive) {
  std::mt19937 random(3);
  for (int round = 0; round < 2000; ++round) {
    std::string bytes(1 + random() % 24, '\0');
    // Bytes around the borders of UTF-8's ranges come often.
    for (char& c : bytes)
      c = random() % 2 ? "\xC2\xE0\xED\xF0\xF4\x80\x9F\xA0\xBF\x8F\x90 "[random() % 12] : static_cast<char>(random());
    Utf8Stream whole;
    std::string expected = whole.push(bytes);
    EXPECT_EQ(byte_by_byte(bytes), expected + whole.finish());
    // What comes out is well-formed: a second pass leaves it alone.
    Utf8Stream again;
    EXPECT_EQ(again.push(expected) + again.finish(), expected);
  }
}

}  // namespace
}  // namespace trireme::text
