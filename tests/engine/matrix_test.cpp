// Every parallelism with every other: each combination equals one rank or is refused before the start.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "matrix.h"

namespace trireme::engine {
namespace {

constexpr int kRanks = 8;
const model::Precision kFloat64{at::kDouble, at::kDouble}, kFloat32{at::kFloat, at::kFloat};

struct Counts {
  int equal = 0, refused = 0, wrong = 0;
};

void judge_all(const std::vector<MatrixCell>& cells, const model::Precision& precision, double bound) {
  Counts n;
  std::map<std::string, int> reasons;
  for (const MatrixCell& cell : cells) {
    SCOPED_TRACE(cell.name());
    Verdict v;
    ASSERT_NO_THROW(v = judge(cell, precision));
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

TEST(MatrixSlow, EveryCombinationEqualsOneRankInFloat64OrIsRefused) {
  if (std::getenv("TRIREME_SLOW") == nullptr) GTEST_SKIP() << "the full product runs in make test-slow";
  judge_all(all_cells(kRanks), kFloat64, 1e-10);
}

}  // namespace
}  // namespace trireme::engine
