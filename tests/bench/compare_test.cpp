#include "trireme/bench/compare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme::bench {
namespace {

using ::testing::HasSubstr;

Report report(std::vector<Row> rows, std::string kind = "ops") {
  Report r{.kind = std::move(kind)};
  r.rows = std::move(rows);
  return r;
}

Row row(std::string name, double seconds, double spread, std::string shape = "1 MiB") {
  return {.name = std::move(name), .shape = std::move(shape), .median_seconds = seconds, .spread = spread};
}

TEST(Compare, MarksOnlyWhatLeavesTheLargerSpread) {
  const Report before = report({row("a", 1.0, 0.05), row("b", 1.0, 0.05), row("c", 1.0, 0.05), row("d", 1.0, 0.01)}),
               after = report({row("d", 1.09, 0.1), row("c", 1.04, 0.01), row("b", 1.2, 0.1), row("a", 0.8, 0.1)});
  const Comparison c = compare(before, after);
  ASSERT_EQ(c.changes.size(), 4u);
  EXPECT_EQ(c.changes[0].kind, Change::Kind::faster);
  EXPECT_DOUBLE_EQ(c.changes[0].ratio, 0.8);
  EXPECT_EQ(c.changes[1].kind, Change::Kind::slower);
  EXPECT_EQ(c.changes[2].kind, Change::Kind::same);
  EXPECT_EQ(c.changes[3].kind, Change::Kind::same);
  EXPECT_DOUBLE_EQ(c.changes[3].spread, 0.1);
}

TEST(Compare, MatchesByNameAndShape) {
  const Report before = report({row("a", 1, 0), row("a", 2, 0, "2 MiB"), row("gone", 1, 0)}),
               after = report({row("a", 2, 0, "2 MiB"), row("a", 1, 0), row("new", 1, 0)});
  const Comparison c = compare(before, after);
  ASSERT_EQ(c.changes.size(), 2u);
  EXPECT_EQ(c.changes[0].ratio, 1);
  EXPECT_EQ(c.changes[1].ratio, 1);
  ASSERT_EQ(c.only_before.size(), 1u);
  EXPECT_EQ(c.only_before[0]->name, "gone");
  ASSERT_EQ(c.only_after.size(), 1u);
  EXPECT_EQ(c.only_after[0]->name, "new");
}

TEST(Compare, RefusesDifferentKindsAndReportsWithoutACommonRow) {
  const Report a = report({row("a", 1, 0)}), b = report({row("b", 1, 0)}), gemm = report({row("a", 1, 0)}, "gemm");
  EXPECT_THROW(compare(a, gemm), UsageError);
  EXPECT_THROW(compare(a, b), UsageError);
  EXPECT_NO_THROW(compare(a, a));
}

TEST(CompareText, CountsAndMarks) {
  const Report before = report({row("a", 1, 0.02), row("b", 1, 0.02)}),
               after = report({row("a", 0.5, 0.02), row("b", 1.01, 0.02)});
  const std::string text = compare_text(before, after);
  EXPECT_THAT(text, HasSubstr("0.500"));
  EXPECT_THAT(text, HasSubstr("faster\n"));
  EXPECT_THAT(text, HasSubstr("1 faster, 0 slower, 1 within their spread"));
}

TEST(CompareFiles, NamesAFileThatIsNotThere) {
  try {
    compare_files("nowhere.json", "nowhere.json");
    FAIL() << "a missing file is refused";
  } catch (const UsageError& e) {
    EXPECT_THAT(e.what(), HasSubstr("nowhere.json"));
  }
}

}  // namespace
}  // namespace trireme::bench
