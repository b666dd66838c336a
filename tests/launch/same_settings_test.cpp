#include "trireme/launch/machines/same_settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/data/temporary_folder.h"
#include "trireme/base/error.h"
#include "trireme/settings/derived.h"
#include "trireme/store/server.h"

namespace trireme::launch {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string text_of(const Settings& settings, int world_size = 2) {
  RankEnvironment e;
  e.world_size = world_size;
  return common_settings(settings, e);
}

TEST(SameSettings, EqualOnesDifferInNothing) { EXPECT_EQ(difference(text_of({}), text_of({})), ""); }

TEST(SameSettings, WhatIsLearnedAndHowItIsComputedMustBeAlike) {
  const Settings first;
  Settings s;
  s.optimizer.lr = 0.002;
  EXPECT_EQ(difference(text_of(s), text_of(first)), "optimizer.lr 0.002, rank 0 has 0.001");
  s = {};
  s.model.rope_theta = 500;
  EXPECT_EQ(difference(text_of(s), text_of(first)), "model.rope_theta 500, rank 0 has null");
  s = {};
  s.data.seed = 1;
  s.train.save_interval = 7;
  EXPECT_EQ(difference(text_of(s), text_of(first)),
            "data.seed 1, rank 0 has 42; and train.save_interval 7, rank 0 has 1000");
  s = {};
  s.strategy = plan::Strategy::zero1;
  EXPECT_THAT(difference(text_of(s), text_of(first)), HasSubstr("strategy zero1, rank 0 has full_shard"));
  EXPECT_THAT(difference(text_of(first, 4), text_of(first, 2)), HasSubstr("world size 4, rank 0 has 2"));
}

TEST(SameSettings, AtMostThreeAreNamed) {
  Settings s;
  s.seed = s.data.seed = 1;
  s.optimizer.lr = 1;
  s.train.max_steps = 9;
  s.train.micro_batch_size = 2;
  EXPECT_THAT(difference(text_of(s), text_of({})), HasSubstr("; and 2 more"));
}

TEST(SameSettings, PlacesAndAMachinesOwnDecisionsMayDiffer) {
  Settings s;
  s.out_dir = "/elsewhere";
  s.devices = 2;
  s.resume = {.from = train::Resume::From::folder, .folder = "/elsewhere/step-1"};
  s.data.num_workers = 3;
  s.comm.timeout = std::chrono::seconds(4);
  s.launch.join_timeout = std::chrono::seconds(1);
  s.launch.threads_per_rank = 2;
  s.train.prometheus_port = 9000;
  s.offload.path = "/elsewhere";
  s.offload.optimizer = schedule::Tier::cpu;  // a machine with less memory
  s.offload.fit = 1 << 30;
  EXPECT_EQ(difference(text_of(s), text_of({})), "");
}

TEST(SameSettings, AFileMayLieElsewhereButMustBeGivenEverywhere) {
  Settings first, second;
  first.data.train_data_path = "a.txt";
  second.data.train_data_path = "/mnt/a.txt";
  EXPECT_EQ(difference(text_of(second), text_of(first)), "");
  second.data.val_data_path = "/mnt/b.txt";
  EXPECT_THAT(difference(text_of(second), text_of(first)), HasSubstr("data.val_data_path a file, rank 0 has no file"));
}

TEST(SameSettings, AModelsFolderMayLieElsewhereTheNameOfAShapeIsCompared) {
  const data::TemporaryFolder a, b;
  for (const auto* folder : {&a, &b}) folder->write("config.json", "{}");
  Settings first, second;
  first.model.name = a.path().string();
  second.model.name = b.path().string();
  EXPECT_EQ(difference(text_of(second), text_of(first)), "");
  second.model.name = "llama-5m";
  EXPECT_THAT(difference(text_of(second), text_of(first)), HasSubstr("model llama-5m, rank 0 has a folder"));
}

TEST(SameSettings, PrecisionIsWhatAutoMeansOnTheMachine) {
  Settings first, second;
  second.precision.format = number_format(second);
  EXPECT_EQ(difference(text_of(second), text_of(first)), "");
  second.precision.format = model::NumberFormat::fp64_true;
  EXPECT_THAT(difference(text_of(second), text_of(first)), HasSubstr("precision 64-true, rank 0 has "));
}

TEST(SameSettings, KeysOfAnotherVersionArePassedOver) {
  EXPECT_EQ(difference(R"({"seed": "1", "new": "2"})", R"({"seed": "1", "old": "3"})"), "");
}

TEST(SameSettings, OfLaunchOnlyWhatDecidesAboutACollectiveCounts) {
  Settings s;
  s.launch.homogeneous = Homogeneous::ignore;
  EXPECT_THAT(difference(text_of(s), text_of({})), HasSubstr("launch.homogeneous ignore, rank 0 has warn"));
  EXPECT_THAT(text_of(s), Not(HasSubstr("launch.grace")));
}

TEST(SameSettings, ARankZeroThatDoesNotTellItsOwnIsNamed) {
  const store::Token token(64, 'a');
  const store::Server server(store::listen_at("127.0.0.1", 0), {.token = token, .job = "job"});
  store::Client client({.place = {"127.0.0.1", server.port(), token}, .self = {"job", "rank 1"}});
  RankEnvironment e;
  e.global_rank = 1;
  e.world_size = 2;
  e.master_address = "10.0.0.1";
  e.master_port = 29500;
  try {
    require_same_settings(client, e, text_of({}), std::chrono::milliseconds(100), [] {});
    FAIL() << "a rank goes on without a comparison";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "rank 0 has not come within 0.1s; see that each machine has started its ranks and reaches "
                 "10.0.0.1:29500, or raise launch.join_timeout");
  }
}

}  // namespace
}  // namespace trireme::launch
