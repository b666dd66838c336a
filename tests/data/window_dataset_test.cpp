#include "trireme/data/window_dataset.h"

#include <gtest/gtest.h>

#include <set>

#include "refusal.h"
#include "token_sets.h"
#include "trireme/data/sample_stream.h"

namespace trireme::data {
namespace {

TEST(WindowDataset, TheWindowsOfAnEpochShareNoTargetAndFollowEachOther) {
  const TemporaryFolder folder;
  const WindowDataset windows(counting_tokens(folder.path(), 10'007), {.sequence = 32, .seed = 42});
  TestRow row(32);
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    for (int64_t i = 0; i < windows.num_samples(); ++i) {
      windows.sample(epoch, i, row.view());
      ASSERT_EQ(row.inputs.front(), windows.epoch_offset(epoch) + 32 * i);
      for (size_t k = 0; k < 32; ++k) ASSERT_EQ(row.targets[k], row.inputs[k] + 1);
      ASSERT_EQ(windows.describe(epoch, i).front().first_token, row.inputs.front());
    }
  }
}

TEST(WindowDataset, WindowsStayInsideTheText) {
  const TemporaryFolder folder;
  const auto set = make_set(folder.path(), counting_documents({400}));
  for (const int64_t sequence : {1, 2, 7, 64}) {
    TestRow row(sequence);
    for (int64_t tokens = sequence + 1; tokens < 5 * sequence + 3; ++tokens) {
      const WindowDataset windows(TokenRange(set, 0, tokens, "set"), {.sequence = sequence, .seed = 3});
      ASSERT_GE(windows.num_samples(), 1);
      for (int64_t epoch = 0; epoch < 40; ++epoch) {
        windows.sample(epoch, windows.num_samples() - 1, row.view());
        ASSERT_LE(row.targets.back(), tokens - 1) << tokens << " tokens, sequence " << sequence;
      }
    }
  }
}

TEST(WindowDataset, EpochsUseOtherOffsetsAndOtherOrders) {
  const TemporaryFolder folder;
  const auto windows = std::make_shared<WindowDataset>(counting_tokens(folder.path(), 100'000),
                                                       WindowOptions{.sequence = 100, .seed = 42});
  const SampleStream samples({{windows}}, 42);
  std::set<int64_t> offsets;
  int same_place = 0;
  for (int64_t epoch = 0; epoch < 50; ++epoch) offsets.insert(windows->epoch_offset(epoch));
  for (int64_t i = 0; i < samples.samples_per_epoch(); ++i)
    same_place += samples.draw(i).index == samples.draw(samples.samples_per_epoch() + i).index;
  EXPECT_GT(offsets.size(), 25u);
  EXPECT_LT(same_place, 20);
}

TEST(WindowDataset, AWholeOnePadsItsLastWindow) {
  const TemporaryFolder folder;
  const WindowDataset windows(counting_tokens(folder.path(), 36), {.sequence = 16, .whole = true});
  ASSERT_EQ(windows.num_samples(), 3);
  TestRow row(16);
  windows.sample(0, 2, row.view());
  EXPECT_EQ(windows.supervised_tokens(0, 2), 3);
  EXPECT_EQ(row.inputs[2], 34);
  EXPECT_EQ(row.targets[2], 35);
  EXPECT_EQ(row.targets[3], kIgnoredTarget);
  EXPECT_EQ(row.inputs[3], 0);
}

TEST(WindowDataset, RefusesATextThatIsTooShort) {
  const TemporaryFolder folder;
  const auto tokens = counting_tokens(folder.path(), 16);
  EXPECT_EQ(refusal([&] { WindowDataset(tokens, {.sequence = 16}); }),
            "16 tokens are too few for a window of 16 and its targets; pass a text of at least 17 tokens, or take "
            "shorter windows");
  EXPECT_EQ(refusal([&] { WindowDataset(tokens, {.sequence = 0, .whole = true}); }),
            "windows of sequence 0 hold nothing; it must be at least 1");
  const TemporaryFolder other;
  EXPECT_EQ(refusal([&] { WindowDataset(counting_tokens(other.path(), 1), {.sequence = 4, .whole = true}); }),
            "a text of size 1 has no target; validation needs at least 2 tokens");
}

}  // namespace
}  // namespace trireme::data
