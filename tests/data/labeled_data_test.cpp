#include "trireme/data/labeled_data.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "refusal.h"
#include "temporary_folder.h"
#include "token_sets.h"
#include "trireme/base/error.h"
#include "trireme/data/labeled_dataset.h"
#include "trireme/text/byte_tokenizer.h"

namespace trireme::data {
namespace {

// Bytes, between two tokens: 256 text 257 258. The text <sep> is the special token 259.
class Bracketed final : public text::Tokenizer {
 public:
  std::vector<int32_t> encode(std::string_view text, const text::EncodeOptions& options) const override {
    constexpr std::string_view kSpecial = "<sep>";
    std::vector<int32_t> ids;
    for (size_t at = 0; at < text.size();) {
      const bool is_special = options.parse_special && text.substr(at).starts_with(kSpecial);
      ids.push_back(is_special ? 259 : static_cast<unsigned char>(text[at]));
      at += is_special ? kSpecial.size() : 1;
    }
    if (!options.add_special) return ids;
    ids.insert(ids.begin(), 256);
    ids.push_back(257);
    ids.push_back(258);
    return ids;
  }
  std::string decode(std::span<const int32_t>, const text::DecodeOptions&) const override { return ""; }
  int64_t vocab_size() const override { return 260; }
  std::string name() const override { return "bracketed"; }
  uint64_t fingerprint() const override { return 1; }
  std::vector<int32_t> document_separator() const override { return {}; }
};

std::filesystem::path written(const TemporaryFolder& folder, const std::string& text) {
  const std::filesystem::path path = folder.path() / "labels.jsonl";
  std::ofstream(path) << text;
  return path;
}

std::vector<LabeledText> read(const std::string& text, bool needs_labels = true) {
  const TemporaryFolder folder;
  return read_labeled_texts(written(folder, text), "text", needs_labels);
}

LabeledText labeled(const std::string& label, bool is_number = false) {
  return {.text = "a", .label = label, .is_number = is_number, .where = "f:1"};
}

TEST(LabeledTexts, LinesAndListsAreRead) {
  for (const char* text : {"{\"text\": \"a\", \"label\": \"x\"}\n\n{\"text\": \"b\", \"label\": 3}\r\n",
                           " [{\"text\": \"a\", \"label\": \"x\"}, {\"text\": \"b\", \"label\": 3}]",
                           "\xEF\xBB\xBF[{\"text\": \"a\", \"label\": \"x\"}, {\"text\": \"b\", \"label\": 3}]"}) {
    const std::vector<LabeledText> texts = read(text);
    ASSERT_EQ(texts.size(), 2);
    EXPECT_EQ(texts[0].text, "a");
    EXPECT_EQ(texts[0].label, "x");
    EXPECT_FALSE(texts[0].is_number);
    EXPECT_EQ(texts[1].label, "3");
    EXPECT_TRUE(texts[1].is_number);
  }
  EXPECT_EQ(read("{\"text\": \"a\"}", false)[0].label, std::nullopt);
}

TEST(LabeledTexts, RefusalsNameTheLineAndTheKey) {
  const auto refused = [](const std::string& text) { return refusal([&] { read(text); }); };
  EXPECT_THAT(refused("{\"text\": \"a\", \"label\": 1}\n{\"text\": \"a\"}"),
              testing::HasSubstr("labels.jsonl:2: there is no \"label\""));
  EXPECT_THAT(refused("{\"text\": 1, \"label\": 1}"), testing::HasSubstr(":1: there is no text under \"text\""));
  EXPECT_THAT(refused("{\"text\": \"a\", \"label\": 0.5}"), testing::HasSubstr("neither a text nor a whole number"));
  EXPECT_THAT(refused("{\"text\": \"a\", \"label\": \"\"}"), testing::HasSubstr("its \"label\" is empty"));
  EXPECT_THAT(refused("{\"text\": \"a\""), testing::HasSubstr(":1: this is not JSON"));
  EXPECT_THAT(refused("[1"), testing::HasSubstr("is not JSON"));
  EXPECT_THAT(refused("{\"text\": \"\xe9\"}"), testing::HasSubstr(":1: this is not UTF-8 (byte 11)"));
  EXPECT_THAT(refused("7"), testing::HasSubstr(":1: this is not a JSON object"));
  EXPECT_THAT(refused("\n \n"), testing::HasSubstr("holds no text"));
}

TEST(LabeledTexts, LabelsAreSortedByValueIfAllAreNumbers) {
  EXPECT_EQ(labels_of({labeled("10", true), labeled("9", true), labeled("10", true)}),
            (std::vector<std::string>{"9", "10"}));
  EXPECT_EQ(labels_of({labeled("10", true), labeled("9", true), labeled("b")}),
            (std::vector<std::string>{"10", "9", "b"}));
  EXPECT_THAT(refusal([] { labels_of({labeled("a"), labeled("a")}); }), testing::HasSubstr("the label 'a'"));
}

TEST(LabeledTexts, ANumberCountsWhereNoNameIsOne) {
  EXPECT_EQ(number_of_label(labeled("b"), {"a", "b"}), 1);
  EXPECT_EQ(number_of_label(labeled("1", true), {"LABEL_0", "LABEL_1"}), 1);
  EXPECT_EQ(number_of_label(labeled("3", true), {"1", "3"}), 1);
  for (const auto& [text, labels] : {std::pair(labeled("0", true), std::vector<std::string>{"1", "3"}),
                                     {labeled("2", true), {"a", "b"}},
                                     {labeled("1"), {"a", "b"}},
                                     {labeled("c"), {"a", "b"}}})
    EXPECT_THAT(refusal([&] { number_of_label(text, labels); }),
                testing::HasSubstr("is none of the 2 of the model's head"));
}

TEST(TextEncoder, ALongTextLosesItsEndButNotWhatIsBehindIt) {
  const Bracketed tokenizer;
  const TextEncoder encoder(tokenizer, 6);
  const auto encoded = [&](const std::string& text) { return encoder.encode({.text = text, .where = "f:1"}); };
  EXPECT_EQ(encoded("abc").tokens, (std::vector<int32_t>{256, 'a', 'b', 'c', 257, 258}));
  EXPECT_FALSE(encoded("abc").cut);
  EXPECT_EQ(encoded("abcdef").tokens, (std::vector<int32_t>{256, 'a', 'b', 'c', 257, 258}));
  EXPECT_TRUE(encoded("abcd").cut);
  EXPECT_THAT(refusal([&] { TextEncoder(tokenizer, 3); }), testing::HasSubstr("leaves no room for a text"));
  const text::ByteTokenizer bytes;
  EXPECT_THAT(refusal([&] { TextEncoder(bytes, 3).encode({.text = "", .where = "f:7"}); }),
              testing::HasSubstr("f:7: the text is empty"));
}

TEST(TextEncoder, SpecialTokensInATextBecomeTheirIdsAsInTransformers) {
  const Bracketed tokenizer;
  EXPECT_EQ(TextEncoder(tokenizer, 8).encode({.text = "a<sep>b", .where = "f:1"}).tokens,
            (std::vector<int32_t>{256, 'a', 259, 'b', 257, 258}));
}

TEST(TextEncoder, PaddingAtTheEndIsLeftOut) {
  const Bracketed tokenizer;
  const auto encoded = [&](const std::string& text, int64_t padding) {
    return TextEncoder(tokenizer, 8, padding).encode({.text = text, .where = "f:1"}).tokens;
  };
  EXPECT_EQ(encoded("ab", 258), (std::vector<int32_t>{256, 'a', 'b', 257}));
  EXPECT_EQ(encoded("ab", 'b'), (std::vector<int32_t>{256, 'a', 'b', 257, 258}));
}

TEST(LabeledDataset, ARowIsATextWithItsLabelAndPadding) {
  const LabeledDataset dataset({{.tokens = {5, 6, 7}, .label = 2}, {.tokens = {8, 9, 10, 11}, .label = 0}}, 4, "f");
  const TestRow row(dataset, 0), full(dataset, 1);
  EXPECT_EQ(row.inputs, (std::vector<int64_t>{5, 6, 7, 0}));
  EXPECT_EQ(row.targets, (std::vector<int64_t>{2, -100, -100, -100}));
  EXPECT_EQ(row.starts, (std::vector<int64_t>{0, 0, 0, 3}));
  EXPECT_EQ(full.targets, (std::vector<int64_t>{0, -100, -100, -100}));
  EXPECT_EQ(full.starts, (std::vector<int64_t>{0, 0, 0, 0}));
}

TEST(LabeledData, EveryTextIsTrainedOnOrHeldOut) {
  const TemporaryFolder folder;
  std::string lines;  // texts "00" to "49"; odd ones have the label x
  for (int i = 0; i < 50; ++i)
    lines += fmt::format("{{\"text\": \"{:02}\", \"label\": \"{}\"}}\n", i, i % 2 == 0 ? "y" : "x");
  DataSettings s{.name = Corpus::json, .train_data_path = written(folder, lines).string()};
  const auto number_of = [](const std::vector<int64_t>& inputs) { return 10 * (inputs[0] - '0') + inputs[1] - '0'; };
  const auto held_out = [&](const DataSettings& settings) {
    const TrainingData d = load_labeled_data(settings, 8, {"x", "y"}, text::ByteTokenizer()).data;
    std::set<int64_t> val, all;
    for (int64_t i = 0; i < d.val->num_samples(); ++i) val.insert(number_of(TestRow(*d.val, i).inputs));
    all = val;
    for (int64_t i = 0; i < d.train->samples_per_epoch(); ++i) {
      TestRow row(8);
      d.train->sample(i, row.view());
      EXPECT_TRUE(all.insert(number_of(row.inputs)).second);
      EXPECT_EQ(row.targets[0], number_of(row.inputs) % 2 == 0 ? 1 : 0);
    }
    EXPECT_EQ(all.size(), 50);
    return val;
  };
  const std::set<int64_t> sample = held_out(s);
  EXPECT_EQ(sample.size(), 5);
  s.seed = 7;  // changes the order, and not what is held out
  EXPECT_EQ(held_out(s), sample);
  s.val_split = Split::last;
  EXPECT_EQ(held_out(s), (std::set<int64_t>{45, 46, 47, 48, 49}));
}

}  // namespace
}  // namespace trireme::data
