// Every parallelism with every other: each combination equals one rank or is refused before the start.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <random>

#include "matrix.h"
#include "support_page.h"

namespace trireme::engine {
namespace {

constexpr int kRanks = 8;

struct Counts {
  int equal = 0, refused = 0, wrong = 0;
};

void judge_all(const std::vector<MatrixCell>& cells, const model::Precision& precision, double bound,
               bool gives_up = false) {
  Counts n;
  std::map<std::string, int> reasons;
  for (const MatrixCell& cell : cells) {
    if (const int done = n.equal + n.refused + n.wrong; done > 0 && done % 500 == 0) {
      fmt::print("{} of {}: {} equal, {} refused, {} wrong\n", done, cells.size(), n.equal, n.refused, n.wrong);
      std::fflush(stdout);
    }
    SCOPED_TRACE(cell.name());
    Verdict v;
    ASSERT_NO_THROW(v = judge(cell, precision, "threads", gives_up));
    if (v.refused) {
      ++n.refused;
      ++reasons[v.reason];
      EXPECT_FALSE(v.reason.empty());
      continue;
    }
    const bool right = v.worst() <= bound && v.memory_exact;  // NaN is not <= bound
    EXPECT_TRUE(right) << "loss " << v.loss << " norm " << v.norm << " gradients " << v.gradients << " parameters "
                       << v.parameters << " memory " << v.memory_exact;
    ++(right ? n.equal : n.wrong);
  }
  fmt::print("{} combinations: {} equal to one rank, {} refused, {} wrong\n", cells.size(), n.equal, n.refused,
             n.wrong);
  for (const auto& [reason, count] : reasons) fmt::print("  {:>6} refused: {}\n", count, reason);
}

uint64_t seed() {
  const char* given = std::getenv("TRIREME_SEED");
  return given ? std::strtoull(given, nullptr, 10) : 1;
}

TEST(Matrix, EveryPairOfPropertiesEqualsOneRankInFloat64OrIsRefused) {
  judge_all(pairwise_cells(all_cells(kRanks), seed()), kFloat64, 1e-10);
}

TEST(Matrix, ASampleEqualsOneRankInFloat32OrIsRefused) {
  std::vector<MatrixCell> cells = pairwise_cells(all_cells(kRanks), seed() + 1);
  cells.resize(std::min<size_t>(cells.size(), 20));
  judge_all(cells, kFloat32, 2e-6);
}

// Gradients may have been begun, weights gathered and messages be under way: the step that follows knows nothing of it.
TEST(Matrix, StepsThatAreGivenUpHalfWayLeaveNoTrace) {
  std::vector<MatrixCell> cells = pairwise_cells(all_cells(kRanks), seed() + 3);
  if (std::getenv("TRIREME_SLOW") == nullptr) cells.resize(std::min<size_t>(cells.size(), 15));
  judge_all(cells, kFloat64, 1e-10, /*gives_up=*/true);
}

// What Llama's relatives have beside it is inside units, which know nothing of strategies and pipelines: a sample.
TEST(Matrix, ASampleOfLlamasRelativesEqualsOneRankInFloat64OrIsRefused) {
  std::vector<MatrixCell> cells;
  for (MatrixCell cell : pairwise_cells(all_cells(kRanks), seed() + 2)) {
    if (cell.gpt2) continue;
    cell.relative = cells.size() % 2 == 0 ? "gemma3" : "qwen3";
    cell.dropping = cells.size() % 4 < 2;
    cells.push_back(cell);
    if (cells.size() == 40) break;
  }
  judge_all(cells, kFloat64, 1e-10);
}

// A column for each family: the same with what it has beside Llama, on a frozen base with adapters in every fifth cell,
// with dropout in every second.
TEST(Matrix, ASampleOfEveryFamilyEqualsOneRankInFloat64OrIsRefused) {
  const size_t each = std::getenv("TRIREME_SLOW") == nullptr ? 6 : 40;
  uint64_t number = 10;
  for (const char* family : {"gemma", "smollm3", "granite", "starcoder2", "phi3", "gpt_neox", "olmo2"}) {
    std::vector<MatrixCell> cells;
    for (MatrixCell cell : pairwise_cells(all_cells(kRanks), seed() + number)) {
      if (cell.gpt2) continue;
      cell.relative = family;
      cell.adapted = cells.size() % 5 == 4;
      cell.dropping = cells.size() % 2 == 0;
      cells.push_back(cell);
      if (cells.size() == each) break;
    }
    ++number;
    judge_all(cells, kFloat64, 1e-10);
  }
}

// Models that classify texts: encoders of both kinds, what BERT has around them, and a decoder with such a head. Every
// second cell has dropout.
TEST(Matrix, ASampleOfModelsWithLabelsEqualsOneRankInFloat64OrIsRefused) {
  const size_t each = std::getenv("TRIREME_SLOW") == nullptr ? 7 : 60;
  uint64_t number = 30;
  for (const char* model : {"bert", "roberta", "distilbert", "encoder", "encoder post", "llama"}) {
    std::vector<MatrixCell> cells;
    for (MatrixCell cell : pairwise_cells(all_cells(kRanks), seed() + number)) {
      if (cell.gpt2 || (cell.cp > 1 && cells.size() % 7 != 3)) continue;  // refused
      cell.relative = std::string("labels ") + model;
      cell.dropping = cells.size() % 2 == 0;
      cells.push_back(cell);
      if (cells.size() == each) break;
    }
    ++number;
    judge_all(cells, kFloat64, 1e-10);
  }
}

// Adapters are parameters of units and lie in groups of their own; the base's groups have no gradient. Every second
// cell has dropout of the model too, whose masks no division of the work changes.
TEST(Matrix, ASampleWithAdaptersEqualsOneRankInFloat64OrIsRefused) {
  std::vector<MatrixCell> cells = pairwise_cells(all_cells(kRanks), seed() + 4);
  if (std::getenv("TRIREME_SLOW") == nullptr) cells.resize(std::min<size_t>(cells.size(), 25));
  for (size_t i = 0; i < cells.size(); ++i) cells[i].adapted = true, cells[i].dropping = i % 2 == 0;
  judge_all(cells, kFloat64, 1e-10);
}

// A group's optimizer step in the middle of a list: whatever reads its weights stands before it. Every third cell is on
// a frozen base with adapters.
TEST(Matrix, ASampleThatStepsInsideTheBackwardPassEqualsOneRankInFloat64OrIsRefused) {
  std::vector<MatrixCell> cells = pairwise_cells(all_cells(kRanks), seed() + 5);
  if (std::getenv("TRIREME_SLOW") == nullptr) cells.resize(std::min<size_t>(cells.size(), 25));
  for (size_t i = 0; i < cells.size(); ++i) cells[i].steps_in_backward = true, cells[i].adapted = i % 3 == 2;
  judge_all(cells, kFloat64, 1e-10);
}

const std::string kSupportPage = TRIREME_SOURCE_DIR "/docs/support.md";

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The quick check: as many combinations as the page says, and the sentences of a sample of refusals stand in it.
TEST(Matrix, TheSupportPageKnowsEveryRefusal) {
  const std::string page = text_of(kSupportPage);
  std::vector<MatrixCell> cells = all_cells(kRanks);
  EXPECT_THAT(page, testing::HasSubstr(fmt::format("**{} combinations", cells.size())));
  std::mt19937_64 random(seed());
  std::shuffle(cells.begin(), cells.end(), random);
  cells.resize(1500);
  int number = 0;
  for (const MatrixCell& cell : cells) {
    const std::string refusal = refusal_of(cell);
    if (refusal.empty() && number++ % 10 != 0) continue;  // to plan them all again with adapters would take longer
    EXPECT_THAT(page, testing::HasSubstr(rule_of(refusal))) << cell.name();
    MatrixCell more = cell;
    more.adapted = more.dropping = true;
    EXPECT_EQ(refusal_of(more), refusal) << cell.name();
  }
}

// TRIREME_UPDATE_DOCS=1 writes the page.
TEST(MatrixSlow, TheSupportPageIsCurrent) {
  const bool update = std::getenv("TRIREME_UPDATE_DOCS") != nullptr;
  if (std::getenv("TRIREME_SLOW") == nullptr && !update)
    GTEST_SKIP() << "all combinations are planned in make test-slow";
  const std::string page = support_page(all_cells(kRanks));
  if (update) std::ofstream(kSupportPage) << page;
  EXPECT_EQ(text_of(kSupportPage), page) << "out of date: run matrix_tests with TRIREME_UPDATE_DOCS=1";
}

TEST(MatrixSlow, EveryCombinationEqualsOneRankInFloat64OrIsRefused) {
  if (std::getenv("TRIREME_SLOW") == nullptr) GTEST_SKIP() << "the full product runs in make test-slow";
  std::vector<MatrixCell> cells = all_cells(kRanks);
  // With fewer than four data ranks, a hybrid's job is that of zero3 or zero2.
  std::erase_if(
      cells, [](const MatrixCell& c) { return c.strategy.starts_with("hybrid") && c.tp * c.pp * c.cp > kRanks / 4; });
  if (const char* sample = std::getenv("TRIREME_SAMPLE")) {  // a part of the hours that all take
    std::mt19937_64 random(seed());
    std::shuffle(cells.begin(), cells.end(), random);
    cells.resize(std::min<size_t>(cells.size(), std::strtoull(sample, nullptr, 10)));
  }
  judge_all(cells, kFloat64, 1e-10);
}

}  // namespace
}  // namespace trireme::engine
