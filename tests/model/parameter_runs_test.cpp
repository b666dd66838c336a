#include <gtest/gtest.h>

#include <tuple>

#include "trireme/base/error.h"
#include "trireme/model/initialize.h"
#include "trireme/model/unit.h"

namespace trireme::model {
namespace {

using Runs = std::vector<std::tuple<int64_t, int64_t, int64_t>>;

Runs runs_of(const ParameterSpec& p, int64_t begin, int64_t end) {
  Runs runs;
  for_each_run(p, begin, end,
               [&](int64_t local, int64_t full, int64_t count) { runs.emplace_back(local, full, count); });
  return runs;
}

TEST(ForEachRun, AnUndividedParameterIsOneRun) {
  const ParameterSpec p{.name = "w", .shape = {3, 4}};
  EXPECT_EQ(runs_of(p, 2, 9), (Runs{{2, 2, 7}}));
  EXPECT_EQ(runs_of(p, 5, 5), Runs{});
}

TEST(ForEachRun, RowsOfAPaddedVocabularyEndWithTheVocabulary) {
  // Second half of 5 rows padded to 6.
  const ParameterSpec p{.name = "w", .shape = {3, 2}, .full_shape = {5, 2}, .split_dim = 0, .pieces = {{3, 6}}};
  EXPECT_EQ(runs_of(p, 0, 6), (Runs{{0, 6, 4}}));
  EXPECT_EQ(runs_of(p, 3, 6), (Runs{{3, 9, 1}}));
  const ParameterSpec beyond{.name = "w", .shape = {2, 2}, .full_shape = {5, 2}, .split_dim = 0, .pieces = {{6, 8}}};
  EXPECT_EQ(runs_of(beyond, 0, 4), Runs{});
}

TEST(ForEachRun, PiecesOfTheLastDimensionRepeatInEveryRow) {
  // Columns 1 and 4-5 of 2 x 6.
  const ParameterSpec p{.name = "w", .shape = {2, 3}, .full_shape = {2, 6}, .split_dim = 1, .pieces = {{1, 2}, {4, 6}}};
  EXPECT_EQ(runs_of(p, 0, 6), (Runs{{0, 1, 1}, {1, 4, 2}, {3, 7, 1}, {4, 10, 2}}));
  EXPECT_EQ(runs_of(p, 2, 4), (Runs{{2, 5, 1}, {3, 7, 1}}));
}

TEST(InitializeHeld, TakesTheElementsOfTheWholeParameterAndZerosThePadding) {
  ParameterSpec p{.name = "w", .shape = {5, 2}};
  std::vector<double> whole(10), held(6, 9.0);
  initialize_held(whole.data(), p, 3, 0, 10);
  p.full_shape = p.shape;
  p.shape = {3, 2};
  p.split_dim = 0;
  p.pieces = {{3, 6}};
  initialize_held(held.data(), p, 3, 0, 6);
  EXPECT_EQ(held, (std::vector<double>{whole[6], whole[7], whole[8], whole[9], 0, 0}));
  initialize_held(held.data(), p, 3, 1, 5);
  EXPECT_EQ(held[0], whole[7]);
  EXPECT_EQ(held[3], 0);
}

TEST(ContextPositions, RingPairsAnEarlyAndALateChunk) {
  const Parallel ring{.cp_rank = 1, .cp_size = 2};
  EXPECT_EQ(context_positions(ring, 8), (std::vector<int64_t>{2, 3, 4, 5}));
  EXPECT_EQ(context_positions({.cp_rank = 0, .cp_size = 2}, 8), (std::vector<int64_t>{0, 1, 6, 7}));
  EXPECT_EQ(context_positions({.cp_rank = 1, .cp_size = 2, .context = Context::ulysses}, 6),
            (std::vector<int64_t>{3, 4, 5}));
  EXPECT_EQ(context_positions({}, 3), (std::vector<int64_t>{0, 1, 2}));
  EXPECT_THROW(context_positions(ring, 6), UsageError);
}

}  // namespace
}  // namespace trireme::model
