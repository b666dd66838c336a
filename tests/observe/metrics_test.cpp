#include "trireme/observe/metrics.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "trireme/base/files.h"

namespace trireme::observe {
namespace {

class MetricsTest : public ::testing::Test {
 protected:
  MetricsTest() {
    std::string name = (std::filesystem::temp_directory_path() / "trireme-metrics-XXXXXX").string();
    folder = ::mkdtemp(name.data());
    path = folder / "out" / "metrics.jsonl";
  }
  ~MetricsTest() override { std::filesystem::remove_all(folder); }

  void write_steps(int64_t first, int64_t last, int64_t resumed_step) {
    MetricsWriter writer(path, resumed_step);
    for (int64_t step = first; step <= last; ++step)
      writer.append({.step = step, .loss = 1.0 / static_cast<double>(step)});
  }
  std::vector<int64_t> steps() {
    std::vector<int64_t> result;
    for (const auto& row : read_metrics(path)) result.push_back(row.step);
    return result;
  }

  std::filesystem::path folder, path;
};

TEST_F(MetricsTest, ALineHasTheDocumentedKeys) {
  const MetricsRow row{.step = 3,
                       .tokens = 768,
                       .loss = 1.5,
                       .val_loss = 1.25,
                       .grad_norm = 0.5,
                       .lr = 1e-3,
                       .tokens_per_second = 100,
                       .peak_fraction = 0.75,
                       .seconds = 2,
                       .rss_bytes = 4096,
                       .shared_bytes = 1024};
  EXPECT_EQ(to_json(row),
            R"({"step":3,"tokens":768,"loss":1.5,"val_loss":1.25,"grad_norm":0.5,"lr":0.001,"tokens_per_second":100.0,)"
            R"("peak_fraction":0.75,"seconds":2.0,"rss_bytes":4096,"shared_bytes":1024})");
  EXPECT_EQ(to_json({.step = 3}),
            R"({"step":3,"tokens":0,"grad_norm":0.0,"lr":0.0,"tokens_per_second":0.0,"seconds":0.0,"rss_bytes":0})");
}

TEST_F(MetricsTest, WhatIsWrittenIsReadBackExactly) {
  MetricsRow row{.step = 3,
                 .tokens = int64_t{1} << 60,
                 .loss = 0.1 + 0.2,
                 .val_loss = 1e-300,
                 .lr = 1.0 / 3,
                 .peak_fraction = 0.7,
                 .shared_bytes = 5};
  MetricsWriter(path, 0).append(row);
  const auto back = read_metrics(path);
  ASSERT_EQ(back.size(), 1u);
  EXPECT_EQ(to_json(back[0]), to_json(row));
  EXPECT_EQ(back[0].loss, row.loss);
  EXPECT_EQ(back[0].tokens, row.tokens);
}

TEST_F(MetricsTest, ALossThatIsNotFiniteIsNullAndComesBackAsNan) {
  MetricsWriter(path, 0).append({.step = 1, .loss = INFINITY, .grad_norm = NAN});
  const std::string line = base::read_file(path);
  EXPECT_TRUE(nlohmann::json::parse(line).at("loss").is_null());
  EXPECT_TRUE(std::isnan(read_metrics(path).at(0).loss.value()));
}

TEST_F(MetricsTest, AStepThatLearnsFromNoTokenHasNoLoss) {
  MetricsWriter(path, 0).append({.step = 1});
  const MetricsRow back = read_metrics(path).at(0);
  EXPECT_EQ(back.loss, std::nullopt);
  for (const base::Measured& number : numbers_of(back)) EXPECT_NE(number.name, "loss") << "a point in TensorBoard";
}

TEST_F(MetricsTest, EveryLineIsInTheFileAtOnce) {
  MetricsWriter writer(path, 0);
  for (int64_t step = 1; step <= 3; ++step) {
    writer.append({.step = step});
    EXPECT_EQ(static_cast<int64_t>(steps().size()), step);
  }
}

TEST_F(MetricsTest, AResumedRunDropsTheStepsItDoesAgain) {
  write_steps(1, 10, 0);
  write_steps(7, 12, 6);
  EXPECT_EQ(steps(), (std::vector<int64_t>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}));
}

TEST_F(MetricsTest, AnEvaluationThatIsMadeUpJoinsTheRowOfItsStep) {
  write_steps(1, 2, 0);
  MetricsWriter writer(path, 2);
  writer.append({.step = 3, .loss = 1.0 / 3, .rss_bytes = 4096, .shared_bytes = 1024});
  base::StepEvent found{.step = 3, .val_loss = 0.5, .measures = {{"val_accuracy", 1}}};
  writer.append(metrics_row(joined_with_row(found, path)));
  writer.append({.step = 4});
  EXPECT_EQ(steps(), (std::vector<int64_t>{1, 2, 3, 4}));
  const MetricsRow row = read_metrics(path)[2];
  EXPECT_EQ(row.loss, 1.0 / 3);
  EXPECT_EQ(row.val_loss, 0.5);
  EXPECT_EQ(row.measures.size(), 1u);
  EXPECT_EQ(row.rss_bytes, 4096);
  EXPECT_EQ(row.shared_bytes, 1024);
  found.step = 9;
  EXPECT_EQ(joined_with_row(found, path).loss, std::nullopt) << "there is no such row";
}

TEST_F(MetricsTest, ANewRunStartsAnEmptyFile) {
  write_steps(1, 10, 0);
  write_steps(1, 2, 0);
  EXPECT_EQ(steps(), (std::vector<int64_t>{1, 2}));
}

TEST_F(MetricsTest, ALastLineCutShortIsLeftOutAndAResumeGoesOnCleanly) {
  write_steps(1, 5, 0);
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 20);
  EXPECT_EQ(steps(), (std::vector<int64_t>{1, 2, 3, 4}));
  write_steps(5, 6, 4);
  EXPECT_EQ(steps(), (std::vector<int64_t>{1, 2, 3, 4, 5, 6}));
}

TEST_F(MetricsTest, AForeignLineIsNamedByItsNumber) {
  write_steps(1, 2, 0);
  std::ofstream(path, std::ios::app) << "not json\n" << to_json({.step = 3}) << "\n";
  try {
    read_metrics(path);
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("metrics.jsonl:3 is not a row"), std::string::npos) << error.what();
  }
}

TEST_F(MetricsTest, AResumeWithoutAFileStartsOne) {
  write_steps(5, 6, 4);
  EXPECT_EQ(steps(), (std::vector<int64_t>{5, 6}));
}

TEST_F(MetricsTest, TheSinkKeepsIntervalsEvaluationsAndTheLastStep) {
  MetricsWriter writer(path, 0);
  MetricsSink sink(0, false, 10, [&](const MetricsRow& row) { writer.append(row); });
  for (int64_t step = 1; step <= 25; ++step) {
    base::StepEvent event;
    event.step = step;
    event.max_steps = 25;
    if (step == 13) event.val_loss = 2;
    event.is_kept = step == 17;  // an evaluation by rewards, or the end of an epoch
    sink.step(event);
  }
  EXPECT_EQ(steps(), (std::vector<int64_t>{10, 13, 17, 20, 25}));
}

TEST_F(MetricsTest, WhereARunEndsEarlyItsNewestStepIsWrittenAtTheEnd) {
  MetricsWriter writer(path, 0);
  MetricsSink sink(0, false, 10, [&](const MetricsRow& row) { writer.append(row); });
  for (const int64_t step : {9, 10, 11, 12}) sink.step({.step = step, .max_steps = 25});
  sink.finish();
  sink.finish();
  EXPECT_EQ(steps(), (std::vector<int64_t>{10, 12}));
}

TEST_F(MetricsTest, ThatEvaluationsBeginAnewIsWrittenWithTheFirstStep) {
  MetricsWriter writer(path, 0);
  MetricsSink sink(4, true, 10, [&](const MetricsRow& row) { writer.append(row); });
  for (const int64_t step : {5, 6, 7}) sink.step({.step = step, .max_steps = 25});
  const std::vector<MetricsRow> rows = read_metrics(path);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].step, 5);
  EXPECT_TRUE(rows[0].measured_anew);
  EXPECT_TRUE(has_later_rows(path, 4));
  EXPECT_FALSE(has_later_rows(path, 5));
}

// An evaluation that a stop had cut is made up by the next start.
TEST_F(MetricsTest, ARowThatIsWrittenAnewKeepsItsMarksOfAResume) {
  {
    MetricsWriter writer(path, 0);
    writer.append({.step = 4});
    writer.append({.step = 5, .resumed = 4, .measured_anew = true});
  }
  MetricsWriter writer(path, 5);
  MetricsSink sink(5, false, 1, [&](const MetricsRow& row) { writer.append(row); });
  for (const int64_t step : {5, 6}) sink.step({.step = step});
  const std::vector<MetricsRow> rows = read_metrics(path);
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[1].resumed, 4);
  EXPECT_TRUE(rows[1].measured_anew);
  EXPECT_EQ(rows[2].resumed, 5);
  EXPECT_FALSE(rows[2].measured_anew);
}

}  // namespace
}  // namespace trireme::observe
