// Each bottleneck is made in figures of two ranks; the profile must name it first.
#include "trireme/observe/diagnosis.h"

#include <gtest/gtest.h>

#include <array>
#include <nlohmann/json.hpp>

namespace trireme::observe {
namespace {

using base::Activity;

/// Ten steps of 100 ms on two ranks, in which nothing stands out.
struct Job {
  RunFacts facts{.steps = 10,
                 .first_step = 4,
                 .tokens_per_step = 4096,
                 .samples_per_step = 8,
                 .micro_batches = 4,
                 .micro_batch_tokens = 1024,
                 .flops_per_step = 5e9,
                 .product_flops_per_step = 4e9,
                 .peak_flops = 1e11,
                 .save_interval = 100,
                 .evaluation_interval = 100,
                 .planned_bytes = 1 << 20};
  std::array<RankWindow, 2> ranks;

  Job() {
    for (size_t i = 0; i < ranks.size(); ++i) {
      ranks[i].rank = double(i);
      ranks[i].seconds = ranks[i].in_steps = 1;
      of(i, Activity::products) = 0.8;
      of(i, Activity::attention) = 0.1;
      of(i, Activity::elementwise) = 0.05;
      of(i, Activity::communication) = 0.02;
      of(i, Activity::optimizer) = 0.02;
      of(i, Activity::data) = 0.01;
    }
  }
  double& of(size_t rank, Activity activity) { return ranks[rank].causes[static_cast<size_t>(activity)]; }
  /// Time of a cause on a rank, which makes its window longer.
  void add(size_t rank, Activity activity, double seconds) {
    of(rank, activity) += seconds;
    ranks[rank].in_steps += seconds;
    ranks[rank].seconds += seconds;
  }
  std::string first() const {
    const auto findings = diagnose(facts, ranks);
    return findings.empty() ? "" : findings.front().cause;
  }
  double seconds_of_first() const { return diagnose(facts, ranks).front().seconds; }
  std::string advice() const { return diagnose(facts, ranks).front().advice; }
};

TEST(Diagnosis, FindsNothingInAGoodRun) {
  const Job run;
  EXPECT_EQ(run.first(), "");
  EXPECT_NE(profile_text(run.facts, run.ranks, "", "").find("nothing that a setting would change"), std::string::npos);
}

TEST(Diagnosis, SlowLoader) {
  Job run;
  run.facts.data_workers = 1;
  run.add(0, Activity::data, 0.3);
  run.add(1, Activity::communication, 0.3);  // the other rank waits for the first
  EXPECT_EQ(run.first(), "data");
  EXPECT_NEAR(run.seconds_of_first(), 0.031, 1e-9);
  EXPECT_NE(run.advice().find("--data.num_workers 2"), std::string::npos);
}

TEST(Diagnosis, SlowDisk) {
  Job run;
  run.add(0, Activity::data, 0.3);
  run.add(1, Activity::communication, 0.3);
  run.ranks[0].disk = 0.25;
  EXPECT_EQ(run.first(), "disk");
}

TEST(Diagnosis, SlowLink) {
  Job run;
  for (const size_t r : {0, 1}) run.add(r, Activity::communication, 0.4);
  EXPECT_EQ(run.first(), "communication");
  EXPECT_NEAR(run.seconds_of_first(), 0.042, 1e-9);
  EXPECT_TRUE(run.advice().starts_with("communicate less often with a larger --train.global_batch_size"));
  run.facts.sent_each_micro_batch = 1;  // then a larger step sends as much for a token
  EXPECT_NE(run.advice().find("raise --train.micro_batch_size"), std::string::npos);
}

TEST(Diagnosis, ValuesOnASlowDisk) {
  Job run;
  for (const size_t r : {0, 1}) run.add(r, Activity::offload, 0.4);
  EXPECT_EQ(run.first(), "offload");
  EXPECT_NE(run.advice().find("--offload.ratio"), std::string::npos);
}

TEST(Diagnosis, ThrottledRank) {
  Job run;
  run.add(1, Activity::products, 0.3);
  run.ranks[1].throttled = 0.28;
  run.add(0, Activity::communication, 0.3);
  EXPECT_EQ(run.first(), "slow rank");
  EXPECT_NE(run.advice().find("quota"), std::string::npos);
}

// Its share of a core, which the quota sets, is that time once more.
TEST(Diagnosis, ThrottledRankIsSaidOnce) {
  Job run;
  run.add(1, Activity::products, 0.3);
  run.ranks[1].throttled = run.ranks[1].lacking = 0.31, run.ranks[1].core_share = 0.7;
  run.add(0, Activity::communication, 0.3);
  const auto findings = diagnose(run.facts, run.ranks);
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings.front().cause, "slow rank");
}

TEST(Diagnosis, RankThatSwaps) {
  Job run;
  run.add(1, Activity::products, 0.3);
  run.ranks[1].swapped_bytes = 1e9, run.ranks[1].disk = 0.28;
  run.add(0, Activity::communication, 0.3);
  EXPECT_EQ(run.first(), "slow rank");
  EXPECT_NE(run.advice().find("swap space"), std::string::npos);
}

TEST(Diagnosis, UnpinnedRankThatSharesACore) {
  Job run;
  run.facts.pinned = false;
  run.add(1, Activity::products, 0.3);
  run.ranks[1].lacking = run.ranks[1].idle = 0.29;
  run.add(0, Activity::communication, 0.3);
  EXPECT_EQ(run.first(), "slow rank");
  EXPECT_NE(run.advice().find("--launch.pin true"), std::string::npos);
}

TEST(Diagnosis, RankBesideAnotherProgram) {
  Job run;
  run.add(1, Activity::products, 0.3);
  run.ranks[1].lacking = 0.29;
  run.add(0, Activity::communication, 0.3);
  EXPECT_EQ(run.first(), "slow rank");
  EXPECT_NE(run.advice().find("another program"), std::string::npos);
}

TEST(Diagnosis, SmallMicroBatch) {
  Job run;
  run.facts.micro_batch_tokens = 32;
  run.facts.product_flops_per_step = 1e9;
  for (const size_t r : {0, 1}) run.add(r, Activity::optimizer, 0.3);
  EXPECT_EQ(run.first(), "small micro-batch");
}

TEST(Diagnosis, RecomputationWithoutNeed) {
  Job run;
  for (RankWindow& r : run.ranks) r.recompute = 0.2;
  run.facts.bytes_without_recompute = 1 << 20, run.facts.bytes_left = 1 << 30;
  EXPECT_EQ(run.first(), "recompute");
  run.facts.bytes_left = 1 << 10;  // now it is needed
  EXPECT_EQ(run.first(), "");
}

TEST(Diagnosis, TooManyThreads) {
  Job run;
  for (RankWindow& r : run.ranks) r.threads = 4, r.core_share = 0.25, r.lacking = 0.6;
  EXPECT_EQ(run.first(), "threads");
  EXPECT_EQ(run.advice(), "set --launch.threads_per_rank 1");
  // Of 0.8 s of products, 4e10 operations at 0.6 of the peak take 0.667; the rest is lost, and of attention as much.
  EXPECT_NEAR(run.seconds_of_first(), 0.095 * (1 - 2.0 / 3 / 0.8), 1e-9);
  run.facts.peak_flops = 0;
  EXPECT_NEAR(run.seconds_of_first(), 0.095 * 0.75, 1e-9);
}

TEST(Diagnosis, Swapping) {
  Job run;
  run.add(0, Activity::products, 0.04);
  run.ranks[0].swapped_bytes = 1e9, run.ranks[0].major_faults = 8000, run.ranks[0].disk = 0;
  EXPECT_EQ(run.first(), "swapping");
}

TEST(Diagnosis, SavesTooOften) {
  Job run;
  run.facts.save_interval = 1;
  for (RankWindow& r : run.ranks) r.saves = 0.5, r.seconds += 0.5;
  EXPECT_EQ(run.first(), "saves");
  EXPECT_NE(run.advice().find("--save.mode async"), std::string::npos);
}

TEST(Diagnosis, EvaluationTooLong) {
  Job run;
  run.facts.evaluation_interval = 2;
  for (RankWindow& r : run.ranks) r.evaluation = 0.5, r.seconds += 0.5;
  EXPECT_EQ(run.first(), "evaluation");
  EXPECT_NE(run.advice().find("--eval.interval 20"), std::string::npos);
}

TEST(Diagnosis, UnequalStages) {
  Job run;
  run.facts.pipeline_ranks = 2, run.facts.micro_batches = 16;
  run.ranks[1].stage = 1;
  run.add(1, Activity::products, 0.5);
  run.add(0, Activity::communication, 0.5);
  EXPECT_EQ(run.first(), "stages");
}

TEST(Diagnosis, PipelineWithFewMicroBatches) {
  Job run;
  run.facts.pipeline_ranks = 2, run.facts.micro_batches = 2;
  run.ranks[1].stage = 1;
  for (const size_t r : {0, 1}) run.add(r, Activity::communication, 0.45);
  EXPECT_EQ(run.first(), "bubble");
}

TEST(Diagnosis, UnpinnedRanks) {
  Job run;
  run.facts.pinned = false;
  for (const size_t r : {0, 1}) {
    run.add(r, Activity::products, 0.1);
    run.ranks[r].lacking = 0.1;
  }
  EXPECT_EQ(run.first(), "neighbour");  // all cores are busy: tied to cores of their own, ranks would have no more
  for (RankWindow& r : run.ranks) r.idle = 0.2;
  EXPECT_EQ(run.first(), "pinning");
}

TEST(Diagnosis, QuotaOfTheControlGroup) {
  Job run;
  for (RankWindow& r : run.ranks) r.lacking = 0.3, r.throttled = 0.28;
  EXPECT_EQ(run.first(), "quota");
}

TEST(Diagnosis, QuotaOfRanksWithOneThread) {
  Job run;
  for (RankWindow& r : run.ranks) r.lacking = 0.3, r.throttled = 0.28, r.core_share = 0.7;
  EXPECT_EQ(run.first(), "quota");
}

TEST(Diagnosis, AnotherProgramBesideAllRanks) {
  Job run;
  for (RankWindow& r : run.ranks) r.lacking = 0.3;
  EXPECT_EQ(run.first(), "neighbour");
}

TEST(Diagnosis, CoresThatTheHostTakes) {
  Job run;
  run.ranks[1].stolen = 0.3;
  EXPECT_EQ(run.first(), "steal");
}

// There the host's clock says nothing about computation.
TEST(Diagnosis, OnAGpuOnlyWhatTheHostSeesIsNamed) {
  Job run;
  run.facts.on_gpu = true, run.facts.bytes_without_recompute = 0;
  run.add(1, Activity::products, 0.3);
  run.ranks[0].recompute = run.ranks[1].recompute = 0.4;
  EXPECT_EQ(run.first(), "");
  run.add(0, Activity::data, 0.2);
  EXPECT_EQ(run.first(), "data");
}

TEST(Diagnosis, ReportsAddUp) {
  Job run;
  for (RankWindow& r : run.ranks) r.saves = 0.25, r.evaluation = 0.125, r.seconds = 1.5;
  run.facts.price = 3.6;
  const auto j = nlohmann::json::parse(profile_json(run.facts, run.ranks));
  double sum = 0;
  for (const auto& [phase, seconds] : j.at("phases").items()) sum += seconds.get<double>();
  EXPECT_NEAR(sum, j.at("step_seconds").get<double>(), 1e-12);
  EXPECT_NEAR(j.at("tokens_per_second").get<double>(), 4096 / 0.15, 1e-6);
  // Two ranks at 3.6 an hour cost 0.002 a second.
  EXPECT_NEAR(j.at("cost_per_million_tokens").get<double>(), 0.002 * 0.15 / 4096 * 1e6, 1e-12);
  EXPECT_NEAR(j.at("cost_per_sample").get<double>(), 0.002 * 0.15 / 8, 1e-15);
  EXPECT_NEAR(j.at("samples_per_second").get<double>(), 8 / 0.15, 1e-9);
}

TEST(Diagnosis, EfficiencyByTheTextbooksNames) {
  Job run;
  run.facts.bytes_left = 3 << 20;
  for (RankWindow& r : run.ranks) r.forward = 0.3, r.backward = 0.6, r.resident_bytes = 1 << 20;
  run.ranks[1].forward = 0.5;
  const auto named = nlohmann::json::parse(profile_json(run.facts, run.ranks)).at("efficiency");
  EXPECT_DOUBLE_EQ(named.at("utilization"), 0.95);
  EXPECT_DOUBLE_EQ(named.at("memory_utilization"), 0.25);
  EXPECT_DOUBLE_EQ(named.at("time_in_data_loading"), 0.01);
  EXPECT_DOUBLE_EQ(named.at("time_in_forward"), 0.4);
  EXPECT_DOUBLE_EQ(named.at("time_in_backward"), 0.6);
  EXPECT_DOUBLE_EQ(named.at("time_in_communication"), 0.02);
}

}  // namespace
}  // namespace trireme::observe
