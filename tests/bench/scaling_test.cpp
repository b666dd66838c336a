#include "trireme/bench/scaling.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"

namespace trireme::bench {
namespace {

using ::testing::HasSubstr;

ScalingRun run(int64_t ranks, double step, std::vector<std::pair<std::string, double>> parts) {
  return {.ranks = ranks, .step_seconds = {step}, .tokens_per_step = 100 * ranks, .parts = std::move(parts)};
}

TEST(ScalingRun, ReadsBenchTrainAndLeavesHiddenCommunicationOut) {
  const ScalingRun r = parse_scaling_run(R"({"ranks": 2, "step_seconds": [1.0], "tokens_per_step": 64,
      "parts": {"products": 0.7, "communication_hidden": 0.2, "idle": 0.1}})",
                                         "a.json");
  EXPECT_EQ(r.ranks, 2);
  EXPECT_EQ(r.tokens_per_step, 64);
  EXPECT_EQ(r.parts, (std::vector<std::pair<std::string, double>>{{"products", 0.7}, {"idle", 0.1}}));
}

TEST(ScalingRun, NamesTheKeyThatIsMissing) {
  try {
    parse_scaling_run(R"({"ranks": 2, "step_seconds": [1.0], "tokens_per_step": 64})", "a.json");
    FAIL() << "a result without parts is refused";
  } catch (const UsageError& e) {
    EXPECT_THAT(e.what(), HasSubstr("a.json has no key \"parts\""));
  }
  EXPECT_THROW(parse_scaling_run("{", "a.json"), UsageError);
}

TEST(ScalingPoints, CountEfficiencyAgainstRanksAndAgainstCores) {
  const auto points = scaling_points(
      {run(1, 1.0, {{"products", 0.9}, {"idle", 0.1}}), run(2, 1.25, {{"products", 1.0}, {"idle", 0.25}}),
       run(4, 2.5, {{"products", 2.0}, {"idle", 0.5}})},
      2);
  EXPECT_DOUBLE_EQ(points[0].efficiency, 1);
  EXPECT_DOUBLE_EQ(points[1].tokens_per_second, 160);
  EXPECT_DOUBLE_EQ(points[1].efficiency, 0.8);
  EXPECT_DOUBLE_EQ(points[1].core_efficiency, 0.8);
  EXPECT_DOUBLE_EQ(points[2].efficiency, 0.4);
  EXPECT_DOUBLE_EQ(points[2].core_efficiency, 0.8);  // four ranks have two cores
  EXPECT_DOUBLE_EQ(points[2].shared, 0.5);
  EXPECT_DOUBLE_EQ(points[1].shared, 0);
  ASSERT_EQ(points[1].lost.size(), 2u);
  EXPECT_NEAR(points[1].lost[0].second, 0.1 / 1.25, 1e-12);
  EXPECT_NEAR(points[1].lost[1].second, 0.15 / 1.25, 1e-12);
  // What is lost by cause is what efficiency lacks.
  EXPECT_NEAR(points[1].lost[0].second + points[1].lost[1].second, 1 - points[1].efficiency, 1e-12);
}

// The parts are those of one step, so that step is the median: of two, the longer one.
TEST(ScalingPoints, HaveBenchTrainsMedian) {
  ScalingRun two = run(1, 0, {{"products", 3.0}});
  two.step_seconds = {3.0, 1.0};
  const auto points = scaling_points({two}, 1);
  EXPECT_DOUBLE_EQ(points[0].tokens_per_second, 100.0 / 3);
  Report report{.kind = "scaling"};
  add_rows(report, "m", points);
  EXPECT_EQ(report.rows[0].median_seconds, 3);
  EXPECT_EQ(report.rows[0].best_seconds, 1);
  EXPECT_NEAR(report.fraction(report.rows[0]), 1, 1e-12);
  EXPECT_THROW(parse_scaling_run(R"({"ranks": 2, "step_seconds": [], "tokens_per_step": 64, "parts": {}})", "a.json"),
               UsageError);
}

TEST(ScalingPoints, BecomeRowsBesideWhatTheCoresAllow) {
  Report report{.kind = "scaling"};
  add_rows(report, "m", scaling_points({run(1, 1.0, {{"idle", 0}}), run(2, 1.25, {{"idle", 0.25}})}, 2));
  ASSERT_EQ(report.rows.size(), 2u);
  EXPECT_NEAR(report.fraction(report.rows[0]), 1, 1e-12);
  EXPECT_NEAR(report.fraction(report.rows[1]), 0.8, 1e-12);
  EXPECT_EQ(report.rows[1].shape, "m, 2 ranks x 1 thread");
  EXPECT_EQ(report.rows[1].values[2].first, "lost to idle %");
  EXPECT_NEAR(report.rows[1].values[2].second, 20, 1e-9);
}

TEST(ScalingPicture, ShowsEachRunAndEscapesItsTitle) {
  const auto points = scaling_points(
      {run(1, 1.0, {{"products", 1.0}}), run(2, 1.25, {{"products", 1.25}}), run(4, 0.9, {{"products", 0.9}})}, 8);
  const std::string svg = scaling_svg("a < b & c", points);
  EXPECT_THAT(svg, HasSubstr("a &lt; b &amp; c"));
  EXPECT_EQ(svg.find("a < b"), std::string::npos);
  EXPECT_THAT(svg, HasSubstr(">2 ranks<"));
  EXPECT_THAT(svg, HasSubstr("160 tokens/s, 80.0 %"));
  EXPECT_THAT(svg, HasSubstr("products: 20.0 %"));
  EXPECT_EQ(svg.find("width=\"-"), std::string::npos) << "a loss below 0 draws nothing";
  EXPECT_TRUE(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
}

}  // namespace
}  // namespace trireme::bench
