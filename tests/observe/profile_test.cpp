// The profile of a loop of one's own, on thread ranks.
#include "trireme/observe/profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "../checkpoint/thread_ranks.h"
#include "trireme/base/files.h"
#include "trireme/base/meter.h"
#include "trireme/engine/trainer.h"
#include "trireme/plan/arithmetic.h"

namespace trireme::observe {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr int kEvaluationMs = 40, kAnswersMs = 20;

/// Texts that the ranks' reports returned, in order: two ranks, `steps` steps of a small model, 5 ms of data each.
/// `evaluates`: behind every step. `answers`: before every step, which learns from half of its rows. `judges`: the
/// engine runs its list of evaluation behind every step.
std::vector<std::vector<std::string>> reports_of(int steps, const fs::path& folder, bool evaluates = false,
                                                 bool answers = false, bool judges = false) {
  std::vector<std::vector<std::string>> said(2);
  const auto store = c10::make_intrusive<c10d::HashStore>();
  checkpoint::run_ranks(2, [&](comm::Communicator& world) {
    const model::Example example{torch::ones({64, 256}), torch::zeros({64, 256})};
    std::vector<Wrapped> parts{
        wrap("first", torch::nn::Linear(256, 512)),
        wrap_loss("last", torch::nn::Linear(512, 256),
                  [](const at::Tensor& y, const at::Tensor& target) { return (y - target).square().sum(); })};
    Trainer trainer(build_model(std::move(parts), example),
                    {.ranks = {.backend = "threads", .rank = world.rank(), .size = 2, .store = store}});
    Profile profile(trainer.model(), trainer.engine(),
                    {.steps = 4, .warmup = 1, .run = {.samples_per_step = answers ? 1000 : 0}, .folder = folder});
    auto& mine = said[static_cast<size_t>(world.rank())];
    for (int step = 1; step <= steps; ++step) {
      if (answers) {
        profile.open(step);
        usleep(1000 * kAnswersMs);
        profile.between_steps(Profile::Between::answers, 1e-3 * kAnswersMs);
      }
      profile.begin_step(step);
      {
        const base::Metered data(base::Activity::data);
        usleep(5000);
      }
      trainer.backward(example.inputs, example.targets);
      trainer.step(1e-3);
      profile.end_step(answers ? 0.5 : 1);
      if (evaluates) {
        usleep(1000 * kEvaluationMs);
        profile.between_steps(Profile::Between::evaluation, 1e-3 * kEvaluationMs);
      }
      if (judges) trainer.evaluate(example.inputs, example.targets);
      if (profile.is_complete()) mine.push_back(profile.report());
    }
    mine.push_back(profile.report());
  });
  return said;
}

TEST(Profile, MeasuresAnOwnLoop) {
  const fs::path folder = fs::path(testing::TempDir()) / ("profile_" + std::to_string(getpid()));
  const auto said = reports_of(7, folder);  // makes it
  ASSERT_EQ(said[0].size(), 2u);
  EXPECT_THAT(said[0][0], HasSubstr("profile  steps 2 to 5: "));
  EXPECT_THAT(said[0][0], HasSubstr(" waits for data"));
  EXPECT_EQ(said[0][1], "");  // it is told once
  EXPECT_EQ(said[1], (std::vector<std::string>{"", ""}));

  const auto report = nlohmann::json::parse(base::read_file(folder / "profile.json"));
  EXPECT_EQ(report.at("steps"), 4);
  EXPECT_GE(report.at("phases").at("data").get<double>(), 0.005);
  double sum = 0;
  for (const auto& [phase, seconds] : report.at("phases").items()) sum += seconds.get<double>();
  EXPECT_NEAR(sum, report.at("step_seconds").get<double>(), 0.02 * sum);
  EXPECT_FALSE(report.contains("tokens_per_second"));  // nobody has said how many there are
  const auto trace = nlohmann::json::parse(base::read_file(folder / "profile.trace.json"));
  EXPECT_FALSE(trace.empty());
  fs::remove_all(folder);
}

// An evaluation behind the window's last step runs another list before the timeline is written.
TEST(Profile, DrawsTheStepAndNotTheEvaluationBehindIt) {
  const fs::path folder = fs::path(testing::TempDir()) / ("profile_" + std::to_string(getpid()));
  reports_of(5, folder, false, false, /*judges=*/true);
  const auto trace = nlohmann::json::parse(base::read_file(folder / "profile.trace.json"));
  int backwards = 0;
  for (const auto& event : trace.is_object() ? trace.at("traceEvents") : trace) {
    if (event.at("ph") != "X" || !event.at("name").get<std::string>().starts_with("Backward")) continue;
    ++backwards;
    EXPECT_GT(event.at("dur").get<double>(), 0) << event;
  }
  EXPECT_GE(backwards, 4);  // two units on two ranks
  fs::remove_all(folder);
}

// A window of n steps has n - 1 times between two steps, whether it is complete or a run that ends cuts it short.
TEST(Profile, CountsNoEvaluationBehindTheLastStep) {
  for (const auto& [steps, measured] : {std::pair{7, 4}, {5, 4}, {3, 2}, {2, 1}}) {
    const fs::path folder = fs::path(testing::TempDir()) / ("profile_" + std::to_string(getpid()));
    fs::create_directories(folder);
    reports_of(steps, folder, true);
    const auto report = nlohmann::json::parse(base::read_file(folder / "profile.json"));
    const double each = 1e-3 * kEvaluationMs * (measured - 1) / measured;
    EXPECT_EQ(report.at("steps"), measured);
    EXPECT_NEAR(report.at("phases").at("evaluation").get<double>(), each, 1e-9) << steps;
    double sum = 0;
    for (const auto& [phase, seconds] : report.at("phases").items()) sum += seconds.get<double>();
    EXPECT_NEAR(sum, report.at("step_seconds").get<double>(), 0.02 * sum) << steps;
    fs::remove_all(folder);
  }
}

// What is written before a step is part of its window: of n steps n times.
TEST(Profile, CountsTheAnswersOfEveryStep) {
  for (const auto& [steps, measured] : {std::pair{7, 4}, {3, 2}}) {
    const fs::path folder = fs::path(testing::TempDir()) / ("profile_" + std::to_string(getpid()));
    fs::create_directories(folder);
    const auto said = reports_of(steps, folder, false, true);
    const auto report = nlohmann::json::parse(base::read_file(folder / "profile.json"));
    EXPECT_THAT(base::read_file(folder / "profile.txt"), HasSubstr("writing answers"));
    EXPECT_EQ(report.at("steps"), measured);
    EXPECT_NEAR(report.at("phases").at("answers").get<double>(), 1e-3 * kAnswersMs, 1e-9) << steps;
    const double step = report.at("step_seconds").get<double>();
    EXPECT_GE(step, 1e-3 * kAnswersMs) << steps;  // of the first step, too
    EXPECT_NEAR(report.at("samples_per_second").get<double>() * step, 500, 1e-6) << steps;
    fs::remove_all(folder);
  }
}

// What trireme plan says of money, and what a profile says.
TEST(Profile, CostsAreThoseOfTheFormula) {
  const std::vector<RankWindow> ranks(2, {.seconds = 20});
  const RunFacts run{.steps = 10, .tokens_per_step = 1000, .samples_per_step = 8, .price = 3.6};
  const auto report = nlohmann::json::parse(profile_json(run, ranks));
  EXPECT_DOUBLE_EQ(report.at("samples_per_second"), 4);
  EXPECT_DOUBLE_EQ(report.at("cost_per_sample"), plan::cost_per_sample(3.6, 2, 4));
  EXPECT_DOUBLE_EQ(report.at("cost_per_million_tokens"), plan::cost_per_sample(3.6, 2, 500) * 1e6);
}

TEST(Profile, OfALoopThatEndsEarlyIsThatOfItsSteps) {
  EXPECT_THAT(reports_of(3, "")[0].back(), HasSubstr("profile  steps 2 to 3: "));
  EXPECT_THAT(reports_of(1, "")[0].back(), HasSubstr("too few steps to measure: the first 1 warm up"));
}

}  // namespace
}  // namespace trireme::observe
