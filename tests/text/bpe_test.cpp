#include "trireme/text/bpe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/data/refusal.h"
#include "trireme/text/byte_alphabet.h"

namespace trireme::text {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Straight from the definition: merge the leftmost pair of lowest rank until there is none.
std::vector<int32_t> merged_slowly(std::vector<int32_t> ids, const MergeTable& table) {
  while (true) {
    size_t best = 0;
    MergeTable::Merge merge;
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      const auto here = table.find(ids[i], ids[i + 1]);
      if (here.rank < merge.rank) merge = here, best = i;
    }
    if (merge.rank == MergeTable::kNone) return ids;
    ids[best] = merge.id;
    ids.erase(ids.begin() + static_cast<ptrdiff_t>(best) + 1);
  }
}

TEST(MergeTableTest, ShortAndLongPiecesMergeAsTheDefinitionSays) {
  std::mt19937 random(5);
  for (int round = 0; round < 300; ++round) {
    const int alphabet = 2 + round % 5, num_merges = 40;
    MergeTable table(num_merges);
    int32_t next = alphabet;
    for (uint32_t rank = 0; rank < num_merges; ++rank) {
      const auto any = [&] { return static_cast<int32_t>(random() % static_cast<uint32_t>(next)); };
      const int32_t left = any(), right = any();
      if (table.find(left, right).rank == MergeTable::kNone) table.add(left, right, {rank, next++});
    }
    for (const size_t length : {0, 1, 2, 3, 17, 64, 65, 200}) {
      std::vector<int32_t> ids(length);
      for (int32_t& id : ids) id = static_cast<int32_t>(random() % static_cast<uint32_t>(alphabet));
      std::vector<int32_t> merged = ids;
      table.merge_all(merged);
      ASSERT_EQ(merged, merged_slowly(ids, table)) << "round " << round << " length " << length;
    }
  }
}

Vocabulary vocabulary_of(const std::vector<std::string>& tokens) {
  Vocabulary vocabulary;
  for (size_t i = 0; i < tokens.size(); ++i) vocabulary.add(tokens[i], static_cast<int64_t>(i));
  return vocabulary;
}

std::vector<int32_t> encode(const Bpe& bpe, const std::string& piece) {
  std::vector<int32_t> ids;
  const auto scratch = bpe.scratch();
  bpe.encode(piece, *scratch, ids);
  const std::vector<int32_t> first = ids;
  ids.clear();
  bpe.encode(piece, *scratch, ids);  // from the cache
  EXPECT_EQ(ids, first);
  return ids;
}

TEST(BpeTest, MergesGoByRankAndWholeTokensOnlyWhenAsked) {
  const std::vector<std::string> tokens{"a", "b", "c", "ab", "bc", "abc"};
  const Bpe::Pairs merges{{"b", "c"}, {"a", "b"}};
  EXPECT_THAT(encode(Bpe(vocabulary_of(tokens), merges, {}), "abc"), ElementsAre(0, 4));
  EXPECT_THAT(encode(Bpe(vocabulary_of(tokens), merges, {.ignore_merges = true}), "abc"), ElementsAre(5));
  // Of a merge that is listed twice the later place counts.
  const Bpe::Pairs twice{{"a", "b"}, {"b", "c"}, {"a", "b"}};
  EXPECT_THAT(encode(Bpe(vocabulary_of(tokens), twice, {}), "abc"), ElementsAre(0, 4));
  EXPECT_THAT(encode(*Bpe::by_rank(vocabulary_of(tokens), {0, 1, 2, 3, 4, 5}, {}), "abc"), ElementsAre(5));
  EXPECT_THAT(data::refusal([] { Bpe::by_rank(vocabulary_of({"a", std::string(5000, 'a')}), {0, 1}, {}); }),
              HasSubstr("the token 1 has 5000 bytes, and one that merges make has 4096 at most"));
}

TEST(BpeTest, UnknownCharactersBecomeBytesOrUnknownOrNothing) {
  std::vector<std::string> tokens{"<unk>", "a"};
  EXPECT_THAT(encode(Bpe(vocabulary_of(tokens), {}, {}), "axya"), ElementsAre(1, 1));
  EXPECT_THAT(encode(Bpe(vocabulary_of(tokens), {}, {.unknown = "<unk>"}), "axya"), ElementsAre(1, 0, 0, 1));
  EXPECT_THAT(encode(Bpe(vocabulary_of(tokens), {}, {.fuse_unknown = true, .unknown = "<unk>"}), "axya"),
              ElementsAre(1, 0, 1));
  tokens.insert(tokens.end(), {"<0xC3>", "<0xA9>"});
  const Bpe bpe(vocabulary_of(tokens), {}, {.byte_fallback = true, .fuse_unknown = true, .unknown = "<unk>"});
  EXPECT_THAT(encode(bpe, "a\u00e9"), ElementsAre(1, 2, 3));
  EXPECT_THAT(encode(bpe, "\u00e8"), ElementsAre(0));  // C3 A8: not all of its bytes are there
}

TEST(BpeTest, PrefixAndSuffixDecorateCharacters) {
  const Bpe bpe(vocabulary_of({"a", "##b", "##c</w>", "##bc</w>", "a</w>"}), {{"##b", "##c</w>"}},
                {.prefix = "##", .suffix = "</w>"});
  EXPECT_THAT(encode(bpe, "abc"), ElementsAre(0, 3));
  EXPECT_THAT(encode(bpe, "a"), ElementsAre(4));
}

TEST(BpeTest, AVocabularyThatContradictsItselfIsRefused) {
  EXPECT_THAT(data::refusal([] { Bpe(vocabulary_of({"a", "b"}), {{"a", "b"}}, {}); }),
              HasSubstr("merge 0 is about 'ab'"));
  EXPECT_THAT(data::refusal([] { Bpe(vocabulary_of({"a"}), {}, {.unknown = "<unk>"}); }),
              HasSubstr("'<unk>' is not in the"));
  EXPECT_THAT(data::refusal([] { vocabulary_of({"a", "a"}); }), HasSubstr("'a' is there twice, as 0 and 1"));
  Vocabulary vocabulary;
  EXPECT_THAT(data::refusal([&] { vocabulary.add("x", -1); }), HasSubstr("not in 0 to 1048575"));
  EXPECT_THAT(data::refusal([&] { vocabulary.add("x", 1'000'000'000'000); }), HasSubstr("not in 0 to 1048575"));
  vocabulary.add("x", 7);
  EXPECT_THAT(data::refusal([&] { vocabulary.add("y", 7); }), HasSubstr("belongs to two tokens, 'x' and 'y'"));
}

TEST(ByteAlphabetTest, EveryByteHasALetterAndComesBack) {
  std::string bytes;
  for (int b = 0; b < 256; ++b) bytes += static_cast<char>(b);
  EXPECT_EQ(from_byte_letters(to_byte_letters(bytes)), bytes);
  EXPECT_EQ(to_byte_letters(" \n\t"), "\u0120\u010a\u0109");
  EXPECT_EQ(from_byte_letters("\u4f60"), std::nullopt);
}

}  // namespace
}  // namespace trireme::text
