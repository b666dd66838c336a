// The loop runs a task that is not pretraining: the one of docs/adding-a-task.md.
#include "trireme/train/task.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <string>
#include <vector>

#include "toy_task.h"
#include "trireme/base/error.h"
#include "trireme/checkpoint/good.h"
#include "trireme/observe/metrics.h"
#include "trireme/settings/parse.h"

namespace trireme::train {
namespace {
namespace fs = std::filesystem;

class Loop : public testing::Test {
 protected:
  Loop() {
    std::string pattern = (fs::temp_directory_path() / "trireme-loop-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) throw Error("no temporary folder");
    folder_ = pattern;
  }
  ~Loop() override { fs::remove_all(folder_); }

  int run(const std::string& out, int steps, std::vector<std::string> more = {}) {
    std::vector<std::string> words = {"llama-5m",
                                      "--precision=64-true",
                                      "--model.vocab_size=32",
                                      "--model.hidden_size=32",
                                      "--model.intermediate_size=64",
                                      "--model.num_hidden_layers=1",
                                      "--model.num_attention_heads=2",
                                      "--model.num_key_value_heads=2",
                                      "--model.max_position_embeddings=16",
                                      "--train.max_seq_length=16",
                                      "--train.global_batch_size=4",
                                      "--train.micro_batch_size=2",
                                      "--train.lr_decay=constant",
                                      "--train.lr_warmup_steps=1",
                                      "--optimizer.lr=1e-2",
                                      "--train.max_steps=" + std::to_string(steps),
                                      "--out_dir=" + (folder_ / out).string()};
    words.insert(words.end(), more.begin(), more.end());
    return run_task(parse_settings(words).settings, {}, make_counting);
  }

  std::vector<double> losses(const std::string& out) const {
    std::vector<double> all;
    for (const observe::MetricsRow& row : observe::read_metrics(folder_ / out / "metrics.jsonl"))
      all.push_back(row.loss.value());
    return all;
  }

  fs::path folder_;
};

TEST_F(Loop, TrainsATaskAndSavesIt) {
  EXPECT_EQ(run("straight", 12), 0);
  const std::vector<double> all = losses("straight");
  ASSERT_EQ(all.size(), 12u);
  EXPECT_LT(all.back(), 0.8 * all.front());
  EXPECT_TRUE(fs::exists(folder_ / "straight" / "step-00000012" / "model.safetensors"));
  EXPECT_TRUE(fs::exists(folder_ / "straight" / "loss.svg"));
}

TEST_F(Loop, GoesOnWhereTheTasksStateSays) {
  EXPECT_EQ(run("straight", 6), 0);
  EXPECT_EQ(run("resumed", 3), 0);
  EXPECT_EQ(run("resumed", 6, {"--resume=true"}), 0);
  EXPECT_EQ(losses("resumed"), losses("straight"));
}

TEST_F(Loop, GoesBackToAnOlderCheckpointAndLeavesTheLaterOnesBehind) {
  EXPECT_EQ(run("back", 6, {"--train.save_interval=2", "--save.keep_last=0"}), 0);
  const std::string older = "--resume=" + (folder_ / "back" / "step-00000002").string();
  EXPECT_EQ(run("back", 2, {older}), 0);
  EXPECT_EQ(checkpoint::find_latest(folder_ / "back"), folder_ / "back" / "step-00000006") << "there was nothing to do";
  testing::internal::CaptureStdout();
  EXPECT_EQ(run("back", 3, {older, "--save.keep_last=0"}), 0);
  EXPECT_THAT(testing::internal::GetCapturedStdout(),
              testing::HasSubstr("left     behind: step-00000006, step-00000004. The run goes on from step 2"));
  EXPECT_EQ(checkpoint::find_latest(folder_ / "back"), folder_ / "back" / "step-00000003");
}

TEST_F(Loop, HasNothingToDoBehindTheLastStep) {
  EXPECT_EQ(run("done", 2), 0);
  testing::internal::CaptureStdout();
  EXPECT_EQ(run("done", 2, {"--resume=true"}), 0);
  EXPECT_THAT(testing::internal::GetCapturedStdout(), testing::HasSubstr("nothing to do: the run ends at step 2"));
}

TEST_F(Loop, EndsByTheTimeLimitAndSaves) {
  EXPECT_EQ(run("limited", 1'000'000, {"--train.max_time=1s"}), 0);
  EXPECT_GT(losses("limited").size(), 0u);
  EXPECT_EQ(run("limited", 1, {"--resume=true"}), 0) << "the last step is saved";
}

// A global batch of 5 would be cut to 4, and its loss divided by 5.
TEST_F(Loop, RefusesSettingsThatNoCommandHasChecked) {
  const auto refusal = [&](const char* word) {
    try {
      run("refused", 2, {word});
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
    return std::string("nothing was thrown");
  };
  EXPECT_THAT(refusal("--train.global_batch_size=5"),
              testing::HasSubstr("train.global_batch_size must be a multiple of train.micro_batch_size"));
  EXPECT_THAT(refusal("--mesh.tp=2"), testing::HasSubstr("takes a multiple of 2"));
  EXPECT_FALSE(fs::exists(folder_ / "refused"));
}

}  // namespace
}  // namespace trireme::train
