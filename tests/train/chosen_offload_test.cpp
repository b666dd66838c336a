#include "trireme/train/chosen_offload.h"

#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "thread_ranks.h"
#include "trireme/base/error.h"
#include "trireme/model/from_settings.h"
#include "trireme/settings/parse.h"
#include "trireme/train/setup.h"

namespace trireme::train {
namespace {

namespace fs = std::filesystem;
using schedule::Tier;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// A machine that was measured, or was not.
class ChooseOffload : public testing::Test {
 protected:
  ChooseOffload() { setenv("XDG_CONFIG_HOME", home_.c_str(), 1); }
  ~ChooseOffload() override {
    unsetenv("XDG_CONFIG_HOME");
    fs::remove_all(home_);
  }

  // As `bench calibrate` would write it, for a disk of so many GB/s.
  void measure(const std::string& disk_rate) const {
    fs::create_directories(home_ / "trireme");
    std::ofstream(home_ / "trireme" / "hardware.yaml")
        << "name: this\nmemory_rate: 10\npeak: {fp32: 0.1}\nshares_cores: true\ndisk: {rate: " << disk_rate << "}\n";
  }

  static Settings settings(const std::vector<std::string>& more) {
    std::vector<std::string> words = {"llama-5m", "--devices=1", "--train.max_seq_length=64",
                                      "--train.micro_batch_size=2", "--train.global_batch_size=8"};
    words.insert(words.end(), more.begin(), more.end());
    Settings s = parse_settings(words).settings;
    static int64_t others = 0;
    s.seed = ++others;  // what was chosen before on another machine is not asked for again
    return s;
  }
  static ChosenOffload choice(const Settings& s) {
    return choose_offload(s, model::config_of(s.model), static_cast<int>(world_size(s)));
  }
  // Bytes that ranks plan, by rank.
  static std::vector<int64_t> planned(const Settings& s) {
    const model::ModelConfig config = model::config_of(s.model);
    const int ranks = static_cast<int>(world_size(s));
    std::vector<int64_t> bytes;
    for (int rank = 0; rank < ranks; ++rank) {
      const plan::StepRequest request = step_request(s, config, rank, ranks);
      const model::Model model = build_run_model(s, config, request);
      bytes.push_back(plan::make_step_plan(model, request).arena.total());
    }
    return bytes;
  }
  static std::string refusal_of(const Settings& s) try {
    planned(s);
    return "";
  } catch (const UsageError& error) {
    return error.what();
  }

 private:
  fs::path home_ = fs::path(testing::TempDir()) / ("chosen_offload_" + std::to_string(getpid()));
};

const std::vector<std::string> kStateOnDisk = {"--precision=bf16-mixed", "--offload.optimizer=disk",
                                               "--offload.master=disk", "--offload.prefetch=auto"};

// Each thread has scratch of its own, so a plan for one thread is not that for four.
TEST_F(ChooseOffload, CountsTheThreadsThatThereAre) {
  const Settings s = settings({"--offload.fit=80MiB"});
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  const int64_t one = choice(s).rungs.front().own;
  at::set_num_threads(4);
  const int64_t four = choice(s).rungs.front().own;
  at::set_num_threads(before);
  EXPECT_LT(one, four);
}

TEST_F(ChooseOffload, CopiesBeginOneComputationAheadWhereNothingWasMeasured) {
  Settings s = settings(kStateOnDisk);
  EXPECT_EQ(choice(s).offload.prefetch, 1);
  EXPECT_EQ(choice(s).distance, "copies begin 1 computation ahead");
  EXPECT_THAT(choice(s).remarks,
              ElementsAre(HasSubstr("offload.prefetch auto is 1: this machine has not been measured")));
  measure("0");
  s.seed = -1;
  EXPECT_THAT(choice(s).remarks, ElementsAre(HasSubstr("has no disk.rate, which offloading to a disk needs")));
  s.num_nodes = 2;
  EXPECT_THAT(choice(s).remarks,
              ElementsAre("offload.prefetch auto is 1: steps on several machines are not predicted"));
}

TEST_F(ChooseOffload, ThisMachinesFiguresSayWhenCopiesBegin) {
  measure("0.1");
  Settings s = settings(kStateOnDisk);
  const ChosenOffload chosen = choice(s);
  EXPECT_GT(*chosen.offload.prefetch, 1);
  EXPECT_EQ(chosen.distance, "copies begin " + std::to_string(*chosen.offload.prefetch) + " computations ahead");
  EXPECT_THAT(chosen.remarks, IsEmpty());
  EXPECT_EQ(step_request(s, model::config_of(s.model), 0, 1).offload, chosen.offload);
  s.offload.prefetch = 0;  // as the user says
  EXPECT_EQ(choice(s).offload.prefetch, 0);
  EXPECT_EQ(choice(s).distance, "");
}

// With only the memory that copies need which begin one computation ahead, they begin no earlier.
TEST_F(ChooseOffload, CopiesBeginNoEarlierThanFitsInMemory) {
  measure("0.1");
  Settings s = settings(kStateOnDisk);
  const int64_t wanted = planned(s)[0];
  s.offload.prefetch = 1;
  const int64_t least = planned(s)[0];
  ASSERT_LT(least, wanted);
  s = settings({"--precision=bf16-mixed", "--offload.prefetch=auto", "--offload.fit=" + std::to_string(least)});
  EXPECT_LE(planned(s)[0], least);
  EXPECT_EQ(choice(s).offload.prefetch, 1);
  EXPECT_THAT(choice(s).remarks, IsEmpty());
}

TEST_F(ChooseOffload, WhatFitsFitsOnEveryRank) {
  const std::vector<std::string> three = {"--devices=3", "--strategy=full_shard", "--train.global_batch_size=12"};
  const std::vector<int64_t> plain = planned(settings(three));
  ASSERT_GT(plain[2], plain[0]);
  std::vector<std::string> words = three;
  words.push_back("--offload.fit=" + std::to_string(plain[0]));
  const Settings s = settings(words);
  for (const int64_t bytes : planned(s)) EXPECT_LE(bytes, plain[0]);
  EXPECT_EQ(choice(s).offload.optimizer, Tier::disk);
}

TEST_F(ChooseOffload, KindsWithNothingToMoveAreToldAndAloneRefused) {
  EXPECT_THAT(refusal_of(settings({"--precision=32-true", "--offload.master=cpu"})),
              HasSubstr("nothing leaves a rank's memory: offload.master has nothing to move: units compute with"));
  const Settings s = settings({"--precision=32-true", "--offload.master=cpu", "--offload.optimizer=cpu"});
  EXPECT_EQ(refusal_of(s), "");
  EXPECT_THAT(choice(s).remarks, ElementsAre(HasSubstr("offload.master has nothing to move")));
}

TEST(RequireSameDistance, RefusesRanksThatHaveChosenDifferently) {
  checkpoint::run_ranks(3, [](comm::Communicator& world) {
    EXPECT_NO_THROW(require_same_distance(world, 2));
    try {
      require_same_distance(world, world.rank() == 1 ? 4 : 2);
      ADD_FAILURE() << "nothing was refused on rank " << world.rank();
    } catch (const UsageError& error) {
      EXPECT_THAT(error.what(), HasSubstr("offload.prefetch auto is 2 on some ranks and 4 on others"));
    }
  });
}

}  // namespace
}  // namespace trireme::train
