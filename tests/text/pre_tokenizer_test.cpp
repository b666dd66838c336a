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

}  // namespace
}  // namespace trireme::text
