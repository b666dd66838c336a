// Texts behind a context as tokens. lm-evaluation-harness itself judges whole tasks in tasks_judge.py.
#include "trireme/train/score.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "tests/data/refusal.h"
#include "tests/data/temporary_folder.h"
#include "trireme/text/byte_alphabet.h"
#include "trireme/text/tokenizer_formats.h"
#include "trireme/text/tokenizer_pipeline.h"

namespace trireme::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// 256 bytes, and "he".
nlohmann::json file_with_he() {
  nlohmann::json vocab = nlohmann::json::object();
  for (int b = 0; b < 256; ++b) vocab[text::to_byte_letters(std::string(1, static_cast<char>(b)))] = b;
  vocab["he"] = 256;
  return {{"version", "1.0"},
          {"normalizer", nullptr},
          {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}},
          {"decoder", {{"type", "ByteLevel"}}},
          {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", {"h e"}}}}};
}

text::PipelineTokenizer tokenizer_with_he() {
  return text::PipelineTokenizer(text::parse_tokenizer_json(file_with_he().dump(), "tokenizer.json"));
}

// As above, with <s> (257) before each text, and </s> (258) behind it.
constexpr int32_t kBegin = 257, kEnd = 258;

text::PipelineTokenizer tokenizer_with_ends() {
  nlohmann::json file = file_with_he();
  for (const auto& [id, name] : {std::pair(kBegin, "<s>"), std::pair(kEnd, "</s>")})
    file["added_tokens"].push_back({{"id", id},
                                    {"content", name},
                                    {"single_word", false},
                                    {"lstrip", false},
                                    {"rstrip", false},
                                    {"normalized", false},
                                    {"special", true}});
  text::TokenizerParts parts = text::parse_tokenizer_json(file.dump(), "tokenizer.json");
  parts.before = {kBegin}, parts.after = {kEnd};
  parts.bos = kBegin, parts.eos = kEnd;
  return text::PipelineTokenizer(std::move(parts));
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

TEST(EncodeContext, ATextThatBringsItsFirstTokenGetsNoOther) {
  const text::PipelineTokenizer tokenizer = tokenizer_with_ends();
  EXPECT_THAT(encode_context(tokenizer, "x"), ElementsAre(kBegin, 'x', kEnd));
  EXPECT_THAT(encode_context(tokenizer, "<s>x"), ElementsAre(kBegin, 'x'));
  const ScoredText pair = encode_pair(tokenizer, "<s>x", " he");
  EXPECT_THAT(pair.tokens, ElementsAre(kBegin, 'x', ' ', 256));
  EXPECT_EQ(pair.first, 2);
  const ScoredText alone = encode_pair(tokenizer, "", "<s>he");
  EXPECT_THAT(alone.tokens, ElementsAre(kBegin, 256));
  EXPECT_EQ(alone.first, 1);
}

// Other text may get the same first id, for instance where it is the unknown token, too.
TEST(EncodeContext, OnlyTheWrittenTokenIsATextsOwn) {
  nlohmann::json file = file_with_he();
  file["normalizer"] = {{"type", "Lowercase"}};
  text::TokenizerParts parts = text::parse_tokenizer_json(file.dump(), "tokenizer.json");
  parts.before = {'x'};
  parts.bos = 'x';
  const text::PipelineTokenizer tokenizer(std::move(parts));
  EXPECT_THAT(encode_context(tokenizer, "Xy"), ElementsAre('x', 'x', 'y'));
  EXPECT_THAT(encode_context(tokenizer, "xy"), ElementsAre('x', 'y'));
}

TEST(EncodePair, SpaceThatEndsAContextIsThatOfPython) {
  const text::PipelineTokenizer tokenizer = tokenizer_with_he();
  for (const char* space : {"\u00A0", "\u2003", "\x1C", " \u3000\n"}) {
    const ScoredText pair = encode_pair(tokenizer, std::string("x") + space, "he");
    EXPECT_EQ(pair.first, 1) << space;
    EXPECT_EQ(pair.tokens.back(), 256) << space;
  }
}

TEST(ReadScoredTexts, NoEndStandsBetweenPromptAndCompletion) {
  const data::TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "texts.jsonl";
  std::ofstream(path) << R"({"prompt": "x", "completion": " he"})" << "\n" << R"({"text": "x"})" << "\n";
  const text::PipelineTokenizer tokenizer = tokenizer_with_ends();
  const std::vector<ScoredText> texts = read_scored_texts(path, &tokenizer, 259);
  EXPECT_THAT(texts.at(0).tokens, ElementsAre(kBegin, 'x', ' ', 256));
  EXPECT_EQ(texts.at(0).first, 2);
  EXPECT_THAT(texts.at(1).tokens, ElementsAre(kBegin, 'x', kEnd));
}

TEST(ReadScoredTexts, AJsonListIsReadAsLinesAre) {
  const data::TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "texts.json";
  std::ofstream(path) << "[{\"text\": \"x he\"},\n {\"text\": \"xy\"}]\n";
  const text::PipelineTokenizer tokenizer = tokenizer_with_he();
  EXPECT_EQ(read_scored_texts(path, &tokenizer, 259).size(), 2u);
  std::ofstream(path) << "[{\"text\": \"x he\"}";
  EXPECT_THAT(data::refusal([&] { read_scored_texts(path, &tokenizer, 259); }),
              HasSubstr("the JSON list does not end"));
}

TEST(EncodePair, ATextWithoutATokenOfItsOwnIsRefused) {
  const text::PipelineTokenizer tokenizer = tokenizer_with_he();
  EXPECT_THAT(data::refusal([&] { encode_pair(tokenizer, "x h", "e"); }),
              HasSubstr("choice \"e\" has no token of its own, because the tokenizer joins it to the end of its "
                        "context; begin it with a space"));
  EXPECT_THAT(data::refusal([&] { encode_pair(tokenizer, "", ""); }), HasSubstr("has no token of its own"));
}

// The cache of such a model ends at its original positions, though it is trained on longer texts.
TEST(CheckScore, ATextThatIsLongerThanTheCacheHoldsIsRefused) {
  const data::TemporaryFolder folder;
  model::ModelConfig config;
  config.vocab_size = 256;
  config.max_position_embeddings = 512;
  config.rope_scaling = {.type = model::RopeScaling::Type::longrope, .original_max_position_embeddings = 64};
  EvaluateSettings settings;
  settings.score = (folder.path() / "texts.jsonl").string();
  const auto refusal_of = [&](size_t tokens) {
    std::ofstream(*settings.score) << nlohmann::json{{"tokens", std::vector<int>(tokens, 7)}}.dump() << "\n";
    return data::refusal([&] { check_score(settings, nullptr, config); });
  };
  EXPECT_EQ(refusal_of(65), "not refused");
  EXPECT_EQ(refusal_of(66),
            "evaluate.score: text 1 has 66 tokens; up to 65 are scored, as the model has 64 positions here, because a "
            "longer text would rotate the keys in the cache anew (rope_scaling longrope); cut it");
  config.rope_scaling = {.type = model::RopeScaling::Type::dynamic, .factor = 4};
  EXPECT_EQ(refusal_of(513), "not refused");
  EXPECT_THAT(refusal_of(514), HasSubstr("the model has 512 positions here"));
  config.rope_scaling = {};
  EXPECT_THAT(refusal_of(514), HasSubstr("up to 513 are scored, as the model has 512 positions; cut it"));
}

}  // namespace
}  // namespace trireme::train
