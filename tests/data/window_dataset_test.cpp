#include "trireme/data/window_dataset.h"

#include <gtest/gtest.h>

#include <set>

#include "trireme/data/sample_stream.h"

namespace trireme::data {
namespace {

// Tokens that tell their own position: token i is i.
TokenView counting_tokens(int64_t count) {
  const std::shared_ptr<uint32_t[]> ids(new uint32_t[static_cast<size_t>(count)]);
  for (int64_t i = 0; i < count; ++i) ids[static_cast<size_t>(i)] = static_cast<uint32_t>(i);
  return {std::shared_ptr<const std::byte>(ids, reinterpret_cast<const std::byte*>(ids.get())), TokenType::int32,
          count};
}

struct Row {
  explicit Row(int64_t sequence) : inputs(static_cast<size_t>(sequence)), targets(inputs), document_starts(inputs) {}
  SampleView view() { return {inputs, targets, document_starts}; }
  std::vector<int64_t> inputs, targets, document_starts;
};

TEST(WindowDataset, TheWindowsOfAnEpochShareNoTargetAndFollowEachOther) {
  const WindowDataset windows(counting_tokens(10'007), {.sequence = 32, .seed = 42});
  Row row(32);
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
  for (const int64_t sequence : {1, 2, 7, 64}) {
    Row row(sequence);
    for (int64_t tokens = sequence + 1; tokens < 5 * sequence + 3; ++tokens) {
      const WindowDataset windows(counting_tokens(tokens), {.sequence = sequence, .seed = 3});
      ASSERT_GE(windows.num_samples(), 1);
      for (int64_t epoch = 0; epoch < 40; ++epoch) {
        windows.sample(epoch, windows.num_samples() - 1, row.view());
        ASSERT_LE(row.targets.back(), tokens - 1) << tokens << " tokens, sequence " << sequence;
      }
    }
  }
}

TEST(WindowDataset, EpochsUseOtherOffsetsAndOtherOrders) {
  const auto windows =
      std::make_shared<WindowDataset>(counting_tokens(100'000), WindowOptions{.sequence = 100, .seed = 42});
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
  const WindowDataset windows(counting_tokens(36), {.sequence = 16, .whole = true});
  ASSERT_EQ(windows.num_samples(), 3);
  Row row(16);
  windows.sample(0, 2, row.view());
  EXPECT_EQ(windows.supervised_tokens(0, 2), 3);
  EXPECT_EQ(row.inputs[2], 34);
  EXPECT_EQ(row.targets[2], 35);
  EXPECT_EQ(row.targets[3], kIgnoredTarget);
  EXPECT_EQ(row.inputs[3], 0);
}

}  // namespace
}  // namespace trireme::data
