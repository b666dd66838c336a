#include "trireme/text/tokenizer_formats.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "tests/data/refusal.h"
#include "tests/data/temporary_folder.h"
#include "trireme/base/error.h"
#include "trireme/text/byte_alphabet.h"
#include "trireme/text/load_tokenizer.h"
#include "trireme/text/token_decoder.h"
#include "trireme/text/utf8.h"

namespace trireme::text {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

json added(int id, const std::string& content, bool special = true) {
  return {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", special}};
}

// 256 bytes, then "he", "ll", "hell", " w", and two added tokens.
json byte_level() {
  json vocab = json::object();
  for (int b = 0; b < 256; ++b) vocab[to_byte_letters(std::string(1, static_cast<char>(b)))] = b;
  vocab["he"] = 256, vocab["ll"] = 257, vocab["hell"] = 258, vocab["\u0120w"] = 259;
  return {{"version", "1.0"},
          {"added_tokens", {added(260, "<|end|>"), added(261, "<think>", false)}},
          {"normalizer", nullptr},
          {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}},
          {"post_processor",
           {{"type", "TemplateProcessing"},
            {"single", {{{"SpecialToken", {{"id", "<|end|>"}}}}, {{"Sequence", {{"id", "A"}}}}}},
            {"special_tokens", {{"<|end|>", {{"id", "<|end|>"}, {"ids", {260}}}}}}}},
          {"decoder", {{"type", "ByteLevel"}}},
          {"model",
           {{"type", "BPE"}, {"vocab", vocab}, {"merges", {"h e", "l l", json::array({"he", "ll"}), "\u0120 w"}}}}};
}

PipelineTokenizer make(const json& file) {
  return PipelineTokenizer(parse_tokenizer_json(file.dump(), "tokenizer.json"));
}

std::string parse_refusal(const std::string& text) {
  return data::refusal([&] { PipelineTokenizer(parse_tokenizer_json(text, "some/tokenizer.json")); });
}

TEST(TokenizerJsonTest, WordsMergeAndSpecialTokensAreFound) {
  const PipelineTokenizer t = make(byte_level());
  EXPECT_THAT(t.encode("hello world"), ElementsAre(258, 'o', 259, 'o', 'r', 'l', 'd'));
  EXPECT_THAT(t.encode("he<|end|>he"), ElementsAre(256, 260, 256));
  EXPECT_EQ(t.vocab_size(), 262);
  EXPECT_THAT(t.encode(""), ElementsAre());
}

TEST(TokenizerJsonTest, SpecialTokensAreTextWhereTheyMustNotBeForged) {
  const PipelineTokenizer t = make(byte_level());
  const std::string text = "<|end|><think>";
  EXPECT_THAT(t.encode(text), ElementsAre(260, 261));
  const auto ids = t.encode(text, {.parse_special = false});
  EXPECT_THAT(ids, ElementsAre('<', '|', 'e', 'n', 'd', '|', '>', 261));
  EXPECT_EQ(t.decode(ids), text);
  EXPECT_TRUE(t.is_special(260));
  EXPECT_FALSE(t.is_special(261));
  EXPECT_EQ(t.decode(t.encode(text), {.skip_special = true}), "<think>");
}

TEST(TokenizerJsonTest, TheTemplateAddsTokensOnlyWhenAsked) {
  const PipelineTokenizer t = make(byte_level());
  EXPECT_THAT(t.encode("he", {.add_special = true}), ElementsAre(260, 256));
  EXPECT_THAT(t.encode("he"), ElementsAre(256));
}

TEST(TokenizerJsonTest, AddedTokensTakeSpacesAndKeepToWords) {
  json file = byte_level();
  file["added_tokens"][0]["lstrip"] = true;
  file["added_tokens"][0]["rstrip"] = true;
  file["added_tokens"][1]["content"] = "he";
  file["added_tokens"][1]["single_word"] = true;
  const PipelineTokenizer t = make(file);
  EXPECT_THAT(t.encode("a \n<|end|>  b"), ElementsAre('a', 260, 'b'));
  EXPECT_THAT(t.encode("he she, he!"), ElementsAre(261, ' ', 's', 256, ',', ' ', 261, '!'));
}

// As tokenizers 0.23 shows them.
TEST(TokenizerJsonTest, NormalizedAddedTokensDecodeToWhatTheyAreSearchedFor) {
  json file = byte_level();
  file["normalizer"] = {{"type", "Lowercase"}};
  file["added_tokens"] = {added(260, "[SEP]"), added(261, "[MID]")};
  file["added_tokens"][0]["normalized"] = true;
  file["added_tokens"][1]["normalized"] = false;
  const PipelineTokenizer t = make(file);
  const auto ids = t.encode("[SEP][Sep][MID]");
  EXPECT_THAT(ids, ElementsAre(260, 260, 261));
  EXPECT_EQ(t.decode(ids), "[sep][sep][MID]");
  EXPECT_EQ(t.token_id("[SEP]"), 260);
}

// What sentencepiece 0.2.3 decodes.
TEST(TokenDecoderTest, SentencePieceDropsTheSpacesThatItAddsOrRemoves) {
  const auto decoded = [](bool adds, bool removes, const std::vector<std::string_view>& tokens) {
    TokenDecoder decoder;
    decoder.add(
        DecodeSentencePiece{.unknown = "<unk>", .unknown_surface = " ? ", .drop_first = adds, .drop_all = removes});
    return decoder(tokens);
  };
  const std::vector<std::string_view> space = {"\u2581", "\u2581a"};
  for (const bool adds : {false, true}) {
    EXPECT_EQ(decoded(adds, true, space), "a");
    EXPECT_EQ(decoded(adds, true, {"\u2581", "\u2581"}), "");
    EXPECT_EQ(decoded(adds, true, {"\u2581", "\u2581", "\u2581a", "\u2581b"}), "a b");
    EXPECT_EQ(decoded(adds, true, {"<unk>", "\u2581a"}), " ?  a");
    EXPECT_EQ(decoded(adds, true, {"\u2581\u2581a"}), " a");
  }
  EXPECT_EQ(decoded(true, false, space), " a");
  EXPECT_EQ(decoded(true, false, {"\u2581", "\u2581"}), " ");
  EXPECT_EQ(decoded(false, false, space), "  a");
}

TEST(TokenizerJsonTest, TheLongestAddedTokenWins) {
  json file = byte_level();
  file["added_tokens"] = {added(260, "<a>"), added(261, "<a><b>"), added(262, "<a><b")};
  EXPECT_THAT(make(file).encode("<a><b><a><bx<a>"), ElementsAre(261, 262, 'x', 260));
}

TEST(TokenizerJsonTest, AnyBytesComeBack) {
  const PipelineTokenizer t = make(byte_level());
  std::mt19937 random(3);
  for (int round = 0; round < 500; ++round) {
    std::string text(random() % 300, '\0');
    for (char& c : text) c = static_cast<char>(round % 2 == 0 ? random() : "hel w\n\xC3\xA9<"[random() % 9]);
    ASSERT_EQ(t.decode(t.encode(text, {.parse_special = false})), text);
  }
}

TEST(TokenizerJsonTest, EveryModelSeesTheLettersOfBytesBehindAByteLevelPreTokenizer) {
  json file = byte_level();
  json words = {{"[UNK]", 0}, {"he", 1}, {"##llo", 2}, {"\u0120w", 3}, {"##\u00C3", 4}, {"##\u00B6", 5}};
  file["model"] = {{"type", "WordPiece"}, {"unk_token", "[UNK]"}, {"vocab", words}};
  EXPECT_THAT(make(file).encode("hello w he\xC3\xB6"), ElementsAre(1, 2, 3, 0));
  EXPECT_THAT(make(file).encode("he\xC3\xB6 w"), ElementsAre(1, 4, 5, 3));
  json pieces =
      json::array({{"<unk>", 0.0}, {"he", -1.0}, {"l", -2.0}, {"o", -2.0}, {"\u0120", -3.0}, {"\u0120w", -3.5}});
  file["model"] = {{"type", "Unigram"}, {"unk_id", 0}, {"vocab", pieces}};
  const PipelineTokenizer unigram = make(file);
  EXPECT_THAT(unigram.encode("hello w "), ElementsAre(1, 2, 2, 3, 5, 4));
  EXPECT_EQ(unigram.decode(unigram.encode("hello w ")), "hello w ");
}

TEST(TokenizerJsonTest, OneIdAtATimeNeverShowsPartOfACharacter) {
  const PipelineTokenizer t = make(byte_level());
  Utf8Stream stream;
  std::string shown;
  for (const int32_t id : t.encode("h\u00e9\U0001F680")) {
    const std::string part = stream.push(t.token_bytes(id));
    EXPECT_TRUE(part.empty() || is_utf8(part));
    shown += part;
  }
  EXPECT_EQ(shown + stream.finish(), "h\u00e9\U0001F680");
}

TEST(TokenizerJsonTest, IdsThatAPaddedModelDrewBehindTheVocabularyAreLeftOut) {
  const PipelineTokenizer t = make(byte_level());
  std::vector<int32_t> ids = t.encode("hello");
  const auto behind = static_cast<int32_t>(t.vocab_size());
  ids.insert(ids.begin() + 1, {behind, behind + 200});
  EXPECT_EQ(t.decode(ids, {.drawn = true}), "hello");
  EXPECT_EQ(t.token_bytes(behind), "");
  EXPECT_THROW(t.decode(ids), UsageError) << "ids that a user gives";
  const int32_t negative = -1;
  EXPECT_THROW(t.decode({&negative, 1}, {.drawn = true}), UsageError);
}

TEST(TokenizerJsonTest, ThreadsEncodeAtOnce) {
  const PipelineTokenizer t = make(byte_level());
  const auto expected = t.encode("hello world hello");
  std::vector<std::jthread> threads;
  std::atomic<int> wrong{0};
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int n = 0; n < 200; ++n) wrong += t.encode("hello world hello") != expected;
    });
  threads.clear();
  EXPECT_EQ(wrong, 0);
}

TEST(TokenizerJsonTest, IdsOutsideTheVocabularyAreRefused) {
  const PipelineTokenizer t = make(byte_level());
  for (const int32_t id : {-1, 262}) {
    try {
      t.decode({&id, 1});
      FAIL();
    } catch (const UsageError& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr("token id " + std::to_string(id)), HasSubstr("ids are 0 to 261")));
    }
  }
}

TEST(TokenizerJsonTest, TheFingerprintKnowsTheFile) {
  json file = byte_level();
  const uint64_t fingerprint = make(file).fingerprint();
  EXPECT_EQ(make(file).fingerprint(), fingerprint);
  file["model"]["merges"].erase(3);
  EXPECT_NE(make(file).fingerprint(), fingerprint);
}

TEST(TokenizerJsonTest, WhatIsWrongIsSaidInOneSentence) {
  EXPECT_THAT(parse_refusal("{"), AllOf(HasSubstr("some/tokenizer.json is not JSON"), HasSubstr("line 1")));
  EXPECT_THAT(parse_refusal("[]"), HasSubstr("some/tokenizer.json cannot be used: its JSON is not an object"));
  EXPECT_THAT(parse_refusal("{}"), HasSubstr("model is missing"));
  const auto refusal_with = [&](const char* pointer, const json& value) {
    json file = byte_level();
    file[json::json_pointer(pointer)] = value;
    return parse_refusal(file.dump());
  };
  EXPECT_THAT(refusal_with("/model/type", "Magic"), HasSubstr("model.type 'Magic' is not known"));
  EXPECT_THAT(refusal_with("/pre_tokenizer/type", "Magic"), HasSubstr("pre_tokenizer.type 'Magic' is not known"));
  EXPECT_THAT(refusal_with("/normalizer", {{"type", "Sequence"}, {"normalizers", {{{"type", "Magic"}}}}}),
              HasSubstr("normalizer.normalizers[0].type 'Magic' is not known"));
  EXPECT_THAT(refusal_with("/decoder/type", "Magic"), HasSubstr("decoder.type 'Magic' is not known"));
  EXPECT_THAT(refusal_with("/model/merges/1", "l"), HasSubstr("model.merges[1] is not two tokens"));
  EXPECT_THAT(refusal_with("/model/merges/1", "l q"), HasSubstr("merge 1 is about 'lq'"));
  EXPECT_THAT(refusal_with("/model/vocab/he", "x"), HasSubstr("the id of 'he' is not a whole number"));
  EXPECT_THAT(refusal_with("/added_tokens/0/id", -5), HasSubstr("added_tokens[0].id is -5"));
  EXPECT_THAT(refusal_with("/post_processor/special_tokens", json::object()), HasSubstr("<|end|> is missing"));
  EXPECT_THAT(
      refusal_with("/pre_tokenizer", {{"type", "Split"}, {"behavior", "Isolated"}, {"pattern", {{"Regex", "("}}}}),
      HasSubstr("the regular expression ( cannot be used"));
}

TEST(LoadTokenizerTest, AFolderGivesItsTokenizerAndTheTokensThatBeginAndEndText) {
  data::TemporaryFolder folder;
  folder.write("model/tokenizer.json", byte_level().dump());
  EXPECT_EQ(load_tokenizer(folder / "model")->eos_id(), std::nullopt);
  folder.write("model/config.json", R"({"eos_token_id": [261, 7], "bos_token_id": 3})");
  EXPECT_EQ(load_tokenizer(folder / "model")->eos_id(), 261);
  folder.write("model/tokenizer_config.json", R"({"eos_token": {"content": "<|end|>"}})");
  const auto tokenizer = load_tokenizer(folder / "model");
  EXPECT_EQ(tokenizer->eos_id(), 260);
  EXPECT_EQ(tokenizer->bos_id(), 3);
  EXPECT_THAT(tokenizer->document_separator(), ElementsAre(260));
  EXPECT_EQ(tokenizer->token_id("<think>"), 261);
  EXPECT_EQ(tokenizer->name(), "byte-level BPE of 262");
  EXPECT_TRUE(has_tokenizer(folder / "model"));
  EXPECT_EQ(tokenizer_files(folder / "model").size(), 2u);
  EXPECT_EQ(load_tokenizer(folder / "model/tokenizer.json")->vocab_size(), 262);
}

TEST(LoadTokenizerTest, LlamasClassSaysWhatStandsAroundAText) {
  data::TemporaryFolder folder;
  folder.write("model/tokenizer.json", byte_level().dump());
  const auto encoded = [&](const std::string& config) {
    folder.write("model/tokenizer_config.json",
                 R"({"bos_token": "<think>", "eos_token": "<|end|>", "tokenizer_class": )" + config + "}");
    return load_tokenizer(folder / "model")->encode("he", {.add_special = true});
  };
  EXPECT_THAT(encoded(R"("LlamaTokenizerFast", "add_bos_token": true, "add_eos_token": true)"),
              ElementsAre(261, 256, 260));
  EXPECT_THAT(encoded(R"("LlamaTokenizer", "add_bos_token": false)"), ElementsAre(256));
  EXPECT_THAT(encoded(R"("LlamaTokenizer")"), ElementsAre(260, 256));  // as the file says
  EXPECT_THAT(encoded(R"("PreTrainedTokenizerFast", "add_bos_token": false)"), ElementsAre(260, 256));
}

TEST(LoadTokenizerTest, AFolderWithoutOneIsRefused) {
  data::TemporaryFolder folder;
  folder.write("model/config.json", "{}");
  EXPECT_FALSE(has_tokenizer(folder / "model"));
  const auto refused = [&](const char* path) -> std::string {
    try {
      load_tokenizer(folder / path);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "not refused";
  };
  EXPECT_THAT(refused("model"), HasSubstr("holds no tokenizer"));
  EXPECT_THAT(refused("nowhere"), HasSubstr("there is no tokenizer at"));
  folder.write("linked/config.json", "{}");
  std::filesystem::create_symlink("gone.json", folder / "linked/tokenizer.json");
  EXPECT_THAT(refused("linked"), HasSubstr("tokenizer.json is a link that leads to no file"));
  EXPECT_THROW(has_tokenizer(folder / "linked"), UsageError);  // and no command takes bytes instead
  folder.write("nested/tokenizer.json/config.json", "{}");
  EXPECT_THAT(refused("nested"), HasSubstr("tokenizer.json is a folder"));
  // Tokenizers that are not read are there all the same: no command takes bytes instead.
  folder.write("pair/vocab.json", "{}");
  EXPECT_FALSE(has_tokenizer(folder / "pair"));
  folder.write("pair/merges.txt", "#version: 0.2\n");
  EXPECT_TRUE(has_tokenizer(folder / "pair"));
  EXPECT_THAT(refused("pair"), AllOf(HasSubstr("vocab.json and merges.txt"), HasSubstr("save_pretrained")));
  folder.write("llama/tokenizer.model", "IQ== 0\nIg== 1\n");
  EXPECT_THAT(refused("llama"), AllOf(HasSubstr("its 2 ranks"), HasSubstr("tokenizer.json")));
  folder.write("bert/vocab.txt", "[UNK]\n");
  EXPECT_TRUE(has_tokenizer(folder / "bert"));
  EXPECT_THAT(refused("bert"), HasSubstr("vocab.txt"));
  folder.write("two/a.tiktoken", "");
  folder.write("two/b.tiktoken", "");
  EXPECT_TRUE(has_tokenizer(folder / "two"));
  EXPECT_THAT(refused("two"), HasSubstr("2 *.tiktoken files"));
}

}  // namespace
}  // namespace trireme::text
