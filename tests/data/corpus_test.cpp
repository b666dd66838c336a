#include "trireme/data/corpus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "temporary_folder.h"
#include "trireme/base/error.h"
#include "trireme/data/byte_tokenizer.h"

namespace trireme::data {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string text_of(const TokenView& view) {
  std::string text;
  for (int64_t i = 0; i < view.size(); ++i) text += static_cast<char>(view[i]);
  return text;
}

std::string numbered(int bytes) {
  std::string text;
  for (int i = 0; static_cast<int>(text.size()) < bytes; ++i) text += std::to_string(i) + " ";
  return text.substr(0, static_cast<size_t>(bytes));
}

size_t num_files(const std::filesystem::path& folder) {
  return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
}

std::filesystem::path tokens_in(const std::filesystem::path& cache) {
  for (const auto& entry : std::filesystem::directory_iterator(cache))
    if (entry.path().extension() == ".bin") return entry.path();
  return {};
}

class CorpusTest : public ::testing::Test {
 protected:
  Corpus load() { return load_corpus(options, ByteTokenizer()); }
  std::string refusal(bool check_only = false) {
    try {
      check_only ? check_corpus(options) : static_cast<void>(load());
    } catch (const UsageError& error) {
      return error.what();
    }
    return "not refused";
  }

  TemporaryFolder folder;
  CorpusOptions options{.val_split_fraction = 0.1, .sequence = 8, .cache_dir = folder / "cache"};
};

TEST_F(CorpusTest, AFileIsReadWholeAndItsTailHeldOut) {
  const std::string text = numbered(1005);
  options.train_data_path = folder.write("a.txt", text);
  const Corpus corpus = load();
  EXPECT_EQ(text_of(corpus.train), text.substr(0, 904));  // 1005 less ceil(100.5)
  EXPECT_EQ(text_of(corpus.val), text.substr(904));
  EXPECT_EQ(corpus.source_bytes, 1005);
  EXPECT_EQ(corpus.num_documents, 1);
}

TEST_F(CorpusTest, AFoldersFilesAreJoinedInTheOrderOfTheirNames) {
  folder.write("in/b.txt", "second second");
  folder.write("in/a.txt", "first first");
  folder.write("in/empty.txt", "");
  folder.write("in/notes.md", "not text for us");
  options.train_data_path = folder / "in";
  options.val_split_fraction = 0;
  const Corpus corpus = load();
  EXPECT_EQ(text_of(corpus.train), "first first\nsecond second");
  EXPECT_EQ(corpus.val.size(), 0);
  EXPECT_EQ(corpus.num_documents, 2);
}

TEST_F(CorpusTest, ValidationTextOfItsOwnLeavesTrainingWhole) {
  options.train_data_path = folder.write("train.txt", numbered(100));
  options.val_data_path = folder.write("val.txt", "validation text");
  const Corpus corpus = load();
  EXPECT_EQ(text_of(corpus.train), numbered(100));
  EXPECT_EQ(text_of(corpus.val), "validation text");
}

TEST_F(CorpusTest, TheCacheIsUsedTheSecondTimeAndRebuiltWhenDamaged) {
  options.train_data_path = folder.write("a.txt", numbered(1000));
  load();
  ASSERT_EQ(num_files(folder / "cache"), 3u);
  const auto cached = tokens_in(folder / "cache");
  struct stat first{}, second{};
  ::stat(cached.c_str(), &first);
  load();
  ::stat(cached.c_str(), &second);
  EXPECT_EQ(first.st_ino, second.st_ino);
  for (const uintmax_t size : {0, 63, 999, 1001}) {
    std::filesystem::resize_file(cached, size);
    EXPECT_EQ(text_of(load().train), numbered(1000).substr(0, 900)) << size;
    EXPECT_EQ(std::filesystem::file_size(cached), 1000u);
  }
  for (const char* part : {".idx", ".json"}) {
    const auto file = std::filesystem::path(cached).replace_extension(part);
    std::fstream(file, std::ios::in | std::ios::out | std::ios::binary).put('X');  // neither our magic nor JSON
    EXPECT_EQ(text_of(load().train), numbered(1000).substr(0, 900));
    EXPECT_NE(std::ifstream(file).get(), 'X');
  }
}

TEST_F(CorpusTest, ChangedTextIsReadAnew) {
  options.train_data_path = folder.write("a.txt", std::string(100, 'a'));
  load();
  folder.write("a.txt", std::string(100, 'b'));
  EXPECT_EQ(text_of(load().val), std::string(10, 'b'));
}

TEST_F(CorpusTest, ProcessesMayBuildTheSameCacheAtOnce) {
  options.train_data_path = folder.write("a.txt", numbered(3'000'000));
  std::vector<std::jthread> threads;
  std::atomic<int> good{0};
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] { good += text_of(load().val) == numbered(3'000'000).substr(2'700'000); });
  }
  threads.clear();
  EXPECT_EQ(good, 4);
  EXPECT_EQ(num_files(folder / "cache"), 3u);  // no temporary file is left behind
}

TEST_F(CorpusTest, TheFingerprintKnowsTextTokensAndSplitButNotThePath) {
  options.train_data_path = folder.write("a.txt", numbered(1000));
  const Corpus corpus = load();
  const auto fingerprint_with = [&](auto change) {
    CorpusOptions other = options;
    change(other);
    return load_corpus(other, ByteTokenizer()).fingerprint;
  };
  const auto elsewhere = folder.write("elsewhere/b.txt", numbered(1000));
  std::string changed = numbered(1000);
  changed[999] ^= 1;
  const auto other_text = folder.write("c.txt", changed);
  EXPECT_EQ(fingerprint_with([&](auto& o) { o.train_data_path = elsewhere; }), corpus.fingerprint);
  EXPECT_NE(fingerprint_with([&](auto& o) { o.train_data_path = other_text; }), corpus.fingerprint);
  EXPECT_NE(fingerprint_with([&](auto& o) { o.sequence = 9; }), corpus.fingerprint);
  EXPECT_NE(fingerprint_with([&](auto& o) { o.val_split_fraction = 0.2; }), corpus.fingerprint);
  EXPECT_NE(fingerprint_with([&](auto& o) { o.val_data_path = elsewhere; }), corpus.fingerprint);
  EXPECT_NO_THROW(check_same_data(corpus, corpus.fingerprint));
  EXPECT_THROW(check_same_data(corpus, corpus.fingerprint + 1), UsageError);
}

TEST_F(CorpusTest, WhatCannotBeLearnedFromIsRefusedInOneSentence) {
  for (const bool check_only : {true, false}) {
    options.train_data_path = folder / "nothing.txt";
    EXPECT_THAT(refusal(check_only), AllOf(HasSubstr("nothing.txt"), HasSubstr("no such file or folder")));
    options.train_data_path = folder.write("empty.txt", "");
    EXPECT_THAT(refusal(check_only), AllOf(HasSubstr("empty.txt"), HasSubstr("the file is empty")));
    folder.write("none/readme.md", "x");
    options.train_data_path = folder / "none";
    EXPECT_THAT(refusal(check_only), AllOf(HasSubstr("none"), HasSubstr("no .txt file")));
    folder.write("blank/a.txt", "");
    options.train_data_path = folder / "blank";
    EXPECT_THAT(refusal(check_only), AllOf(HasSubstr("blank"), HasSubstr("every .txt file of the folder is empty")));
    options.train_data_path = "/dev/null";
    EXPECT_THAT(refusal(check_only), AllOf(HasSubstr("/dev/null"), HasSubstr("neither")));
    options.train_data_path = "";
    EXPECT_THAT(refusal(check_only), AllOf(HasSubstr("data.train_data_path"), HasSubstr("is not set")));
    options.train_data_path = folder.write("short.txt", "12345678");
    EXPECT_THAT(refusal(check_only),
                AllOf(HasSubstr("short.txt"), HasSubstr("tokens are fewer than one sample, which takes 9")));
    options.train_data_path = folder.write("some.txt", numbered(60));
    EXPECT_THAT(refusal(check_only), AllOf(HasSubstr("some.txt"), HasSubstr("0.1 holds out: 6 tokens")));
    options.val_split_fraction = 1;
    EXPECT_THAT(refusal(check_only), HasSubstr("data.val_split_fraction 1 is not in [0, 1)"));
    options.val_data_path = folder / "lost.txt";
    EXPECT_THAT(refusal(check_only), AllOf(HasSubstr("data.val_data_path"), HasSubstr("lost.txt")));
    options.val_data_path.clear();
    options.val_split_fraction = 0.1;
  }
}

TEST_F(CorpusTest, ACacheThatCannotBeWrittenIsRefused) {
  options.train_data_path = folder.write("a.txt", numbered(1000));
  options.cache_dir = folder.write("file", "in the way") / "cache";
  EXPECT_THAT(refusal(), AllOf(HasSubstr("file/cache"), HasSubstr("cannot create")));
}

TEST_F(CorpusTest, AFileWithoutPermissionIsRefused) {
  if (::geteuid() == 0) GTEST_SKIP() << "the superuser may read everything";
  options.train_data_path = folder.write("a.txt", numbered(1000));
  std::filesystem::permissions(options.train_data_path, std::filesystem::perms::none);
  EXPECT_THAT(refusal(), AllOf(HasSubstr("a.txt"), HasSubstr("cannot open")));
}

// Ids of more than one byte: pairs of letters, so that files are encoded whole.
class PairTokenizer final : public Tokenizer {
 public:
  explicit PairTokenizer(int64_t vocab) : vocab_(vocab) {}
  std::vector<int32_t> encode(std::string_view text, const EncodeOptions& = {}) const override {
    std::vector<int32_t> ids;
    for (size_t i = 0; i + 1 < text.size(); i += 2) {
      ids.push_back(static_cast<int32_t>((text[i] * 131 + text[i + 1] * 7919) % vocab_));
    }
    return ids;
  }
  std::string decode(std::span<const int32_t>, const DecodeOptions&) const override { return {}; }
  int64_t vocab_size() const override { return vocab_; }
  std::string name() const override { return "pair"; }
  uint64_t fingerprint() const override { return static_cast<uint64_t>(vocab_); }
  std::vector<int32_t> document_separator() const override { return {static_cast<int32_t>(vocab_ - 1)}; }

 private:
  int64_t vocab_;
};

TEST_F(CorpusTest, WiderVocabulariesAreStoredInTheNarrowestWidth) {
  options.val_split_fraction = 0;
  folder.write("in/a.txt", numbered(400));
  folder.write("in/b.txt", numbered(200));
  options.train_data_path = folder / "in";
  for (const auto& [vocab, width] : {std::pair{256, 1}, {257, 2}, {65536, 2}, {65537, 4}, {200'000, 4}}) {
    std::filesystem::remove_all(folder / "cache");
    const PairTokenizer tokenizer(vocab);
    const Corpus corpus = load_corpus(options, tokenizer);
    auto expected = tokenizer.encode(numbered(400));
    expected.push_back(vocab - 1);
    for (const int32_t id : tokenizer.encode(numbered(200))) expected.push_back(id);
    std::vector<int64_t> got(static_cast<size_t>(corpus.train.size()));
    corpus.train.copy(0, got);
    EXPECT_TRUE(std::equal(got.begin(), got.end(), expected.begin(), expected.end()));
    EXPECT_EQ(std::filesystem::file_size(tokens_in(folder / "cache")), expected.size() * static_cast<size_t>(width));
  }
}

}  // namespace
}  // namespace trireme::data
