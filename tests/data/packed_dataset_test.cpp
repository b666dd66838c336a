#include "trireme/data/packed_dataset.h"
#include "trireme/base/mix64.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "token_sets.h"
#include "trireme/base/error.h"
#include "trireme/data/window_dataset.h"

namespace trireme::data {
namespace {

std::vector<int64_t> lengths_of(uint64_t seed, int64_t count, int64_t longest) {
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < count; ++i)
    lengths.push_back(
        1 + static_cast<int64_t>(base::mix_key(seed, static_cast<uint64_t>(i)) % static_cast<uint64_t>(longest)));
  return lengths;
}

// Number of targets of each token over all rows.
std::map<int64_t, int> targets_of(const Dataset& dataset) {
  std::map<int64_t, int> times;
  for (int64_t i = 0; i < dataset.num_samples(); ++i) {
    const TestRow row(dataset, i);
    int64_t learned = 0;
    for (size_t k = 0; k < row.targets.size(); ++k) {
      if (row.targets[k] == kIgnoredTarget) continue;
      ++learned;
      ++times[row.targets[k]];
      EXPECT_EQ(row.targets[k], row.inputs[k] + 1);
    }
    EXPECT_EQ(dataset.supervised_tokens(0, i), learned);
  }
  return times;
}

TEST(PackedDataset, EveryTokenButADocumentsFirstIsATargetOnce) {
  const TemporaryFolder folder;
  for (const uint64_t seed : {1, 2, 3}) {
    for (const bool share_rows : {true, false}) {
      const std::vector<int64_t> lengths = lengths_of(seed, 300, 90);
      const auto set = make_set(folder.path(), counting_documents(lengths), false, "s" + std::to_string(seed));
      const PackedDataset packed(whole(set), {.sequence = 32, .share_rows = share_rows});
      std::map<int64_t, int> expected;
      int64_t next = 0;
      for (const int64_t length : lengths) {
        for (int64_t i = 1; i < length; ++i) expected[next + i] = 1;
        next += length;
      }
      EXPECT_EQ(targets_of(packed), expected);
    }
  }
}

TEST(PackedDataset, LongDocumentsCanBeCutOrDropped) {
  const TemporaryFolder folder;
  const auto set = make_set(folder.path(), counting_documents({5, 33, 34, 100}));  // 33 fit in a row of 32
  for (const LongDocuments rule : {LongDocuments::parts, LongDocuments::cut, LongDocuments::dropped}) {
    const PackedDataset packed(whole(set), {.sequence = 32, .share_rows = false, .long_documents = rule});
    EXPECT_EQ(packed.num_long(), 2);
    EXPECT_EQ(packed.num_places(), rule == LongDocuments::parts ? 4 + 32 + 33 + 99
                                   : rule == LongDocuments::cut ? 4 + 32 + 32 + 32
                                                                : 4 + 32);
  }
}

TEST(PackedDataset, RowsAreFullWhereDocumentsAllowIt) {
  const TemporaryFolder folder;
  const auto set = make_set(folder.path(), counting_documents(lengths_of(7, 2000, 60)));
  const PackedDataset packed(whole(set), {.sequence = 64}), alone(whole(set), {.sequence = 64, .share_rows = false});
  const auto filled = [](const PackedDataset& d) { return double(d.num_places()) / double(d.num_samples() * 64); };
  EXPECT_GT(filled(packed), 0.99);
  EXPECT_LT(filled(alone), 0.6);
  EXPECT_EQ(packed.num_places(), alone.num_places());
}

TEST(PackedDataset, StartsPartDocumentsAndPadding) {
  const TemporaryFolder folder;
  // As inputs 4, 2 and 12 places: the longest is cut into 8 and 4.
  const auto set = make_set(folder.path(), counting_documents({5, 3, 13}));
  const PackedDataset packed(whole(set), {.sequence = 8});
  ASSERT_EQ(packed.num_samples(), 3);
  const TestRow second(packed, 1), third(packed, 2);
  EXPECT_EQ(second.inputs, (std::vector<int64_t>{0, 1, 2, 3, 16, 17, 18, 19}));
  EXPECT_EQ(second.targets, (std::vector<int64_t>{1, 2, 3, 4, 17, 18, 19, 20}));
  EXPECT_EQ(second.starts, (std::vector<int64_t>{0, 0, 0, 0, 4, 4, 4, 4}));
  const int64_t no = kIgnoredTarget;
  EXPECT_EQ(third.inputs, (std::vector<int64_t>{5, 6, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(third.targets, (std::vector<int64_t>{6, 7, no, no, no, no, no, no}));
  EXPECT_EQ(third.starts, (std::vector<int64_t>{0, 0, 2, 2, 2, 2, 2, 2}));
  const std::vector<SampleOrigin> origins = packed.describe(0, 1);
  ASSERT_EQ(origins.size(), 2u);
  EXPECT_EQ(origins[1], (SampleOrigin{"set", 2, 2, 16, 4}));
}

TEST(PackedDataset, MaskedTokensAreNoTargetsAndPartsWithoutAnyAreLeftOut) {
  const TemporaryFolder folder;
  const auto set = make_set(folder.path(), {{{1, 2, 3, 4}, {0, 0, 1, 1}}, {{5, 6, 7}, {0, 0, 0}}, {{8, 9}, {1, 1}}},
                            /*with_mask=*/true);
  const PackedDataset packed(whole(set), {.sequence = 4});
  ASSERT_EQ(packed.num_samples(), 1);
  const TestRow row(packed, 0);
  EXPECT_EQ(row.targets, (std::vector<int64_t>{kIgnoredTarget, 3, 4, 9}));
  EXPECT_EQ(packed.supervised_tokens(0, 0), 3);
}

TEST(PackedDataset, NothingToLearnIsRefused) {
  const TemporaryFolder folder;
  const auto set = make_set(folder.path(), counting_documents({1, 1}));
  EXPECT_THROW(PackedDataset(whole(set), {.sequence = 4}), UsageError);
}

TEST(WindowDataset, BordersOfDocumentsAreToldAndNotLearnedWhereDocumentsAreApart) {
  const TemporaryFolder folder;
  const auto set = make_set(folder.path(), counting_documents({5, 3, 1, 11}));
  const WindowOptions options{.sequence = 8, .whole = true};
  const int64_t no = kIgnoredTarget;
  WindowDataset one(whole(set), options);
  const TestRow first(one, 0), second(one, 1);
  EXPECT_EQ(first.starts, (std::vector<int64_t>{0, 0, 0, 0, 0, 5, 5, 5}));
  EXPECT_EQ(first.targets, (std::vector<int64_t>{1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(second.starts, (std::vector<int64_t>{0, 1, 1, 1, 1, 1, 1, 1}));
  auto apart_options = options;
  apart_options.apart = true;
  const WindowDataset apart(whole(set), apart_options);
  EXPECT_EQ(TestRow(apart, 0).targets, (std::vector<int64_t>{1, 2, 3, 4, no, 6, 7, no}));
  EXPECT_EQ(TestRow(apart, 1).targets, (std::vector<int64_t>{no, 10, 11, 12, 13, 14, 15, 16}));
  EXPECT_EQ(apart.supervised_tokens(0, 0), 6);
  EXPECT_EQ(apart.supervised_tokens(0, 1), 7);
  EXPECT_EQ(one.supervised_tokens(0, 0), 8);
  EXPECT_EQ(apart.describe(0, 0).front(), (SampleOrigin{"set", 0, 1, 0, 8}));
}

TEST(WindowDataset, CountsAreThoseOfTheTargetsForAnyMaskAndBorders) {
  const TemporaryFolder folder;
  std::vector<TestDocument> documents = counting_documents(lengths_of(3, 200, 40));
  for (TestDocument& d : documents)
    for (const int32_t id : d.ids) d.mask.push_back(base::mix64(static_cast<uint64_t>(id)) % 3 != 0);
  const auto set = make_set(folder.path(), documents, true);
  for (const bool apart : {false, true}) {
    const WindowDataset windows(whole(set), {.sequence = 37, .seed = 5, .apart = apart});
    for (int64_t i = 0; i < windows.num_samples(); ++i) {
      const TestRow row(windows, i, 3);
      ASSERT_EQ(windows.supervised_tokens(3, i),
                37 - std::count(row.targets.begin(), row.targets.end(), kIgnoredTarget));
    }
  }
}

TEST(TokenRange, KnowsItsDocumentsAndNothingBeyondItsEnds) {
  const TemporaryFolder folder;
  const auto set = make_set(folder.path(), counting_documents({4, 6, 5}));
  const TokenRange range(set, 2, 10, "set");
  EXPECT_EQ(range.document_of(0), 0);
  EXPECT_EQ(range.document_of(1), 0);
  EXPECT_EQ(range.document_of(2), 1);
  EXPECT_EQ(range.document_of(8), 2);
  EXPECT_EQ(range.document_begin(0), 0);
  EXPECT_EQ(range.document_begin(1), 2);
  EXPECT_EQ(range.document_begin(2), 8);
  EXPECT_EQ(range.document_begin(3), 10);
  int64_t beyond[2];
  EXPECT_THROW(range.copy(9, beyond), InternalError);
}

TEST(JoinedDataset, HasTheSamplesOfAllPartsInOrder) {
  const TemporaryFolder folder;
  const auto a = std::make_shared<WindowDataset>(counting_tokens(folder.path(), 33),
                                                 WindowOptions{.sequence = 8, .whole = true}),
             b = std::make_shared<WindowDataset>(counting_tokens(folder.path(), 20),
                                                 WindowOptions{.sequence = 8, .whole = true});
  const JoinedDataset joined({a, b});
  ASSERT_EQ(joined.num_samples(), 7);
  EXPECT_EQ(TestRow(joined, 3).inputs, TestRow(*a, 3).inputs);
  EXPECT_EQ(TestRow(joined, 4).inputs, TestRow(*b, 0).inputs);
  EXPECT_EQ(TestRow(joined, 6).targets, TestRow(*b, 2).targets);
  EXPECT_EQ(joined.supervised_tokens(0, 6), 3);
}

}  // namespace
}  // namespace trireme::data
