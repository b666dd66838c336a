#include "trireme/data/token_set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "refusal.h"
#include "temporary_folder.h"
#include "trireme/base/files.h"
#include "trireme/data/litdata.h"
#include "trireme/data/token_stats.h"

namespace trireme::data {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<int64_t> ids_of(const TokenSet& set) {
  std::vector<int64_t> ids(static_cast<size_t>(set.num_tokens()));
  set.copy(0, ids);
  return ids;
}

template <typename T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

class TokenSetTest : public ::testing::Test {
 protected:
  // Three documents, one of them empty: ids 1 2 3 | | 4 5.
  void write_three(int64_t vocab_size, const std::string& name = "set") {
    TokenSetWriter writer(folder / name, vocab_size);
    writer.append_document(std::vector<int32_t>{1, 2, 3});
    writer.append_document({});
    writer.append(std::vector<int32_t>{4});
    writer.append(std::vector<int32_t>{5});
    writer.end_document();
    writer.commit({.tokenizer = "a \"name\"", .tokenizer_fingerprint = 7, .sources = {{"in", 3, 12}}});
  }
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const auto& entry : std::filesystem::directory_iterator(folder.path()))
      all.push_back(entry.path().filename().string());
    std::sort(all.begin(), all.end());
    return all;
  }
  TemporaryFolder folder;
};

TEST_F(TokenSetTest, DocumentsComeBackWithTheirBordersInTheNarrowestWidth) {
  for (const auto& [vocab, type] :
       {std::pair{256, TokenType::uint8}, {65536, TokenType::uint16}, {65537, TokenType::int32}}) {
    write_three(vocab);
    const TokenSet set = TokenSet::open(folder / "set");
    EXPECT_EQ(set.view().type(), type);
    EXPECT_THAT(ids_of(set), ElementsAre(1, 2, 3, 4, 5));
    ASSERT_EQ(set.num_documents(), 3);
    EXPECT_EQ(set.document_start(0), 0);
    EXPECT_EQ(set.document_start(1), 3);
    EXPECT_EQ(set.document_start(2), 3);
    EXPECT_EQ(set.document_start(3), 5);
    EXPECT_FALSE(set.has_mask());
    EXPECT_EQ(set.supervised_tokens(), 5);
    ASSERT_TRUE(set.about());
    EXPECT_EQ(set.about()->tokenizer, "a \"name\"");
    EXPECT_EQ(set.about()->vocab_size, vocab);
    EXPECT_THAT(set.about()->sources, ElementsAre(TokenSource{"in", 3, 12}));
    EXPECT_EQ(set.recompute_fingerprint(), set.fingerprint());
  }
}

TEST_F(TokenSetTest, TheIndexIsMegatronsToTheByte) {
  write_three(1000);
  const std::string header =
      std::string("MMIDIDX\0\0", 9) + bytes_of<uint64_t>({1}) + '\x08' + bytes_of<uint64_t>({3, 4});
  EXPECT_EQ(base::read_file(folder / "set.idx"),
            header + bytes_of<int32_t>({3, 0, 2}) + bytes_of<int64_t>({0, 6, 6}) + bytes_of<int64_t>({0, 1, 2, 3}));
  EXPECT_EQ(base::read_file(folder / "set.bin"), bytes_of<uint16_t>({1, 2, 3, 4, 5}));
}

TEST_F(TokenSetTest, NothingAppearsWithoutCommitAndNothingIsLeftBehind) {
  {
    TokenSetWriter writer(folder / "set", 300, true);
    writer.append_document(std::vector<int32_t>{1, 2, 3});
    EXPECT_FALSE(TokenSet::exists(folder / "set"));
  }
  EXPECT_THAT(names(), ElementsAre());
  write_three(300);
  EXPECT_THAT(names(), ElementsAre("set.bin", "set.idx", "set.json"));
}

TEST_F(TokenSetTest, FilesOfOthersAreNotReplaced) {
  folder.write("set.json", "[{\"instruction\": \"a text\"}]");
  EXPECT_THAT(refusal([&] { write_three(300); }), AllOf(HasSubstr("set.json"), HasSubstr("name another output")));
  EXPECT_EQ(base::read_file(folder / "set.json"), "[{\"instruction\": \"a text\"}]");
  folder.write("model.bin", "weights");
  EXPECT_THAT(refusal([&] { write_three(300, "model"); }), AllOf(HasSubstr("model.bin"), HasSubstr("another output")));
  write_three(300, "mine");
  std::filesystem::remove(folder / "mine.idx");  // as a crash between two renames leaves it
  write_three(300, "mine");
  EXPECT_EQ(TokenSet::open(folder / "mine").num_tokens(), 5);
}

TEST_F(TokenSetTest, WhatAWriterCannotTakeIsRefused) {
  using Ids = std::vector<int32_t>;
  const std::vector<uint8_t> mask = {1, 0};
  TokenSetWriter writer(folder / "set", 300), masked(folder / "masked", 300, /*with_mask=*/true);
  EXPECT_THAT(refusal([&] { writer.append_document(Ids{1, 2}, mask); }), HasSubstr("is a set without a mask"));
  EXPECT_THAT(refusal([&] { masked.append_document(Ids{1}, mask); }), HasSubstr("a mask of 2 bytes for 1 tokens"));
  for (const int32_t id : {-1, 300})
    EXPECT_THAT(refusal([&] { writer.append_document(Ids{id}); }), HasSubstr("is not in the vocabulary of 300"));
  writer.append(Ids{1});
  EXPECT_THAT(refusal([&] { writer.commit({}); }), HasSubstr("call end_document() first"));
}

TEST_F(TokenSetTest, MasksSayWhatIsLearned) {
  {
    TokenSetWriter writer(folder / "set", 300, true);
    writer.append_document(std::vector<int32_t>{1, 2, 3}, std::vector<uint8_t>{0, 1, 1});
    writer.append_document(std::vector<int32_t>{4, 5});
    writer.append_document(std::vector<int32_t>{6}, std::vector<uint8_t>{0});
    writer.commit({.chat_template = "chatml"});
  }
  const TokenSet set = TokenSet::open(folder / "set");
  ASSERT_TRUE(set.has_mask());
  EXPECT_EQ(set.supervised_tokens(), 4);
  EXPECT_EQ(set.about()->chat_template, "chatml");
  std::vector<uint8_t> mask(5);
  set.copy_mask(1, mask);
  EXPECT_THAT(mask, ElementsAre(1, 1, 1, 1, 0));
  EXPECT_EQ(token_stats(set).supervised_tokens, 4);
  EXPECT_EQ(set.recompute_fingerprint(), set.fingerprint());
  std::filesystem::remove(folder / "set.mask");
  EXPECT_THAT(refusal([&] { TokenSet::open(folder / "set"); }), AllOf(HasSubstr("set.mask"), HasSubstr("missing")));
  folder.write("set.mask", "1234");
  EXPECT_THAT(refusal([&] { TokenSet::open(folder / "set"); }), HasSubstr("has 4 bytes, but there are 6 tokens"));
  std::filesystem::remove(folder / "set.json");
  EXPECT_THAT(refusal([&] { TokenSet::open(folder / "set"); }), HasSubstr("set.mask is there without"));
  write_three(300);  // a set without a mask takes its place
  EXPECT_FALSE(TokenSet::open(folder / "set").has_mask());
}

TEST_F(TokenSetTest, TheFingerprintKnowsIdsBordersMaskAndTokenizer) {
  const auto fingerprint = [&](std::vector<std::vector<int32_t>> documents, uint64_t tokenizer, int masked) {
    TokenSetWriter writer(folder / "set", 300, masked >= 0);
    for (const auto& ids : documents) {
      std::vector<uint8_t> mask(masked >= 0 ? ids.size() : 0, 1);
      if (masked > 0) mask[0] = 0;
      writer.append_document(ids, mask);
    }
    writer.commit({.tokenizer_fingerprint = tokenizer});
    return TokenSet::open(folder / "set").fingerprint();
  };
  const uint64_t first = fingerprint({{1, 2}, {3}}, 1, -1);
  EXPECT_EQ(first, fingerprint({{1, 2}, {3}}, 1, -1));
  EXPECT_NE(first, fingerprint({{1, 2}, {4}}, 1, -1));
  EXPECT_NE(first, fingerprint({{1}, {2, 3}}, 1, -1));
  EXPECT_NE(first, fingerprint({{1, 2}, {3}}, 2, -1));
  EXPECT_NE(fingerprint({{1, 2}, {3}}, 1, 0), fingerprint({{1, 2}, {3}}, 1, 1));
}

TEST_F(TokenSetTest, PairsOfOthersOpenWithoutASidecar) {
  write_three(70000, "mine");
  std::filesystem::copy(folder / "mine.bin", folder / "theirs.bin");
  std::filesystem::copy(folder / "mine.idx", folder / "theirs.idx");
  for (const char* name : {"theirs", "theirs.idx", "theirs.bin"}) {
    const TokenSet set = TokenSet::open(folder / name);
    EXPECT_THAT(ids_of(set), ElementsAre(1, 2, 3, 4, 5));
    EXPECT_EQ(set.num_documents(), 3);
    EXPECT_FALSE(set.about());
  }
  const uint64_t before = TokenSet::open(folder / "theirs").fingerprint();
  std::fstream(folder / "theirs.bin", std::ios::in | std::ios::out | std::ios::binary).put(9);
  EXPECT_NE(TokenSet::open(folder / "theirs").fingerprint(), before);
}

TEST_F(TokenSetTest, DamageIsRefusedByName) {
  const auto after = [&](auto change) {
    write_three(1000);
    change();
    return refusal([&] { TokenSet::open(folder / "set"); });
  };
  const auto put = [&](const char* name, int64_t at, char byte) {
    std::fstream file(folder / name, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(at).put(byte);
  };
  const auto resize = [&](const char* name, uintmax_t size) { std::filesystem::resize_file(folder / name, size); };
  EXPECT_THAT(after([&] { put("set.idx", 0, 'X'); }), HasSubstr("does not begin with MMIDIDX"));
  EXPECT_THAT(after([&] { put("set.idx", 9, 2); }), HasSubstr("version is 2"));
  EXPECT_THAT(after([&] { put("set.idx", 17, 6); }), HasSubstr("dtype code is 6"));
  EXPECT_THAT(after([&] { resize("set.idx", 20); }), HasSubstr("set.idx"));
  EXPECT_THAT(after([&] { resize("set.idx", 100); }), HasSubstr("3 sequences and 4 document entries make 102 bytes"));
  EXPECT_THAT(after([&] { put("set.idx", 25, 127); }), HasSubstr("make more bytes"));
  EXPECT_THAT(after([&] { put("set.idx", 34, 4); }), HasSubstr("sequence 1 begins at byte 6"));
  EXPECT_THAT(after([&] { put("set.idx", 42, 127); }), HasSubstr("sequence 2 of 127 tokens does not fit"));
  EXPECT_THAT(after([&] { put("set.idx", 37, -1); }), HasSubstr("does not fit"));
  EXPECT_THAT(after([&] { put("set.idx", 78, 9); }), HasSubstr("entry 1 of its document index is 9"));
  EXPECT_THAT(after([&] { put("set.idx", 94, 2); }), HasSubstr("from 0 to 2"));
  EXPECT_THAT(after([&] { resize("set.bin", 9); }), HasSubstr("not whole tokens"));
  EXPECT_THAT(after([&] { resize("set.bin", 8); }), HasSubstr("does not fit into a .bin of 8 bytes"));
  EXPECT_THAT(after([&] { resize("set.bin", 12); }), HasSubstr("do not belong together"));
  EXPECT_THAT(after([&] { folder.write("set.json", "{}"); }), AllOf(HasSubstr("set.json"), HasSubstr("format")));
  std::filesystem::remove(folder / "set.json");
  EXPECT_THAT(after([&] { std::filesystem::remove(folder / "set.bin"); }), HasSubstr("set.bin"));
  EXPECT_THAT(refusal([&] { TokenSet::open(folder / "nothing"); }), HasSubstr("no tokenized data set at"));
  write_three(1000, "other");
  std::filesystem::copy(folder / "other.json", folder / "set.json", std::filesystem::copy_options::overwrite_existing);
  {
    TokenSetWriter writer(folder / "other", 1000);
    writer.append_document(std::vector<int32_t>{1});
    writer.commit({});
  }
  std::filesystem::copy(folder / "other.json", folder / "set.json", std::filesystem::copy_options::overwrite_existing);
  write_three(1000, "set2");
  std::filesystem::copy(folder / "set2.bin", folder / "set.bin", std::filesystem::copy_options::overwrite_existing);
  EXPECT_THAT(refusal([&] { TokenSet::open(folder / "set"); }), HasSubstr("says 1 tokens in 1 documents"));
}

TEST_F(TokenSetTest, ChangedTokensAreFoundByTheStatistics) {
  write_three(1000);
  std::fstream(folder / "set.bin", std::ios::in | std::ios::out | std::ios::binary).put(2);
  const TokenSet set = TokenSet::open(folder / "set");
  EXPECT_NE(token_stats(set).fingerprint, set.fingerprint());
}

TEST_F(TokenSetTest, StatisticsAreThoseOfTheTokens) {
  TokenSetWriter writer(folder / "set", 300);
  for (int d = 1; d <= 100; ++d) writer.append_document(std::vector<int32_t>(static_cast<size_t>(d), d % 7));
  writer.commit({});
  const TokenStats stats = token_stats(TokenSet::open(folder / "set"), 3);
  EXPECT_EQ(stats.tokens, 5050);
  EXPECT_EQ(stats.supervised_tokens, 5050);
  EXPECT_THAT(stats.lengths, ElementsAre(1, 5, 25, 50, 75, 95, 100));
  EXPECT_DOUBLE_EQ(stats.mean_length, 50.5);
  EXPECT_EQ(stats.distinct_ids, 7);
  EXPECT_EQ(stats.largest_id, 6);
  EXPECT_EQ(stats.unknown_tokens, 3 + 10 + 17 + 24 + 31 + 38 + 45 + 52 + 59 + 66 + 73 + 80 + 87 + 94);
}

TEST_F(TokenSetTest, IdsThatTheVocabularyLacksAreRefusedWhereTheyAreRead) {
  write_three(300);
  std::fstream(folder / "set.bin", std::ios::in | std::ios::out | std::ios::binary).seekp(4).write("\x60\xEA", 2);
  const TokenSet set = TokenSet::open(folder / "set");
  std::vector<int64_t> ids(2);
  set.copy(0, ids);
  EXPECT_THAT(ids, ElementsAre(1, 2));
  EXPECT_THAT(refusal([&] { set.copy(1, ids); }),
              AllOf(HasSubstr("set holds the token 60000, and its tokenizer's vocabulary ends at 299"),
                    HasSubstr("trireme data stats"), HasSubstr("(at 2 of 5 tokens)")));
  EXPECT_EQ(token_stats(set).ids_outside, 1);
}

TEST_F(TokenSetTest, NoTokenizerHasIdsBeyond31Bits) {
  folder.write("set.bin", bytes_of<int64_t>({1, int64_t{1} << 40, -1}));
  folder.write("set.idx",
               megatron_header({TokenType::int64, 1, 2}) + bytes_of<int32_t>({3}) + bytes_of<int64_t>({0, 0, 1}));
  const TokenSet set = TokenSet::open(folder / "set");
  EXPECT_THAT(refusal([&] { ids_of(set); }),
              AllOf(HasSubstr("set holds the token 1099511627776"), HasSubstr("the set is damaged")));
  EXPECT_EQ(token_stats(set).ids_outside, 1);
  EXPECT_EQ(token_stats(set).negative_ids, 1);
}

TEST_F(TokenSetTest, AMaskHasOnesAndZeros) {
  {
    TokenSetWriter writer(folder / "set", 300, true);
    writer.append_document(std::vector<int32_t>{1, 2, 3}, std::vector<uint8_t>{0, 1, 1});
    writer.commit({});
  }
  std::fstream(folder / "set.mask", std::ios::in | std::ios::out | std::ios::binary).put(2);
  const TokenSet set = TokenSet::open(folder / "set");
  std::vector<uint8_t> mask(3);
  EXPECT_THAT(refusal([&] { set.copy_mask(0, mask); }), HasSubstr("set.mask is damaged: it holds the byte 2"));
  EXPECT_EQ(token_stats(set).mask_outside, 1);
  EXPECT_EQ(token_stats(set).supervised_tokens, 2);
}

class LitdataTest : public TokenSetTest {
 protected:
  void write_index(const std::string& chunks, const std::string& config = R"("data_format":["no_header_tensor:13"])") {
    folder.write("lit/index.json", "{\"chunks\":[" + chunks + "],\"config\":{\"compression\":null," + config + "}}");
  }
  void write_chunks() {
    folder.write("lit/a.bin", bytes_of<uint32_t>({2, 16, 20, 22}) + bytes_of<int16_t>({1, 2, 3}));
    folder.write("lit/b.bin", bytes_of<uint32_t>({1, 12, 16}) + bytes_of<int16_t>({4, 5}));
    write_index(R"({"filename":"a.bin","chunk_size":2,"dim":3},{"filename":"b.bin","chunk_size":1,"dim":null})");
  }
};

TEST_F(LitdataTest, ChunksAreOneRowOfTokensWithTheirDocuments) {
  write_chunks();
  const TokenSet set = TokenSet::open(folder / "lit");
  EXPECT_THAT(ids_of(set), ElementsAre(1, 2, 3, 4, 5));
  ASSERT_EQ(set.num_documents(), 3);
  EXPECT_EQ(set.document_start(1), 2);
  EXPECT_EQ(set.document_start(2), 3);
  EXPECT_EQ(set.document_start(3), 5);
  std::vector<int64_t> middle(3);
  set.copy(2, middle);  // across the border of two chunks
  EXPECT_THAT(middle, ElementsAre(3, 4, 5));
}

TEST_F(LitdataTest, DamageIsRefusedByName) {
  const auto opened = [&] { return refusal([&] { TokenSet::open(folder / "lit"); }); };
  write_chunks();
  folder.write("lit/b.bin", bytes_of<uint32_t>({1, 12, 15}) + "abc");
  EXPECT_THAT(opened(), AllOf(HasSubstr("b.bin"), HasSubstr("no whole tokens")));
  folder.write("lit/b.bin", bytes_of<uint32_t>({1, 12, 16}) + "ab");
  EXPECT_THAT(opened(), HasSubstr("its last item ends at byte 16 and the file at 14"));
  folder.write("lit/b.bin", bytes_of<uint32_t>({0xFFFFFFFF, 12}));
  EXPECT_THAT(opened(), HasSubstr("do not fit"));
  folder.write("lit/b.bin", "abc");
  EXPECT_THAT(opened(), HasSubstr("do not fit"));
  folder.write("lit/b.bin", bytes_of<uint32_t>({2, 16, 16, 16}));
  EXPECT_THAT(opened(), HasSubstr("index.json says 1"));
  write_chunks();
  write_index(R"({"filename":"a.bin","chunk_size":2,"dim":4})");
  EXPECT_THAT(opened(), HasSubstr("3 tokens and index.json says 4"));
  write_index(R"({"filename":"../lit/a.bin","chunk_size":2,"dim":3})");
  EXPECT_THAT(opened(), HasSubstr("no name of a file in the folder"));
  write_index("", R"("data_format":["no_header_tensor:1"])");
  EXPECT_THAT(opened(), HasSubstr("no_header_tensor:1"));
  folder.write("lit/index.json",
               R"({"chunks":[],"config":{"compression":"zstd","data_format":["no_header_tensor:16"]}})");
  EXPECT_THAT(opened(), HasSubstr("compressed"));
  folder.write("lit/index.json", "[");
  EXPECT_THAT(opened(), HasSubstr("not JSON"));
}

}  // namespace
}  // namespace trireme::data
