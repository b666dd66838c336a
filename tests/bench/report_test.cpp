#include "trireme/bench/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "trireme/base/error.h"

namespace trireme::bench {
namespace {

using ::testing::HasSubstr;

Report example() {
  Report r = new_report("gemm", "trireme bench gemm \"llama-32m\"");
  r.limits = {{"fp32 multiply-adds", 100, "GFLOP/s"}};
  Row qkv{.name = "qkv forward",
          .shape = "8 x 4 -> 2",
          .unit = "GFLOP/s",
          .limit = "fp32 multiply-adds",
          .values = {{"busbw GB/s", 12.5}, {"lost %", -0.25}}};
  const double seconds[] = {0.2, 0.1, 0.4, 0.3, 0.5};
  set_times(qkv, seconds, 24);
  r.rows = {qkv, {.name = "barrier", .shape = "2 ranks"}};
  return r;
}

std::string refusal(const std::string& json) {
  try {
    parse_report(json, "a.json");
  } catch (const UsageError& e) {
    return e.what();
  }
  return "";
}

TEST(Report, ARowIsMeasuredAgainstTheLimitFoundBesideIt) {
  Report r = example();
  const double rate = r.rows[0].rate;  // 80
  EXPECT_DOUBLE_EQ(r.limit_rate(r.rows[0]), 100);
  EXPECT_DOUBLE_EQ(r.fraction(r.rows[0]), rate / 100);
  r.rows[0].limit_beside = 160;
  r.rows[1].limit_beside = 1;  // names no limit
  const Report read = parse_report(to_json(r), "a.json");
  for (const Report& each : {r, read}) {
    EXPECT_DOUBLE_EQ(each.limit_rate(each.rows[0]), 160);
    EXPECT_DOUBLE_EQ(each.fraction(each.rows[0]), rate / 160);
    EXPECT_EQ(each.limit_rate(each.rows[1]), 0);
    EXPECT_EQ(each.fraction(each.rows[1]), 0);
  }
  EXPECT_THAT(table_text(read), HasSubstr("160"));
}

TEST(SetTimes, TakesMedianBestAndQuartilesOfUnsortedSeconds) {
  const Row row = example().rows[0];
  EXPECT_DOUBLE_EQ(row.median_seconds, 0.3);
  EXPECT_DOUBLE_EQ(row.best_seconds, 0.1);
  EXPECT_NEAR(row.spread, (0.4 - 0.2) / 0.3, 1e-12);
  EXPECT_DOUBLE_EQ(row.rate, 24 / 0.3);
  EXPECT_EQ(row.samples, 5);
}

TEST(Quantile, LiesBetweenNeighbours) {
  const double values[] = {4, 1, 3, 2};
  EXPECT_DOUBLE_EQ(quantile(values, 0.5), 2.5);
  EXPECT_DOUBLE_EQ(quantile(values, 0), 1);
  EXPECT_DOUBLE_EQ(quantile(values, 1), 4);
  EXPECT_DOUBLE_EQ(quantile({}, 0.5), 0);
}

TEST(Report, ComesBackFromJsonAsItWas) {
  const Report before = example(), after = parse_report(to_json(before), "a.json");
  EXPECT_EQ(after.kind, before.kind);
  EXPECT_EQ(after.command, before.command);
  EXPECT_EQ(after.date, before.date);
  EXPECT_EQ(after.machine, before.machine);
  EXPECT_EQ(after.processor, before.processor);
  EXPECT_EQ(after.cores, before.cores);
  EXPECT_EQ(after.libtorch, before.libtorch);
  EXPECT_EQ(after.trireme, before.trireme);
  ASSERT_EQ(after.rows.size(), 2u);
  const Row &a = before.rows[0], &b = after.rows[0];
  EXPECT_EQ(b.name, a.name);
  EXPECT_EQ(b.shape, a.shape);
  EXPECT_EQ(b.median_seconds, a.median_seconds);
  EXPECT_EQ(b.best_seconds, a.best_seconds);
  EXPECT_EQ(b.spread, a.spread);
  EXPECT_EQ(b.samples, a.samples);
  EXPECT_EQ(b.rate, a.rate);
  EXPECT_EQ(b.unit, a.unit);
  EXPECT_EQ(b.limit, a.limit);
  EXPECT_EQ(b.values, a.values);
  EXPECT_EQ(to_json(after), to_json(before));
}

TEST(Report, SaysItsVersionAndWhatARowReachesOfItsLimit) {
  const Report r = example();
  EXPECT_DOUBLE_EQ(r.fraction(r.rows[0]), 0.8);
  EXPECT_EQ(r.fraction(r.rows[1]), 0);
  const auto j = nlohmann::json::parse(to_json(r));
  EXPECT_EQ(j["format"], "trireme bench");
  EXPECT_EQ(j["version"], 1);
  EXPECT_DOUBLE_EQ(j["rows"][0]["fraction"], 0.8);
  EXPECT_FALSE(j["rows"][1].contains("fraction"));
}

TEST(Report, RefusesWhatIsNoResultInOneSentence) {
  EXPECT_THAT(refusal("not json"), HasSubstr("a.json is no benchmark's result"));
  EXPECT_THAT(refusal("[1]"), HasSubstr("no JSON object"));
  EXPECT_THAT(refusal("{\"format\": \"other\"}"), HasSubstr("format"));
  EXPECT_THAT(refusal("{\"format\": \"trireme bench\", \"version\": 2}"), HasSubstr("version 2"));
  EXPECT_THAT(refusal("{\"format\": \"trireme bench\", \"version\": 1}"), HasSubstr("kind"));
  EXPECT_THAT(refusal("{\"step_seconds\": [1.0]}"), HasSubstr("not found"));
}

TEST(Report, TakesTheJsonOfBenchTrain) {
  const Report r = parse_report(
      R"({"model": "m", "ranks": 2, "strategy": "full_shard", "precision": "bf16-mixed", "backend": "shm",
          "tokens_per_step": 100, "step_seconds": [1.0, 2.0, 3.0], "action_seconds": {"Forward": 0.5},
          "parts": {"products": 0.75}})",
      "t.json");
  EXPECT_EQ(r.kind, "train");
  ASSERT_EQ(r.rows.size(), 3u);
  EXPECT_EQ(r.rows[0].shape, "m, 2 ranks, full_shard, bf16-mixed, shm, 100 tokens");
  EXPECT_DOUBLE_EQ(r.rows[0].rate, 50);
  EXPECT_EQ(r.rows[1].name, "action: Forward");
  EXPECT_DOUBLE_EQ(r.rows[2].median_seconds, 0.75);
  EXPECT_DOUBLE_EQ(r.rows[2].spread, r.rows[0].spread);
}

TEST(Table, PutsUnitsOnNumbersAndLimitsAboveThem) {
  const std::string text = table_text(example());
  EXPECT_THAT(text, HasSubstr("limit    100 GFLOP/s: fp32 multiply-adds\n"));
  EXPECT_THAT(text, HasSubstr("300 ms"));
  EXPECT_THAT(text, HasSubstr("80.0 GFLOP/s"));
  EXPECT_THAT(text, HasSubstr("80 %"));
  EXPECT_THAT(text, HasSubstr("busbw GB/s"));
  EXPECT_THAT(text, HasSubstr("12.5"));
  EXPECT_EQ(text.find(" \n"), std::string::npos) << "blanks at the end of a line";
}

TEST(Texts, KeepThreeDigits) {
  EXPECT_EQ(time_text(4.813e-3), "4.81 ms");
  EXPECT_EQ(time_text(0.9999), "1.00 s");
  EXPECT_EQ(time_text(950e-9), "950 ns");
  EXPECT_EQ(time_text(0), "-");
  EXPECT_EQ(rate_text(223.4), "223");
  EXPECT_EQ(rate_text(12430.2), "12,430");
  EXPECT_EQ(rate_text(0.0412), "0.0412");
  EXPECT_EQ(rate_text(-1.5), "-1.50");
}

}  // namespace
}  // namespace trireme::bench
