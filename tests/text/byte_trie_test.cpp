// A ByteTrie finds what a look into a map of all strings finds.
#include "trireme/text/byte_trie.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>

namespace trireme::text {
namespace {

using Found = std::vector<std::pair<size_t, int32_t>>;

Found found_by_map(const std::map<std::string, int32_t>& all, const std::string& text) {
  Found found;
  for (size_t length = 1; length <= text.size(); ++length)
    if (const auto at = all.find(text.substr(0, length)); at != all.end()) found.emplace_back(length, at->second);
  return found;
}

Found found_by_trie(const ByteTrie& trie, const std::string& text) {
  Found found;
  trie.for_each_prefix(text, [&](size_t length, int32_t value) { found.emplace_back(length, value); });
  return found;
}

TEST(ByteTrie, FindsWhatAMapFinds) {
  std::mt19937_64 random(11);
  // Alphabets of one byte (long chains), few (deep and bushy) and all 256 (full nodes, zero bytes among them).
  for (const unsigned alphabet : {1u, 3u, 256u}) {
    const auto text = [&](size_t most) {
      std::string s(1 + random() % most, '\0');
      for (char& c : s) c = static_cast<char>(random() % alphabet * (alphabet == 3 ? 85 : 1));
      return s;
    };
    std::map<std::string, int32_t> all;
    std::vector<std::string> strings;
    for (int i = 0; i < 5000; ++i) strings.push_back(text(alphabet == 256 ? 3 : 12));
    std::vector<ByteTrie::Entry> entries;
    for (size_t i = 0; i < strings.size(); ++i) {
      entries.emplace_back(strings[i], static_cast<int32_t>(i));
      all[strings[i]] = static_cast<int32_t>(i);
    }
    const ByteTrie trie(std::move(entries));
    for (int i = 0; i < 5000; ++i) {
      const std::string t = i % 2 == 0 ? text(14) : strings[static_cast<size_t>(i)] + text(3);
      ASSERT_EQ(found_by_trie(trie, t), found_by_map(all, t));
    }
  }
}

TEST(ByteTrie, OfNothingFindsNothing) {
  EXPECT_TRUE(found_by_trie(ByteTrie(), "abc").empty());
  EXPECT_TRUE(found_by_trie(ByteTrie({{"", 3}}), "abc").empty());
}

}  // namespace
}  // namespace trireme::text
