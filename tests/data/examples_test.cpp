#include "trireme/data/examples.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "refusal.h"
#include "token_sets.h"

namespace trireme::data {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Optional;
using text::Learn;

TEST(Examples, APromptIsWhatStandsBeforeTheReply) {
  const TemporaryFolder folder;
  const auto set = make_set(folder.path(),
                            {{.ids = {1, 2, 3, 4}, .mask = {0, 0, 1, 1}},
                             {.ids = {5, 6}, .mask = {0, 1}},
                             {.ids = {7, 8, 9}, .mask = {1, 0, 1}},
                             {.ids = {10, 11}, .mask = {1, 1}}},
                            true);
  EXPECT_EQ(count_documents(whole(set)), 4);
  EXPECT_THAT(prompt_of(whole(set), 0, Learn::replies), Optional(ElementsAre(1, 2)));
  EXPECT_THAT(prompt_of(whole(set), 1, Learn::replies), Optional(ElementsAre(5)));
  EXPECT_THAT(prompt_of(whole(set), 2, Learn::messages), Optional(ElementsAre(7, 8)));
  EXPECT_THAT(prompt_of(whole(set), 3, Learn::replies), Optional(IsEmpty()));
  EXPECT_EQ(prompt_of(whole(set), 3, Learn::messages), std::nullopt);
  EXPECT_THAT(prompt_of(whole(set), 0, Learn::all, std::vector<int32_t>{2, 3}), Optional(ElementsAre(1, 2, 3)));
  EXPECT_EQ(prompt_of(whole(set), 0, Learn::all, std::vector<int32_t>{3, 2}), std::nullopt);
  EXPECT_EQ(prompt_of(whole(set), 0, Learn::all), std::nullopt);
  EXPECT_EQ(refusal([&] { prompt_of(whole(set), 4, Learn::replies); }),
            "eval.evaluate_example 4 is not among the 4 conversations that are held out, counted from 0");
  EXPECT_NE(refusal([&] { prompt_of(whole(set), -1, Learn::replies); }), "not refused");
  // Of a part of the set, the part's own first one.
  const TokenRange part(set, std::vector<TokenRange::Stretch>{{4, 2}, {9, 2}}, "set");
  EXPECT_EQ(count_documents(part), 2);
  EXPECT_THAT(prompt_of(part, 0, Learn::replies), Optional(ElementsAre(5)));
}

TEST(Examples, PlainTextHasNoPrompts) {
  const TemporaryFolder folder;
  EXPECT_EQ(prompt_of(counting_tokens(folder.path(), 9), 0, Learn::replies), std::nullopt);
}

}  // namespace
}  // namespace trireme::data
