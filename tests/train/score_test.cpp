// Texts behind a context as tokens. lm-evaluation-harness itself judges whole tasks in tasks_judge.py.
#include "trireme/train/score.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/data/refusal.h"
#include "trireme/text/byte_alphabet.h"
#include "trireme/text/tokenizer_formats.h"
#include "trireme/text/tokenizer_pipeline.h"

namespace trireme::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// 256 bytes, and "he".
text::PipelineTokenizer tokenizer_with_he() {
  nlohmann::json vocab = nlohmann::json::object();
  for (int b = 0; b < 256; ++b) vocab[text::to_byte_letters(std::string(1, static_cast<char>(b)))] = b;
  vocab["he"] = 256;
  const nlohmann::json file = {
      {"version", "1.0"},
      {"normalizer", nullptr},
      {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}},
      {"decoder", {{"type", "ByteLevel"}}},
      {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", {"h e"}}}}};
  return text::PipelineTokenizer(text::parse_tokenizer_json(file.dump(), "tokenizer.json"));
}

TEST(EncodePair, TheTokensBehindTheContextAreJudged) {
  const text::PipelineTokenizer tokenizer = tokenizer_with_he();
  const ScoredText own = encode_pair(tokenizer, "x", " he");
  EXPECT_THAT(own.tokens, ElementsAre('x', ' ', 256));
  EXPECT_EQ(own.first, 1);
  const ScoredText space = encode_pair(tokenizer, "x ", "he");  // which belongs to the text
  EXPECT_THAT(space.tokens, ElementsAre('x', ' ', 256));
  EXPECT_EQ(space.first, 1);
  const ScoredText joined = encode_pair(tokenizer, "x h", "e w");
  EXPECT_THAT(joined.tokens, ElementsAre('x', ' ', 256, ' ', 'w'));
  EXPECT_EQ(joined.first, 3);
  const ScoredText alone = encode_pair(tokenizer, "", "he");
  EXPECT_THAT(alone.tokens, ElementsAre('\n', 256));
  EXPECT_EQ(alone.first, 1);
}

TEST(EncodePair, ATextWithoutATokenOfItsOwnIsRefused) {
  const text::PipelineTokenizer tokenizer = tokenizer_with_he();
  EXPECT_THAT(data::refusal([&] { encode_pair(tokenizer, "x h", "e"); }),
              HasSubstr("choice \"e\" has no token of its own, because the tokenizer joins it to the end of its "
                        "context; begin it with a space"));
  EXPECT_THAT(data::refusal([&] { encode_pair(tokenizer, "", ""); }), HasSubstr("has no token of its own"));
}

}  // namespace
}  // namespace trireme::train
