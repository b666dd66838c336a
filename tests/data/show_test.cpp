#include "trireme/data/show.h"

#include <gtest/gtest.h>

#include "tests/text/chat_vocabularies.h"
#include "trireme/base/error.h"
#include "trireme/text/chat_encoder.h"

namespace trireme::data {
namespace {

const std::vector<text::ChatMessage> kShownTalk = {{"user", "a\x1B[2Jb\xC3\xA9"}, {"assistant", "Hello\n!"}};

TEST(Show, TellsTokensAndWhatIsLearnedWithoutColour) {
  const text::PipelineTokenizer tokenizer = text::test::byte_level_tokenizer();
  const text::ChatFamily& chatml = text::find_chat_family("chatml");
  const text::ChatTokens tokens = text::ChatEncoder(tokenizer, chatml).encode(text::render_chat(chatml, kShownTalk));
  EXPECT_EQ(show_tokens(tokenizer, tokens.ids, tokens.mask, {.has_mask = true}),
            "[<|im_start|>][u][s][e][r][\u21B5]\n[a][\u241B][[][2][J][b][\\xC3][\\xA9][<|im_end|>][\u21B5]\n"
            "[<|im_start|>][a][s][s][i][s][t][a][n][t][\u21B5]\n{Hell}{o}{\u21B5}\n{!}{<|im_end|>}[\u21B5]\n");
  EXPECT_EQ(show_legend({.has_mask = true}), "{..} is a token that is learned, [..] one that is not");
}

TEST(Show, TextWithoutAMaskIsAllTokens) {
  const text::PipelineTokenizer tokenizer = text::test::byte_level_tokenizer();
  EXPECT_EQ(show_tokens(tokenizer, tokenizer.encode("a Hell"), {}, {.ids = true}),
            "[a 97][ Hell " + std::to_string(*tokenizer.token_id("\u0120Hell")) + "]\n");
  EXPECT_EQ(show_legend({}), "[..] is a token");
}

TEST(Show, ColoursAreClosedAndTextSendsNoneOfItsOwn) {
  const text::PipelineTokenizer tokenizer = text::test::byte_level_tokenizer();
  const std::string text = show_tokens(tokenizer, tokenizer.encode("\x1B[31m"), {}, {.colour = true, .has_mask = true});
  size_t opened = 0, closed = 0;
  for (size_t at = text.find('\x1B'); at != std::string::npos; at = text.find('\x1B', at + 1))
    text.compare(at, 4, "\x1B[0m") == 0 ? ++closed : ++opened;
  EXPECT_EQ(opened, 5u);
  EXPECT_EQ(closed, opened);
}

TEST(Show, IdsOfAnotherTokenizerAreRefused) {
  const text::PipelineTokenizer tokenizer = text::test::byte_level_tokenizer();
  const std::vector<int32_t> ids = {1'000'000};
  EXPECT_THROW(show_tokens(tokenizer, ids, {}, {}), UsageError);
}

}  // namespace
}  // namespace trireme::data
