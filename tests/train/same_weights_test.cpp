#include "trireme/train/same_weights.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>

#include "../checkpoint/thread_ranks.h"
#include "tests/data/refusal.h"
#include "trireme/base/error.h"

namespace trireme::train {
namespace {

TEST(SameWeights, OfAConfigurationOnlyWhatItMeansCounts) {
  model::ModelConfig first = model::catalogue_config("llama-5m"), second = first;
  first.source_json = first.to_hugging_face_json("float32");
  second.source_json = first.to_hugging_face_json("bfloat16");
  EXPECT_EQ(fingerprint_of(first), fingerprint_of(second));
  second.norm_eps *= 2;
  EXPECT_NE(fingerprint_of(first), fingerprint_of(second));
}

TEST(SameWeights, AnAdaptersBaseMayLieElsewhere) {
  adapt::AdapterConfig first, second;
  second.base_model_name_or_path = "elsewhere";
  EXPECT_EQ(fingerprint_of(first), fingerprint_of(second));
  second.lora_alpha = 9;
  EXPECT_NE(fingerprint_of(first), fingerprint_of(second));
}

TEST(SameWeights, AnotherFolderOnOneRankIsRefusedOnAll) {
  const launch::RankEnvironment by_hand = {.world_size = 2, .local_world_size = 2};
  checkpoint::run_ranks(2, [&](comm::Communicator& world) {
    const auto refusal_of = [&](const std::string& of_rank_0, const std::string& of_rank_1) {
      return data::refusal([&] {
        require_same_folder(world, by_hand, "the adapter", [&] { return world.rank() == 0 ? of_rank_0 : of_rank_1; });
      });
    };
    EXPECT_EQ(refusal_of("1a", "1a"), "not refused");
    EXPECT_EQ(refusal_of("1a", "2b"), "rank 1 has the adapter 2b, rank 0 has 1a; give every machine the same files");
    EXPECT_EQ(refusal_of("1a", ""), "rank 1 has the adapter none, rank 0 has 1a; give every machine the same files");
  });
}

TEST(SameWeights, AFolderThatOneRankCannotReadEndsAll) {
  checkpoint::run_ranks(2, [](comm::Communicator& world) {
    const auto read = [&]() -> std::string {
      if (world.rank() == 1) throw CheckpointError("there is no such folder", "nowhere");
      return "1a";
    };
    try {
      require_same_folder(world, {.world_size = 2, .local_world_size = 2}, "the adapter", read);
      ADD_FAILURE() << "not refused";
    } catch (const CheckpointError& error) {
      EXPECT_STREQ(error.what(), "rank 1: there is no such folder");
    }
  });
}

TEST(SameWeights, RanksOfOneLauncherOnOneMachineReadNothing) {
  std::atomic<int> reads = 0;
  checkpoint::run_ranks(2, [&](comm::Communicator& world) {
    launch::RankEnvironment environment = {.world_size = 2, .local_world_size = 2};
    environment.launcher = "trireme";
    require_same_folder(world, environment, "the adapter", [&] { return ++reads, std::string(); });
  });
  EXPECT_EQ(reads, 0);
}

}  // namespace
}  // namespace trireme::train
