#include "trireme/data/training_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <map>
#include <set>
#include <thread>

#include "refusal.h"
#include "token_sets.h"
#include "trireme/base/error.h"
#include "trireme/data/ledger.h"
#include "trireme/text/byte_tokenizer.h"

namespace trireme::data {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string numbered(int bytes) {
  std::string text;
  for (int i = 0; static_cast<int>(text.size()) < bytes; ++i) text += std::to_string(i) + " ";
  return text.substr(0, static_cast<size_t>(bytes));
}

// Inputs of a dataset's samples, one behind the other.
std::string text_of(const Dataset& dataset) {
  std::string text;
  for (int64_t i = 0; i < dataset.num_samples(); ++i) {
    const TestRow row(dataset, i);
    for (size_t k = 0; k < row.inputs.size(); ++k)
      if (row.targets[k] != kIgnoredTarget) text += static_cast<char>(row.inputs[k]);
  }
  return text;
}

std::map<std::string, int64_t> sources_of(const SampleStream& samples, int64_t count) {
  std::map<std::string, int64_t> times;
  for (int64_t g = 0; g < count; ++g) ++times[samples.describe(g).front().source];
  return times;
}

class TrainingDataTest : public ::testing::Test {
 protected:
  void use(const std::filesystem::path& path) { options.sources = {{path, {}}}; }
  TrainingData load() { return load_training_data(options, text::ByteTokenizer()); }
  std::string refusal(bool check_only = false) {
    try {
      check_only ? check_training_data(options) : static_cast<void>(load());
    } catch (const UsageError& error) {
      return error.what();
    }
    return "not refused";
  }

  TemporaryFolder folder;
  TrainingDataOptions options{
      .setting = "data.train_data_path", .val_split_fraction = 0.1, .sequence = 8, .cache_dir = folder / "cache"};
};

TEST_F(TrainingDataTest, TheTailOfATextIsHeldOut) {
  const std::string text = numbered(1005);
  use(folder.write("a.txt", text));
  const TrainingData data = load();
  EXPECT_EQ(data.train_tokens + data.val_tokens, 1005 + text::ByteTokenizer().document_separator().size());
  EXPECT_EQ(data.val_tokens, 101);
  EXPECT_EQ(data.source_bytes, 1005);
  EXPECT_EQ(data.num_documents, 1);
  const std::string held_out = text_of(*data.val);
  EXPECT_EQ(held_out, text.substr(static_cast<size_t>(data.train_tokens), held_out.size()));
  int64_t last = 0;
  for (int64_t g = 0; g < 500; ++g) last = std::max(last, data.train->describe(g).front().first_token + 8);
  EXPECT_LT(last, data.train_tokens);
}

TEST_F(TrainingDataTest, PackedDocumentsAreHeldOutWhole) {
  std::vector<TestDocument> documents(20, TestDocument{.ids = {1, 2, 3, 4, 5}});
  make_set(folder.path(), documents);
  use(folder / "set");
  options.packing = Packing::best_fit;
  options.val_split_fraction = 0.12;
  const TrainingData data = load();
  EXPECT_EQ(data.val_tokens, 15);
  EXPECT_EQ(data.train_tokens, 85);
  EXPECT_DOUBLE_EQ(data.filled, 17 * 4 / 72.0);  // two documents of four places fill a row; the last one has one
}

// Of a folder in the order of paths: many documents of one kind and then some of another.
std::string two_kinds(int documents, int of_the_first) {
  std::string lines;
  for (int d = 0; d < documents; ++d)
    lines += "{\"text\": \"" + std::string(static_cast<size_t>(20 + d % 7), d < of_the_first ? 'a' : 'z') + "\"}\n";
  return lines;
}

std::set<int64_t> documents_of(const Dataset& dataset) {
  std::set<int64_t> documents;
  for (int64_t i = 0; i < dataset.num_samples(); ++i)
    for (const SampleOrigin& origin : dataset.describe(0, i))
      for (int64_t d = origin.first_document; d <= origin.last_document; ++d) documents.insert(d);
  return documents;
}

std::set<int64_t> documents_of(const SampleStream& stream) {
  std::set<int64_t> documents;
  for (int64_t g = 0; g < 3 * stream.samples_per_epoch(); ++g)
    for (const SampleOrigin& origin : stream.describe(g))
      for (int64_t d = origin.first_document; d <= origin.last_document; ++d) documents.insert(d);
  return documents;
}

TEST_F(TrainingDataTest, OfManyDocumentsASampleIsHeldOut) {
  use(folder.write("a.jsonl", two_kinds(400, 360)));
  for (const Packing packing : {Packing::wrapped, Packing::best_fit, Packing::none}) {
    options.packing = packing;
    options.split = Split::automatic;
    const TrainingData data = load();
    const std::set<int64_t> held_out = documents_of(*data.val), learned = documents_of(*data.train);
    EXPECT_EQ(data.held_out, "a sample of " + std::to_string(held_out.size()) + " of 400 documents");
    EXPECT_NEAR(static_cast<double>(data.val_tokens) / static_cast<double>(data.train_tokens + data.val_tokens), 0.1,
                0.01);
    // Of both kinds, about as they are.
    const auto of_the_second = std::distance(held_out.lower_bound(360), held_out.end());
    EXPECT_TRUE(of_the_second >= 1 && of_the_second <= 12) << of_the_second;
    for (const int64_t d : held_out) EXPECT_FALSE(learned.contains(d)) << d;
    if (packing != Packing::wrapped) {  // windows leave an end over
      EXPECT_EQ(held_out.size() + learned.size(), 400u);
    }
    EXPECT_EQ(documents_of(*load().val), held_out);
    options.split = Split::last;
    const std::set<int64_t> last = documents_of(*load().val);
    EXPECT_GE(*last.begin(), 355);
    EXPECT_EQ(load().held_out, "the last " + std::to_string(last.size()) + " of 400 documents");
  }
}

TEST_F(TrainingDataTest, TheSampleIsOneForAllSeedsAndSaysSoToResumes) {
  use(folder.write("a.jsonl", two_kinds(400, 200)));
  const TrainingData data = load();
  options.seed = 43;
  EXPECT_EQ(documents_of(*load().val), documents_of(*data.val));
  options.seed = 42;
  options.split = Split::last;
  const DataIdentity last = load().identity;
  for (const auto& [name, value] : last.facts()) EXPECT_NE(name, kSplitFact);  // as runs before there was a choice
  EXPECT_THAT(data.identity.changes_since(last), HasSubstr("data.val_split is sample and was not given before"));
}

TEST(DataIdentity, CheckpointsOfBeforeLackThePartForTraining) {
  const DataIdentity before = {{"the data", "a"}};
  const DataIdentity now = {{"the data", "a"}, {kPartFact, "9 of 10"}},
                     other = {{"the data", "a"}, {kPartFact, "8 of 10"}};
  EXPECT_EQ(now.changes_since(before), "");
  EXPECT_NO_THROW(check_same_data(now, before));
  EXPECT_THROW(check_same_data(other, now), UsageError);
  EXPECT_THROW(check_same_data(before, now), UsageError);
}

TEST_F(TrainingDataTest, OfFewDocumentsTheEndIsHeldOut) {
  use(folder.write("a.jsonl", two_kinds(99, 80)));
  EXPECT_EQ(load().held_out, "the last 10 of 99 documents");
  options.split = Split::sample;
  EXPECT_THAT(load().held_out, HasSubstr("a sample of "));
  use(folder.write("one.txt", numbered(1000)));
  EXPECT_THAT(refusal(), AllOf(HasSubstr("a sample of the 1 document"), HasSubstr("--data.val_split last")));
  options.split = Split::automatic;
  EXPECT_EQ(load().held_out, "the end of the text");
  std::string lines = "{\"text\": \"" + std::string(100'000, 'x') + "\"}\n";  // nearly all of the text
  use(folder.write("giant.jsonl", lines + two_kinds(120, 60)));
  EXPECT_EQ(load().held_out.substr(0, 8), "the last");
}

TEST_F(TrainingDataTest, AFileOfOneDocumentCannotHoldOutDocuments) {
  use(folder.write("a.txt", numbered(1000)));
  options.packing = Packing::none;
  EXPECT_THAT(refusal(), AllOf(HasSubstr("a.txt"), HasSubstr("no documents that could be held out"),
                               HasSubstr("data.val_data_path")));
}

TEST_F(TrainingDataTest, ADocumentOfTwoTokensIsHeldOutWhereDocumentsAreSamples) {
  use(folder.write("few.jsonl", "{\"text\":\"a\"}\n{\"text\":\"b\"}\n{\"text\":\"c\"}\n"));
  EXPECT_THAT(refusal(), HasSubstr("fewer than one sample, which takes 9"));
  for (const Packing packing : {Packing::best_fit, Packing::none}) {
    options.packing = packing;
    EXPECT_EQ(refusal(/*check_only=*/true), "not refused");
    EXPECT_EQ(text_of(*load().val), "c");
  }
  make_set(folder.path(), {{.ids = {7}}});
  use(folder / "set");
  EXPECT_THAT(refusal(), HasSubstr("set: 1 token is fewer than one sample, which takes a document of 2"));
}

TEST_F(TrainingDataTest, JsonLinesAreDocuments) {
  use(folder.write("a.jsonl", "{\"text\": \"abcdef\"}\n{\"text\": \"ghijkl\"}\n{\"text\": \"mnopqr\"}\n"));
  options.val_split_fraction = 0.2;
  options.packing = Packing::none;
  const TrainingData data = load();
  EXPECT_EQ(data.num_documents, 3);
  EXPECT_EQ(data.train->samples_per_epoch(), 2);
  EXPECT_EQ(text_of(*data.val).substr(0, 5), "mnopq");
}

TEST_F(TrainingDataTest, AMixtureHasTheSharesOfItsWeightsAndEverySourceItsOwnTail) {
  const auto a = folder.write("a.txt", numbered(2000)), b = folder.write("b.txt", numbered(500));
  options.sources = {{a, 0.7}, {b, 0.3}};
  const TrainingData data = load();
  for (const int64_t count : {10, 100, 1000})
    EXPECT_EQ(sources_of(*data.train, count),
              (std::map<std::string, int64_t>{{a.string(), count * 7 / 10}, {b.string(), count * 3 / 10}}));
  EXPECT_EQ(data.val_tokens, 252);
}

TEST_F(TrainingDataTest, SourcesWithoutWeightsAreSeenOnceAnEpoch) {
  const auto a = folder.write("a.txt", numbered(2000)), b = folder.write("b.txt", numbered(500));
  options.sources = {{a, {}}, {b, {}}};
  const TrainingData data = load();
  const int64_t samples = data.train->samples_per_epoch();
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    std::set<std::pair<std::string, int64_t>> seen;
    for (int64_t g = epoch * samples; g < (epoch + 1) * samples; ++g) {
      const SampleOrigin origin = data.train->describe(g).front();
      seen.insert({origin.source, origin.first_token});
    }
    EXPECT_EQ(static_cast<int64_t>(seen.size()), samples);
  }
}

TEST_F(TrainingDataTest, ValidationOfItsOwnLeavesTrainingWhole) {
  use(folder.write("train.txt", numbered(100)));
  options.val_data_path = folder.write("val.txt", "validation text");
  const TrainingData data = load();
  EXPECT_GE(data.train_tokens, 100);
  EXPECT_EQ(text_of(*data.val).substr(0, 14), "validation tex");
}

TEST_F(TrainingDataTest, TheBytesOfParquetAreNoBoundOfItsTokens) {
  use(folder.write("small.parquet", "PAR1"));
  EXPECT_EQ(refusal(/*check_only=*/true), "not refused");
}

TEST_F(TrainingDataTest, IdsOfAnUnknownTokenizerLieInTheVocabulary) {
  std::vector<int32_t> ids(2'000'000, 7);
  ids.back() = 300;
  make_set(folder.path(), {{.ids = ids}});
  use(folder / "set");
  EXPECT_TRUE(load().of_unknown_tokenizer);
  options.vocab_size = 301;
  EXPECT_EQ(refusal(), "not refused");
  options.vocab_size = 300;
  EXPECT_THAT(refusal(), HasSubstr("set holds the token 300, and the model's vocabulary ends at 299"));
  use(folder.write("a.txt", numbered(100)));
  EXPECT_FALSE(load().of_unknown_tokenizer);
}

TEST_F(TrainingDataTest, ASetOfWhichNothingIsLearnedIsRefused) {
  make_set(folder.path(), {{.ids = std::vector<int32_t>(100, 7), .mask = std::vector<uint8_t>(100, 0)}}, true);
  use(folder / "set");
  for (const Packing packing : {Packing::wrapped, Packing::best_fit}) {
    options.packing = packing;
    EXPECT_THAT(refusal(),
                AllOf(HasSubstr("set: nothing would be learned from it, because its mask excludes all of its "
                                "100 tokens"),
                      HasSubstr("data.learn")));
  }
}

TEST_F(TrainingDataTest, TheMaskSaysWhatIsLearnedNotTheCountBesideIt) {
  make_set(folder.path(), {{.ids = std::vector<int32_t>(100, 7), .mask = std::vector<uint8_t>(100, 1)}}, true);
  use(folder / "set");
  EXPECT_EQ(refusal(), "not refused");
  folder.write("set.mask", std::string(100, '\0'));
  EXPECT_THAT(refusal(), HasSubstr("set: nothing would be learned from it"));
  folder.write("set.mask", std::string(90, '\0') + std::string(10, '\1'));
  EXPECT_THAT(refusal(), HasSubstr("set less its part for validation: nothing would be learned from it"));
  folder.write("set.mask", std::string(100, '\2'));
  EXPECT_THAT(refusal(), AllOf(HasSubstr("data.train_data_path"), HasSubstr("set.mask is damaged")));
}

TEST_F(TrainingDataTest, ADamagedSetIsNotBlamedOnTheModel) {
  std::vector<int32_t> ids(2'000'000, 7);
  TokenSetWriter writer(folder / "big", 256);
  writer.append_document(ids);
  writer.commit({.tokenizer_fingerprint = text::ByteTokenizer().fingerprint()});
  const auto damage = [&](int64_t at) {
    TokenSetAbout about = *TokenSet::open(folder / "big").about();
    about.vocab_size = 8;  // so that a byte can be outside
    folder.write("big.json", to_json(about));
    std::fstream(folder / "big.bin", std::ios::in | std::ios::out | std::ios::binary).seekp(at).put(99);
  };
  damage(6000);  // between the blocks that are looked at before the start
  use(folder / "big");
  options.vocab_size = 256;
  const TrainingData data = load();
  TestRow row(options.sequence);
  EXPECT_THAT(trireme::data::refusal([&] {
                for (int64_t i = 0; i < data.train->samples_per_epoch(); ++i) data.train->sample(i, row.view());
              }),
              AllOf(HasSubstr("big holds the token 99, and its tokenizer's vocabulary ends at 7"),
                    HasSubstr("the set is damaged")));
  damage(0);
  EXPECT_THAT(refusal(), AllOf(HasSubstr("data.train_data_path"), HasSubstr("big holds the token 99")));
}

TEST_F(TrainingDataTest, ConversationsAreCountedWithCachedTokensToo) {
  std::string lines;
  for (const int size : {5, 5, 60, 5})
    lines += "{\"prompt\": \"a\", \"response\": \"" + std::string(static_cast<size_t>(size), 'b') + "\"}\n";
  lines += "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}\n";
  use(folder.write("chat.jsonl", lines));
  options.conversations.options.max_tokens = 21;
  options.conversations.chat_template = "default";
  options.sequence = 20;
  options.packing = Packing::best_fit;
  const std::string expected =
      (folder / "chat.jsonl").string() +
      " as default: 5 conversations, 90 % of 42 tokens learned; 1 cut at 21 tokens, 1 left out "
      "because nothing of it is learned";
  EXPECT_EQ(load().conversations, std::vector{expected});
  EXPECT_EQ(load().conversations, std::vector{expected});
  EXPECT_EQ(load().chat_template, "default");
}

TEST_F(TrainingDataTest, LongConversationsOfASetAreCutOrDroppedLikeThoseOfItsFile) {
  std::string lines;
  for (const int size : {5, 5, 60, 5, 5, 5})
    lines += "{\"prompt\": \"a\", \"response\": \"" + std::string(static_cast<size_t>(size), 'b') + "\"}\n";
  const std::vector<std::filesystem::path> files = {folder.write("chat.jsonl", lines)};
  make_conversation_set(folder / "set", files, text::find_chat_family("default"), text::ByteTokenizer());
  options.conversations.chat_template = "default";
  options.sequence = 20;
  options.packing = Packing::none;
  options.val_split_fraction = 0;
  for (const bool drops : {false, true}) {
    options.conversations.options.drop_long = drops;
    use(folder / "set");
    const TrainingData set = load();
    options.conversations.options.max_tokens = 21;
    use(files[0]);
    const TrainingData file = load();
    ASSERT_EQ(set.train->samples_per_epoch(), drops ? 5 : 6);
    ASSERT_EQ(file.train->samples_per_epoch(), drops ? 5 : 6);
    for (int64_t g = 0; g < file.train->samples_per_epoch(); ++g)
      EXPECT_EQ(set.train->supervised_tokens(g, 1), file.train->supervised_tokens(g, 1));
    EXPECT_THAT(set.conversations.at(0), HasSubstr(drops ? "; in this run 1 left out because longer than 21 tokens"
                                                         : "; in this run 1 cut at 21 tokens"));
  }
  options.sequence = 4;  // none is as short
  const std::string sentence = "every conversation to learn from is longer than 5 tokens";
  use(folder / "set");
  EXPECT_THAT(refusal(), AllOf(HasSubstr("data.train_data_path " + (folder / "set").string() + ": " + sentence),
                               HasSubstr("--data.long_conversations cut")));
  use(folder.write("a.txt", numbered(100)));
  options.val_data_path = folder / "set";
  EXPECT_THAT(refusal(), HasSubstr("data.val_data_path " + (folder / "set").string() + ": " + sentence));
}

TEST_F(TrainingDataTest, ResumesAreToldHowLongConversationsOfASetWereTreated) {
  const auto make = [&](const char* name, int longest) {
    std::string lines;
    for (const int size : {5, 5, longest, 5})
      lines += "{\"prompt\": \"a\", \"response\": \"" + std::string(static_cast<size_t>(size), 'b') + "\"}\n";
    const std::vector<std::filesystem::path> files = {folder.write(std::string(name) + ".jsonl", lines)};
    make_conversation_set(folder / name, files, text::find_chat_family("default"), text::ByteTokenizer());
  };
  make("long", 60);
  make("short", 5);
  options.conversations.chat_template = "default";
  options.sequence = 20;
  options.packing = Packing::none;
  options.val_split_fraction = 0;
  use(folder / "long");
  const DataIdentity cut = load().identity;
  options.conversations.options.drop_long = true;
  EXPECT_THAT(load().identity.changes_since(cut), "data.long_conversations was cut and is drop");
  options.conversations.options.drop_long = false;
  options.keep_long = true;  // as runs of earlier versions
  const TrainingData kept = load();
  EXPECT_GT(kept.train->samples_per_epoch(), 4);
  EXPECT_EQ(cut.changes_since(kept.identity), "data.long_conversations is cut and was not given before");
  use(folder / "short");
  const DataIdentity of_short = load().identity;
  options.keep_long = false;
  EXPECT_EQ(load().identity, of_short);
}

TEST_F(TrainingDataTest, TheCacheIsUsedTheSecondTimeAndRebuiltWhenDamaged) {
  use(folder.write("a.txt", numbered(1000)));
  const DataIdentity identity = load().identity;
  std::filesystem::path cached;
  for (const auto& entry : std::filesystem::directory_iterator(folder / "cache"))
    if (entry.path().extension() == ".bin") cached = entry.path();
  const auto written = std::filesystem::last_write_time(cached);
  EXPECT_EQ(load().identity, identity);
  EXPECT_EQ(std::filesystem::last_write_time(cached), written);
  std::filesystem::resize_file(cached, 500);
  EXPECT_EQ(load().identity, identity);
  EXPECT_GE(std::filesystem::file_size(cached), 1000u);
}

TEST_F(TrainingDataTest, ThreadsMayBuildTheSameCacheAtOnce) {
  use(folder.write("a.txt", numbered(1'000'000)));
  std::vector<std::jthread> threads;
  std::atomic<int> good{0};
  for (int i = 0; i < 4; ++i) threads.emplace_back([&] { good += load().val_tokens >= 100'000 ? 1 : 0; });
  threads.clear();
  EXPECT_EQ(good, 4);
}

TEST_F(TrainingDataTest, AnotherTokenizersSetIsRefused) {
  TokenSetWriter writer(folder / "other", 256);
  writer.append_document(std::vector<int32_t>(100, 7));
  writer.commit({.tokenizer = "gpt2", .tokenizer_fingerprint = 99});
  use(folder / "other");
  EXPECT_THAT(refusal(), AllOf(HasSubstr("was tokenized with another tokenizer (gpt2)"), HasSubstr("data.tokenizer")));
}

TEST_F(TrainingDataTest, WhatChangedIsNamed) {
  use(folder.write("a.txt", numbered(1000)));
  const TrainingData before = load();
  const auto refusal_with = [&](auto change) -> std::string {
    TrainingDataOptions other = options;
    change(other);
    try {
      check_same_data(load_training_data(other, text::ByteTokenizer()).identity, before.identity);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal_with([](auto&) {}), "");
  const auto elsewhere = folder.write("elsewhere/b.txt", numbered(1000));
  EXPECT_EQ(refusal_with([&](auto& o) { o.sources = {{elsewhere, {}}}; }), "");
  EXPECT_EQ(
      refusal_with([](auto& o) { o.sequence = 9; }),
      "the run to resume learned from other data: train.max_seq_length was 8 and is 9; give it the same, or begin "
      "the new data at its first sample with --data.on_change restart");
  EXPECT_THAT(refusal_with([](auto& o) { o.seed = 1; }), HasSubstr("data.seed was 42 and is 1;"));
  EXPECT_THAT(refusal_with([](auto& o) { o.val_split_fraction = 0.2; }), HasSubstr("the data was 90"));
  std::string changed = numbered(1000);
  changed[999] ^= 1;
  const auto other_text = folder.write("c.txt", changed);
  EXPECT_THAT(refusal_with([&](auto& o) { o.sources = {{other_text, {}}}; }), HasSubstr("the data was "));
  EXPECT_THAT(
      refusal_with([&](auto& o) { o.sources = {{elsewhere, 1.0}, {other_text, 2.0}}; }),
      AllOf(HasSubstr("source 2 is "), HasSubstr("the weights of data.mixture is 1, 2 and was not given before"),
            HasSubstr("the data was "), HasSubstr("and is gone")));
  EXPECT_THAT(refusal_with([](auto& o) {
                o.packing = Packing::none;
                o.val_split_fraction = 0;
              }),
              HasSubstr("data.packing was wrapped and is none"));
  EXPECT_NE(before.identity.fingerprint(), load_training_data({.sources = {{other_text, {}}},
                                                               .setting = "x",
                                                               .val_split_fraction = 0.1,
                                                               .sequence = 8,
                                                               .cache_dir = folder / "cache"},
                                                              text::ByteTokenizer())
                                               .identity.fingerprint());
}

TEST_F(TrainingDataTest, WhatCannotBeLearnedFromIsRefusedInOneSentence) {
  for (const bool check_only : {true, false}) {
    use(folder / "nothing.txt");
    EXPECT_THAT(refusal(check_only), AllOf(HasSubstr("data.train_data_path"), HasSubstr("nothing.txt")));
    use(folder.write("empty.txt", ""));
    EXPECT_THAT(refusal(check_only), HasSubstr("empty.txt"));
    use("/dev/null");
    EXPECT_THAT(refusal(check_only), AllOf(HasSubstr("/dev/null"), HasSubstr("neither")));
    use("");
    EXPECT_THAT(refusal(check_only), HasSubstr("data.train_data_path"));
    use(folder.write("short.txt", "1234567"));
    EXPECT_THAT(refusal(check_only),
                AllOf(HasSubstr("short.txt"), HasSubstr("at most 7 tokens are fewer than one sample, which takes 9")));
    use(folder.write("some.txt", numbered(59)));
    EXPECT_THAT(refusal(check_only), AllOf(HasSubstr("some.txt"), HasSubstr("0.1 holds out: at most 6 tokens")));
    options.val_split_fraction = 1;
    EXPECT_THAT(refusal(check_only), HasSubstr("data.val_split_fraction 1 is not in [0, 1)"));
    options.val_data_path = folder / "lost.txt";
    EXPECT_THAT(refusal(check_only), AllOf(HasSubstr("data.val_data_path"), HasSubstr("lost.txt")));
    options.val_data_path.clear();
    options.val_split_fraction = 0.1;
  }
}

TEST_F(TrainingDataTest, ACacheThatCannotBeWrittenIsRefused) {
  use(folder.write("a.txt", numbered(1000)));
  options.cache_dir = folder.write("file", "in the way") / "cache";
  EXPECT_THAT(refusal(), AllOf(HasSubstr("file/cache"), HasSubstr("cannot create")));
}

TEST_F(TrainingDataTest, TheLedgerSaysWhatASampleIsMadeOf) {
  make_set(folder.path(), counting_documents({5, 3, 13, 5}));
  use(folder / "set");
  options.packing = Packing::best_fit;
  options.val_split_fraction = 0;
  const TrainingData data = load();
  std::string all;
  for (int64_t g = 0; g < data.train->samples_per_epoch(); ++g) all += ledger_text(*data.train, g);
  EXPECT_THAT(all, HasSubstr("document 2  tokens 8 to 15\n"));
  EXPECT_THAT(all, HasSubstr("document 0  tokens 0 to 3\n"));
  EXPECT_THAT(ledger_json(*data.train, 0), HasSubstr("{\"sample\":0,\"epoch\":0,\"index\":"));
}

}  // namespace
}  // namespace trireme::data
