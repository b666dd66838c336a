// What a Trainer refuses before its first step, and where its checkpoints go on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "support.h"
#include "trireme/base/error.h"
#include "trireme/train/trainer_checkpoint.h"

namespace trireme::engine {
namespace {

using testing::HasSubstr;

TEST(Trainer, GoesOnWithTheRunThatWentBackToAnEarlierCheckpoint) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("trainer_went_back_" + std::to_string(getpid()));
  std::filesystem::remove_all(folder);
  const auto trainer = [] { return Trainer(build_model(two_layers(), kExample), TrainerOptions{}); };
  const auto step = [](Trainer& t) {
    t.backward(kExample.inputs, kExample.targets);
    t.step(1e-3);
  };
  Trainer first = trainer();
  for (int i = 1; i <= 6; ++i) {
    step(first);
    if (i % 2 == 0) train::save_trainer(first, folder);
  }
  Trainer back = trainer();
  EXPECT_EQ(train::load_trainer(back, folder / "step-00000002"), folder / "step-00000002");
  step(back);
  train::save_trainer(back, folder);
  Trainer third = trainer();
  EXPECT_EQ(train::load_trainer(third, folder), folder / "step-00000003");
  EXPECT_EQ(train::load_trainer(third, folder / "step-00000006"), folder / "step-00000006") << "it stays, by its name";
  std::filesystem::remove_all(folder);
}

TEST(Trainer, RefusesACheckpointThatIsNotThereAndAFileInPlaceOfAFolder) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("trainer_slips_" + std::to_string(getpid()));
  std::filesystem::remove_all(folder);
  Trainer trainer(build_model(two_layers(), kExample), TrainerOptions{});
  EXPECT_FALSE(train::load_trainer(trainer, folder)) << "a run that begins";
  EXPECT_THAT(message_of<CheckpointError>([&] { train::load_trainer(trainer, folder / "step-00000001"); }),
              HasSubstr("step-00000001; name a checkpoint's folder"));
  train::save_trainer(trainer, folder);
  EXPECT_THAT(message_of<CheckpointError>([&] { train::load_trainer(trainer, folder / "stp-00000000"); }),
              HasSubstr("load_trainer: there is no folder"));
  std::filesystem::create_directory(folder / "second run");
  EXPECT_FALSE(train::load_trainer(trainer, folder / "second run"));
  std::filesystem::create_directory(folder / "step-00000009");
  EXPECT_ANY_THROW(train::load_trainer(trainer, folder / "step-00000009")) << "a checkpoint without its files";
  const std::filesystem::path file = folder / "step-00000000" / "trireme_state.json";
  ASSERT_TRUE(std::filesystem::is_regular_file(file));
  EXPECT_THAT(message_of<CheckpointError>([&] { train::load_trainer(trainer, file); }),
              HasSubstr("is a file, and checkpoints lie in a folder; name a folder"));
  EXPECT_THAT(message_of<CheckpointError>([&] { train::save_trainer(trainer, file); }),
              HasSubstr("is a file, and checkpoints lie in a folder; name a folder"));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace trireme::engine
