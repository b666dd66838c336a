#include <algorithm>

#include "trireme/shard/flat_layout.h"

#include <gtest/gtest.h>

namespace trireme::shard {
namespace {

FlatLayout example() {
  return FlatLayout("block 0", {{"norm", {100}, false, false},
                                {"q", {64, 100}, true, false},
                                {"k", {32, 100}, true, true},
                                {"down", {100, 77}, true, false}});
}

TEST(FlatLayout, TensorsLieApartOnCacheLinesAndJoinedOnesWithoutAGap) {
  const FlatLayout layout = example();
  const auto& t = layout.tensors();
  EXPECT_EQ(t[0].offset, 0);
  EXPECT_EQ(t[1].offset, 128);
  EXPECT_EQ(t[2].offset, t[1].offset + 6400);
  EXPECT_EQ(t[3].offset % 64, 0);
  EXPECT_GE(t[3].offset, t[2].offset + t[2].numel);
  EXPECT_EQ(layout.numel() % kBlockElements, 0);
  EXPECT_GE(layout.numel(), t[3].offset + t[3].numel);
}

TEST(FlatLayout, ShardsAreWholeBlocksThatCoverEverythingOnceForAnyNumberOfRanks) {
  const FlatLayout layout = example();
  for (int size : {1, 2, 3, 4, 5, 8, 64}) {
    int64_t at = 0;
    for (int rank = 0; rank < size; ++rank) {
      const Range r = layout.owned(rank, size);
      EXPECT_EQ(r.begin, at);
      EXPECT_EQ(r.begin % kBlockElements, 0);
      EXPECT_EQ(r.size(), layout.counts(size)[rank]);
      at = r.end;
    }
    EXPECT_EQ(at, layout.numel());
  }
}

TEST(FlatLayout, ShardsDifferByAtMostOneBlock) {
  const FlatLayout layout("g", {{"w", {40 * 4096 + 1}, true, false}});
  for (int size : {2, 3, 7, 16}) {
    const auto counts = layout.counts(size);
    const auto [low, high] = std::minmax_element(counts.begin(), counts.end());
    EXPECT_LE(*high - *low, kBlockElements);
  }
}

TEST(FlatLayout, WholeTensorsHaveOneOwnerAndFinerDivisionsNest) {
  const FlatLayout layout("g",
                          {{"q", {64, 100}, true, false},
                           {"k", {32, 100}, true, true},
                           {"norm", {100}, false, false},
                           {"down", {100, 770}, true, false},
                           {"up", {30, 770}, true, false}},
                          Cut::tensors);
  for (const int size : {1, 2, 3, 4, 8}) {
    int64_t at = 0;
    for (int rank = 0; rank < size; ++rank) {
      const Range r = layout.owned(rank, size);
      EXPECT_EQ(r.begin, at);
      at = r.end;
      for (const FlatTensor& t : layout.tensors()) {
        const bool apart = t.offset + t.numel <= r.begin || t.offset >= r.end;
        EXPECT_TRUE(apart || (t.offset >= r.begin && t.offset + t.numel <= r.end)) << t.name << " of " << size;
      }
      EXPECT_EQ(layout.owned(2 * rank, 2 * size).begin, r.begin);
      EXPECT_EQ(layout.owned(2 * rank + 1, 2 * size).end, r.end);
    }
    EXPECT_EQ(at, layout.numel());
  }
}

}  // namespace
}  // namespace trireme::shard
