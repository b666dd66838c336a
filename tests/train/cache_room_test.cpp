#include "trireme/train/cache_room.h"

#include <gtest/gtest.h>

#include <vector>

#include "trireme/base/error.h"

namespace trireme::train {
namespace {

constexpr int64_t kTexts = 8, kTokens = 4096, kBytes = int64_t{4} << 30;

Inference of_llama() {
  Inference in;
  in.config = model::catalogue_config("llama-5m");
  return in;
}

int64_t cache_with(int64_t available, bool is_given = false) {
  const generate::Room room{.texts = kTexts, .tokens = 64, .cache_tokens = kTexts * kTokens};
  return fitting_room({}, {}, of_llama(), {.room = room, .needed_tokens = kTokens, .is_given = is_given}, available)
      .cache_tokens;
}

int64_t planned_bytes(int64_t cache_tokens) {
  return plan_inference({}, model::catalogue_config("llama-5m"), 1, 0,
                        {.texts = kTexts, .tokens = 64, .cache_tokens = cache_tokens})
      .plan.arena.total();
}

TEST(CacheRoom, IsWhatTheAvailableMemoryHolds) {
  EXPECT_EQ(cache_with(kBytes), kTexts * kTokens);
  int64_t before = kTexts * kTokens;
  int found = 0;
  for (int64_t available = kBytes / 2; available > kBytes / 64; available = available * 9 / 10) {
    int64_t fits = 0;
    try {
      fits = cache_with(available);
    } catch (const UsageError&) {
      EXPECT_GT(planned_bytes(kTokens), available * 9 / 10 - (1 << 20));
      continue;
    }
    EXPECT_LE(planned_bytes(fits), available * 9 / 10) << available;
    if (fits == kTexts * kTokens) continue;
    EXPECT_GT(planned_bytes(fits + ops::kAttentionPage), available * 9 / 10) << available;
    EXPECT_LT(fits, before);
    before = fits;
    ++found;
  }
  EXPECT_GT(found, 3);
}

TEST(CacheRoom, RefusesWhatHoldsNoTextAndAGivenCacheThatDoesNotFit) {
  const auto refused = [](int64_t available, bool is_given, const char* words) {
    try {
      cache_with(available, is_given);
      ADD_FAILURE() << words;
    } catch (const UsageError& error) {
      EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
    }
  };
  refused(int64_t{32} << 20, false, "a text of 4,096 tokens needs a cache of");
  refused(int64_t{200} << 20, true, "generate.cache_tokens 32768 needs");
}

TEST(CacheRoom, IsForNoMoreTextsThanThereAre) {
  const model::ModelConfig config = model::catalogue_config("llama-5m");
  const std::vector<std::vector<int64_t>> prompts = {{1, 2, 3}, {4}};
  EXPECT_EQ(wish_to_write(config, prompts, /*samples=*/1, /*max_new_tokens=*/8, /*texts=*/1'000'000).room.texts, 2);
  EXPECT_EQ(wish_to_write(config, prompts, /*samples=*/3, /*max_new_tokens=*/8, /*texts=*/32).room.texts, 6);
  const generate::Room four = wish_to_write(config, prompts, /*samples=*/50, /*max_new_tokens=*/8, /*texts=*/4).room;
  EXPECT_EQ(four.texts, 4);
  EXPECT_EQ(four.cache_tokens, 4 * ops::kAttentionPage);
}

}  // namespace
}  // namespace trireme::train
