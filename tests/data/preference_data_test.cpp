#include "trireme/data/preference_data.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "refusal.h"
#include "temporary_folder.h"
#include "trireme/base/error.h"
#include "trireme/text/byte_tokenizer.h"

namespace trireme::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Bytes, and the special token <end> with the id 256, which ends a text.
class Ending final : public text::Tokenizer {
 public:
  std::vector<int32_t> encode(std::string_view text, const text::EncodeOptions& options) const override {
    constexpr std::string_view kEnd = "<end>";
    std::vector<int32_t> ids;
    for (size_t at = 0; at < text.size();) {
      const bool is_end = options.parse_special && text.substr(at).starts_with(kEnd);
      ids.push_back(is_end ? 256 : static_cast<unsigned char>(text[at]));
      at += is_end ? kEnd.size() : 1;
    }
    return ids;
  }
  std::string decode(std::span<const int32_t>, const text::DecodeOptions&) const override { return ""; }
  int64_t vocab_size() const override { return 257; }
  std::string name() const override { return "ending"; }
  uint64_t fingerprint() const override { return 1; }
  std::vector<int32_t> document_separator() const override { return {256}; }
  std::optional<int32_t> eos_id() const override { return 256; }
};

PreferencePair parsed(const std::string& record) { return parse_preference_pair(record, "pairs.jsonl:7"); }

PreferenceData loaded(const std::string& lines, PreferenceOptions options, DataSettings settings = {}) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path() / "pairs.jsonl";
  std::ofstream(path) << lines;
  settings.name = Corpus::json;
  settings.train_data_path = path.string();
  return load_preference_data(settings, options, text::ByteTokenizer(), {});
}

// Pairs of a prompt of one byte and replies of `chosen` and `rejected` bytes.
std::string pair_of(int chosen, int rejected) {
  return fmt::format("{{\"prompt\": \"p\", \"chosen\": \"{}\", \"rejected\": \"{}\"}}\n", std::string(chosen, 'c'),
                     std::string(rejected, 'r'));
}

TEST(PreferencePairs, ThePromptIsGivenOrWhatBothBeginWith) {
  const PreferencePair given =
      parsed(R"({"prompt": "The sky is", "chosen": " blue.", "rejected": " green.", "score": 3})");
  EXPECT_EQ(given.prompt_text + "|" + given.chosen_text + "|" + given.rejected_text, "The sky is| blue.| green.");
  const PreferencePair found = parsed(R"({"chosen": "The sky is blue.", "rejected": "The sky is green."})");
  EXPECT_EQ(found.prompt_text + "|" + found.chosen_text + "|" + found.rejected_text, "The sky is| blue.| green.");
  const PreferencePair accents = parsed("{\"chosen\": \"\u00e9a\", \"rejected\": \"\u00e8a\"}");  // one byte in common
  EXPECT_EQ(accents.prompt_text, "");
}

TEST(PreferencePairs, ConversationsShareTheirFirstMessages) {
  const std::string user = R"({"role": "user", "content": "Hi"})";
  for (
      const std::string& record :
      {R"({"chosen": [)" + user + R"(, {"role": "assistant", "content": "a"}], "rejected": [)" + user +
           R"(, {"role": "assistant", "content": "b"}]})",
       R"({"prompt": [)" + user +
           R"(], "chosen": [{"role": "assistant", "content": "a"}], "rejected": [{"role": "assistant", "content": "b"}]})"}) {
    const PreferencePair pair = parsed(record);
    EXPECT_TRUE(pair.is_conversation);
    ASSERT_EQ(pair.prompt.size(), 1);
    EXPECT_EQ(pair.prompt[0].content, "Hi");
    EXPECT_EQ(pair.chosen.at(0).content + pair.rejected.at(0).content, "ab");
  }
}

TEST(PreferencePairs, ATextIsTheQuestionOfRepliesThatStandAlone) {
  const auto prompt_of = [](const std::string& before, const std::string& question) {
    std::string record = R"({"prompt": ")" + question + "\"";
    for (const char* key : {"chosen", "rejected"})
      record += fmt::format(R"(, "{}": [{}{{"role": "assistant", "content": "{}"}}])", key, before, key);
    std::string roles;
    for (const text::ChatMessage& message : parsed(record + "}").prompt)
      roles += message.role + " " + message.content + ";";
    return roles;
  };
  EXPECT_EQ(prompt_of("", "Hi"), "user Hi;");
  EXPECT_EQ(prompt_of(R"({"role": "system", "content": "Be kind."}, )", "Hi"), "system Be kind.;user Hi;");
  EXPECT_EQ(prompt_of(R"({"role": "user", "content": "Hi"}, )", "Hi"), "user Hi;");  // whole conversations
  EXPECT_EQ(prompt_of(R"({"role": "assistant", "content": "a"}, {"role": "user", "content": "b"}, )", "Hi"),
            "user Hi;assistant a;user b;");
}

TEST(PreferencePairs, WhatIsNoPairIsRefusedWithItsPlace) {
  const std::pair<const char*, const char*> cases[] = {
      {"[1]", "pairs.jsonl:7: this is not a JSON object"},
      {"{", "pairs.jsonl:7: this is not JSON"},
      {R"({"chosen": "a"})", "pairs.jsonl:7: \"rejected\" is missing"},
      {R"({"rejected": "a"})", "\"chosen\" is missing"},
      {R"({"chosen": "a", "rejected": []})", "\"rejected\" is a list of messages, but another key of the pair is text"},
      {R"({"chosen": 3, "rejected": "a"})", "\"chosen\" is neither a text nor a list of messages"},
      {R"({"chosen": [{"role": "cat", "content": "a"}], "rejected": [{"role": "user", "content": "a"}]})",
       "pairs.jsonl:7: chosen: messages[0].role is \"cat\""},
      {R"({"chosen": "a", "rejected": "b", "tools": [1]})", "pairs.jsonl:7: tools is not built; leave it out"},
      {R"({"chosen": "a", "rejected": "b", "system": "c"})",
       "pairs.jsonl:7: system is not read beside a prompt; put it into the prompt"},
      {R"({"prompt": [{"role": "user", "content": "a"}], "rejected": [{"role": "assistant", "content": "b"}],
           "chosen": [{"role": "assistant", "content": "", "tool_calls": [{"type": "function"}]}]})",
       "pairs.jsonl:7: chosen: messages[0].tool_calls is not built; leave it out"},
  };
  for (const auto& [record, message] : cases) {
    SCOPED_TRACE(record);
    EXPECT_THAT([&] { parsed(record); }, testing::ThrowsMessage<UsageError>(HasSubstr(message)));
  }
}

TEST(PreferenceData, TargetsAreThoseOfRepliesAndRowsHoldWholePairs) {
  PreferenceOptions options{.limits = {.most_tokens = 16}, .sequence = 16};
  DataSettings settings;
  settings.val_split_fraction = 0.5;
  settings.val_split = Split::last;
  settings.packing = Packing::none;
  const PreferenceData data = loaded(pair_of(2, 3) + pair_of(1, 1), options, settings);
  ASSERT_EQ(data.train->num_samples(), 1);
  std::vector<int64_t> inputs(16), targets(16), starts(16);
  data.train->sample(0, 0, {inputs, targets, starts});
  const bool ends = text::ByteTokenizer().eos_id().has_value();
  const int64_t chosen = ends ? 3 : 2, rejected = ends ? 4 : 3;
  EXPECT_EQ(std::vector(starts.begin(), starts.begin() + chosen + rejected), [&] {
    std::vector<int64_t> s(chosen, 0);
    s.insert(s.end(), rejected, chosen);
    return s;
  }());
  EXPECT_EQ(targets[0], 'c');
  EXPECT_EQ(targets[chosen], 'r');
  EXPECT_EQ(std::ranges::count(targets, kIgnoredTarget), 16 - chosen - rejected);
  EXPECT_EQ(targets[chosen - 1], ends ? *text::ByteTokenizer().eos_id() : 'c');
  EXPECT_EQ(data.train->supervised_tokens(0, 0), 1);
}

TEST(PreferenceData, PromptsAreTargetsWhereTheirLikelihoodCounts) {
  for (const bool learns_prompts : {false, true}) {
    DataSettings settings;
    settings.val_split_fraction = 0.5;
    const std::string line = R"({"prompt": "pqr", "chosen": "c", "rejected": "d"})"
                             "\n";
    const PreferenceData data = loaded(
        line + line, {.limits = {.most_tokens = 16}, .sequence = 32, .learns_prompts = learns_prompts}, settings);
    std::vector<int64_t> inputs(32), targets(32), starts(32);
    data.train->sample(0, 0, {inputs, targets, starts});
    EXPECT_EQ(targets[0], learns_prompts ? 'q' : kIgnoredTarget);
    EXPECT_EQ(targets[2], 'c');
  }
}

TEST(PreferenceData, SeveralPairsShareARowIfAsked) {
  std::string lines;
  for (int i = 0; i < 20; ++i) lines += pair_of(1 + i % 3, 2);
  DataSettings settings;
  const PreferenceOptions options{.limits = {.most_tokens = 8}, .sequence = 64};
  settings.packing = Packing::none;
  const PreferenceData alone = loaded(lines, options, settings);
  settings.packing = Packing::best_fit;
  const PreferenceData packed = loaded(lines, options, settings);
  EXPECT_EQ(alone.train->num_samples(), 18);
  EXPECT_LT(packed.train->num_samples(), 6);
  int64_t pairs = 0;
  for (int64_t row = 0; row < packed.train->num_samples(); ++row) pairs += packed.train->supervised_tokens(0, row);
  EXPECT_EQ(pairs, 18);
}

TEST(PreferenceData, PairsThatSayNothingAreLeftOutAndCounted) {
  std::string lines;
  for (int i = 0; i < 10; ++i) lines += pair_of(2, 3);
  lines += R"({"prompt": "p", "chosen": "same", "rejected": "same"})"
           "\n";
  lines += R"({"prompt": "a prompt that is longer than the limit", "chosen": "c", "rejected": "d"})"
           "\n";
  lines += pair_of(30, 1);
  const PreferenceData data = loaded(lines, {.limits = {.most_tokens = 8}, .sequence = 16});
  EXPECT_THAT(data.about, HasSubstr("13 pairs"));
  EXPECT_THAT(data.about, HasSubstr("1 left out because both replies are equal"));
  EXPECT_THAT(data.about, HasSubstr("1 left out because the prompt alone has 8 tokens or more"));
  EXPECT_THAT(data.about, HasSubstr("1 with a text longer than 8 tokens, which is cut"));
}

TEST(PreferenceData, PairsOfAHeldOutFileAreCountedApart) {
  const TemporaryFolder folder;
  const std::string same = R"({"prompt": "p", "chosen": "s", "rejected": "s"})"
                           "\n";
  DataSettings settings;
  settings.val_data_path = folder.write("held.jsonl", same + pair_of(2, 3)).string();
  const PreferenceOptions options{.limits = {.most_tokens = 8}, .sequence = 16};
  EXPECT_THAT(loaded(pair_of(2, 3), options, settings).about,
              HasSubstr("held.jsonl: 1 left out because both replies are equal)"));
  folder.write("held.jsonl", same + same);
  EXPECT_THAT(refusal([&] { loaded(pair_of(2, 3), options, settings); }),
              HasSubstr("held.jsonl holds 2 pairs, and none is left: 2 left out because both replies are equal"));
  settings.val_data_path = folder.path().string();
  EXPECT_THAT(refusal([&] { loaded(pair_of(2, 3), options, settings); }),
              HasSubstr(" is a folder, and a single file is read: name a file of pairs in it"));
}

TEST(PreferenceData, RefusesWhatLeavesNothing) {
  const PreferenceOptions options{.limits = {.most_tokens = 8}, .sequence = 16};
  const std::string same = R"({"prompt": "p", "chosen": "s", "rejected": "s"})"
                           "\n";
  EXPECT_THAT([&] { loaded(same + same, options); },
              testing::ThrowsMessage<UsageError>(HasSubstr("2 left out because both replies are equal")));
  EXPECT_THAT([&] { loaded("", options); }, testing::ThrowsMessage<UsageError>(HasSubstr("holds no pair")));
}

// TRL puts the end behind a reply that does not end with it, and then encodes both with their special tokens.
TEST(PreferenceData, SpecialTokensInPlainTextBecomeTheirIdsAndAReplyEndsOnce) {
  const Ending tokenizer;
  const PairEncoder encoder(tokenizer, nullptr, {.most_tokens = 32});
  const TokenPair pair = encoder.encode(parsed(R"({"prompt": "p<end>q", "chosen": "c<end>", "rejected": "r"})")).pair;
  EXPECT_THAT(pair.chosen.tokens, ElementsAre('p', 256, 'q', 'c', 256));
  EXPECT_THAT(pair.rejected.tokens, ElementsAre('p', 256, 'q', 'r', 256));
  EXPECT_EQ(pair.chosen.prompt_tokens, 3);
}

TEST(PreferenceData, ATextIsCutAtItsEndOrAtItsStart) {
  const text::ByteTokenizer tokenizer;
  const PreferencePair pair = parsed(R"({"prompt": "0123", "chosen": "456789", "rejected": "a"})");
  const auto start = PairEncoder(tokenizer, nullptr, {.most_tokens = 6}).encode(pair),
             end = PairEncoder(tokenizer, nullptr, {.most_tokens = 6, .keeps_end = true}).encode(pair);
  EXPECT_TRUE(start.cut && end.cut && !start.no_room);
  EXPECT_THAT(start.pair.chosen.tokens, ElementsAre('0', '1', '2', '3', '4', '5'));
  EXPECT_EQ(start.pair.chosen.prompt_tokens, 4);
  EXPECT_EQ(end.pair.chosen.tokens.size(), 6);
  EXPECT_EQ(end.pair.chosen.tokens.back(), tokenizer.eos_id() ? *tokenizer.eos_id() : '9');
}

}  // namespace
}  // namespace trireme::data
