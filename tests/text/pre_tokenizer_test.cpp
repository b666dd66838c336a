#include "trireme/text/pre_tokenizer.h"

#include <gtest/gtest.h>

namespace trireme::text {
namespace {

std::vector<std::string> pieces(const PreTokenizer& pre_tokenizer, std::string_view text) {
  std::vector<std::string> out;
  pre_tokenizer.run(text, TextBefore::nothing, [&](std::string_view piece) { out.emplace_back(piece); });
  return out;
}

PreTokenizer split_at(CharacterSet set, SplitStep::Behavior behavior) {
  PreTokenizer pre_tokenizer;
  set.finish();
  pre_tokenizer.add(SplitStep{.pattern = std::move(set), .behavior = behavior});
  return pre_tokenizer;
}

TEST(PreTokenizer, MetaspaceCutsBeforeEachWord) {
  PreTokenizer pre_tokenizer;
  pre_tokenizer.add(MetaspaceStep{});
  EXPECT_EQ(pieces(pre_tokenizer, "a  bc d"), (std::vector<std::string>{"▁a", "▁", "▁bc", "▁d"}));
}

TEST(PreTokenizer, ACharacterSetCutsLikeAnExpression) {
  CharacterSet digits;
  digits.add('0', '9');
  using enum SplitStep::Behavior;
  using Pieces = std::vector<std::string>;
  EXPECT_EQ(pieces(split_at(digits, isolated), "ab12c"), (Pieces{"ab", "1", "2", "c"}));
  EXPECT_EQ(pieces(split_at(digits, removed), "ab12c"), (Pieces{"ab", "c"}));
  EXPECT_EQ(pieces(split_at(digits, contiguous), "ab12c"), (Pieces{"ab", "12", "c"}));
  EXPECT_EQ(pieces(split_at(digits, merged_with_previous), "ab12c"), (Pieces{"ab1", "2", "c"}));
  EXPECT_EQ(pieces(split_at(digits, merged_with_next), "ab12c"), (Pieces{"ab", "1", "2c"}));
}

TEST(PreTokenizer, AnEmptyMatchStandsBetweenPieces) {
  using enum SplitStep::Behavior;
  using Pieces = std::vector<std::string>;
  const auto cut = [](SplitStep::Behavior behavior) {
    PreTokenizer pre_tokenizer;
    pre_tokenizer.add(SplitStep{.pattern = Regex("(?=[A-Z])"), .behavior = behavior});
    return pieces(pre_tokenizer, "AbCd");
  };
  for (const auto behavior : {isolated, removed, contiguous, merged_with_previous, merged_with_next})
    EXPECT_EQ(cut(behavior), (Pieces{"Ab", "Cd"}));
}

TEST(PreTokenizer, EmptyMatchesAreThoseOfPyPIsTokenizers) {
  using enum SplitStep::Behavior;
  struct Row {
    const char *pattern, *text;
    SplitStep::Behavior behavior;
    bool invert;
    std::vector<std::string> pieces;
  };
  const Row rows[] = {
      {"(?=b)|c", "abcacb", merged_with_previous, true, {"a", "b", "ca", "cb"}},
      {"(?=b)|c", "abcacb", merged_with_previous, false, {"a", "bc", "ac", "b"}},
      {"(?=b)|c", "abcacb", merged_with_next, true, {"a", "bc", "ac", "b"}},
      {"(?=b)|c", "abcacb", merged_with_next, false, {"a", "b", "ca", "cb"}},
      {"(?=b)|c", "abcacb", contiguous, true, {"a", "b", "c", "a", "c", "b"}},
      {"(?=b)|c", "abcacb", contiguous, false, {"a", "b", "c", "a", "c", "b"}},
      {"(?=b)|c", "abcacb", isolated, false, {"a", "b", "c", "a", "c", "b"}},
      {"(?=b)|c", "abcacb", removed, false, {"a", "b", "a", "b"}},
      {"x*", "axxb", merged_with_previous, true, {"a", "xxb"}},
      {"x*", "axxb", merged_with_previous, false, {"axx", "b"}},
      {"x*", "axxb", merged_with_next, true, {"axx", "b"}},
      {"x*", "axxb", merged_with_next, false, {"a", "xxb"}},
      {"x*", "axxb", contiguous, true, {"a", "xx", "b"}},
      {"x*", "axxb", contiguous, false, {"a", "xx", "b"}},
      {"x*", "axxb", isolated, false, {"a", "xx", "b"}},
      {"x*", "axxb", removed, false, {"a", "b"}},
      {"b?", "abbc", merged_with_previous, true, {"a", "b", "bc"}},
      {"b?", "abbc", merged_with_previous, false, {"ab", "b", "c"}},
      {"b?", "abbc", merged_with_next, true, {"ab", "b", "c"}},
      {"b?", "abbc", merged_with_next, false, {"a", "b", "bc"}},
      {"b?", "abbc", contiguous, true, {"a", "bb", "c"}},
      {"b?", "abbc", contiguous, false, {"a", "bb", "c"}},
      {"b?", "abbc", isolated, false, {"a", "b", "b", "c"}},
      {"b?", "abbc", removed, false, {"a", "c"}},
      {"^|a", "aab", merged_with_previous, true, {"a", "ab"}},
      {"^|a", "aab", merged_with_previous, false, {"aa", "b"}},
      {"^|a", "aab", merged_with_next, true, {"aa", "b"}},
      {"^|a", "aab", merged_with_next, false, {"a", "ab"}},
      {"^|a", "aab", contiguous, true, {"a", "a", "b"}},
      {"^|a", "aab", contiguous, false, {"a", "a", "b"}},
      {"^|a", "aab", isolated, false, {"a", "a", "b"}},
      {"^|a", "aab", removed, false, {"a", "b"}},
      {"(?=c)|b|c", "bcbc", merged_with_previous, true, {"bc", "bc"}},
      {"(?=c)|b|c", "bcbc", merged_with_previous, false, {"b", "cb", "c"}},
      {"(?=c)|b|c", "bcbc", merged_with_next, true, {"b", "cb", "c"}},
      {"(?=c)|b|c", "bcbc", merged_with_next, false, {"bc", "bc"}},
      {"(?=c)|b|c", "bcbc", contiguous, true, {"b", "c", "b", "c"}},
      {"(?=c)|b|c", "bcbc", contiguous, false, {"b", "c", "b", "c"}},
      {"(?=c)|b|c", "bcbc", isolated, false, {"b", "c", "b", "c"}},
      {"(?=c)|b|c", "bcbc", removed, false, {"c", "c"}},
  };
  for (const Row& row : rows) {
    PreTokenizer pre_tokenizer;
    pre_tokenizer.add(SplitStep{.pattern = Regex(row.pattern), .behavior = row.behavior, .invert = row.invert});
    EXPECT_EQ(pieces(pre_tokenizer, row.text), row.pieces) << row.pattern << " " << row.text;
  }
}

}  // namespace
}  // namespace trireme::text
