#include "trireme/data/batch_loader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <set>

#include "refusal.h"
#include "token_sets.h"
#include "trireme/base/error.h"
#include "trireme/data/window_dataset.h"

namespace trireme::data {
namespace {

constexpr int64_t kSequence = 16;

const std::filesystem::path& folder() {
  static const TemporaryFolder kFolder;
  return kFolder.path();
}

struct Micro {
  int64_t index;
  std::vector<int64_t> inputs, targets;
  bool operator==(const Micro&) const = default;
};

Micro taken(const Batch& batch) {
  return {batch.micro_batch_index,
          {batch.inputs.begin(), batch.inputs.end()},
          {batch.targets.begin(), batch.targets.end()}};
}

std::shared_ptr<const SampleStream> windows(TokenRange tokens, uint64_t seed) {
  auto dataset = std::make_shared<WindowDataset>(std::move(tokens), WindowOptions{.sequence = kSequence, .seed = seed});
  return std::make_shared<SampleStream>(std::vector<WeightedDataset>{{std::move(dataset)}}, seed);
}

std::shared_ptr<const Dataset> in_order(int64_t tokens) {
  return std::make_shared<WindowDataset>(counting_tokens(folder(), tokens),
                                         WindowOptions{.sequence = kSequence, .whole = true});
}

BatchLoader loader(int64_t shard, int64_t num_shards, int64_t first_sample = 0, int64_t global_batch = 16,
                   int64_t num_workers = 1) {
  return BatchLoader(windows(counting_tokens(folder(), 3000), 42),
                     {.shard_index = shard,
                      .num_shards = num_shards,
                      .micro_batch = 2,
                      .global_batch = global_batch,
                      .num_workers = num_workers},
                     first_sample);
}

TEST(BatchLoader, RefusesNumbersOutsideTheirBounds) {
  EXPECT_EQ(refusal([] { loader(2, 2); }),
            "shard_index 2 is not one of num_shards 2; shards count from 0 to their number less 1");
  EXPECT_EQ(refusal([] { loader(0, 0); }),
            "shard_index 0 is not one of num_shards 0; shards count from 0 to their number less 1");
  EXPECT_EQ(refusal([] { loader(0, 1, 0, 16, -1); }),
            "num_workers -1 must be at least 0; with 0 next() prepares batches itself");
  EXPECT_EQ(refusal([] { loader(0, 1, -1); }), "first_sample -1 must be at least 0");
  EXPECT_EQ(refusal([] { ValidationLoader(in_order(100), {.micro_batch = 0}); }),
            "micro_batch 0 must be at least 1 sample");
  EXPECT_NE(refusal([] { ValidationLoader(in_order(100), {}).batch(1000); }), "not refused");
}

TEST(LongestText, IsTheLongestDocumentThatIsLearned) {
  // Two rows of 8: documents of 3 and 2 tokens and padding; one of 4 and one of 4 that is not learned.
  const std::vector<int64_t> starts = {0, 0, 0, 3, 3, 5, 5, 5, 0, 0, 0, 0, 4, 4, 4, 4}, inputs(16);
  std::vector<int64_t> targets(16, kIgnoredTarget);
  for (const size_t learned : {1, 4}) targets[learned] = 7;
  const Batch batch{.inputs = inputs, .targets = targets, .document_starts = starts};
  EXPECT_EQ(longest_text(batch, 8, /*apart=*/true), 3);
  EXPECT_EQ(longest_text(batch, 8, /*apart=*/false), 5);
  targets[8] = 7;
  EXPECT_EQ(longest_text(batch, 8, true), 4);
  EXPECT_EQ(longest_text(batch, 8, false), 5);
  targets[15] = 7;
  EXPECT_EQ(longest_text(batch, 8, false), 8);
  std::ranges::fill(targets, kIgnoredTarget);
  EXPECT_EQ(longest_text(batch, 8, true), 0);
}

// The micro-batches of `steps` global batches in their order, collected over all shards.
std::vector<Micro> global_batches(int64_t num_shards, int64_t steps, int64_t global_batch = 16) {
  std::map<std::pair<int64_t, int64_t>, Micro> all;
  for (int64_t shard = 0; shard < num_shards; ++shard) {
    BatchLoader one = loader(shard, num_shards, 0, global_batch);
    for (int64_t step = 0; step < steps; ++step) {
      for (int64_t i = 0; i < (global_batch / 2 + num_shards - 1) / num_shards; ++i) {
        const Batch batch = one.next();
        if (batch.num_samples == 0) {  // no micro-batch in this turn
          EXPECT_GE(batch.micro_batch_index * 2, global_batch);
          EXPECT_EQ(std::set<int64_t>(batch.targets.begin(), batch.targets.end()), std::set<int64_t>{kIgnoredTarget});
          EXPECT_EQ(std::set<int64_t>(batch.inputs.begin(), batch.inputs.end()), std::set<int64_t>{0});
          continue;
        }
        EXPECT_EQ(batch.micro_batch_index % num_shards, shard);
        EXPECT_EQ(batch.first_sample, step * global_batch + batch.micro_batch_index * 2);
        all[{step, batch.micro_batch_index}] = taken(batch);
      }
    }
  }
  std::vector<Micro> ordered;
  for (auto& [at, micro] : all) ordered.push_back(std::move(micro));
  return ordered;
}

TEST(BatchLoader, GlobalBatchesDoNotDependOnTheNumberOfShards) {
  const auto alone = global_batches(1, 30);
  ASSERT_EQ(alone.size(), 30u * 8u);
  for (const int64_t num_shards : {2, 4, 8}) EXPECT_EQ(global_batches(num_shards, 30), alone) << num_shards;
}

TEST(BatchLoader, ShardsThatDoNotDivideTheBatchStillDealEachMicroBatchOnce) {
  const auto alone = global_batches(1, 5, 10);
  for (const int64_t num_shards : {2, 3, 4, 7}) EXPECT_EQ(global_batches(num_shards, 5, 10), alone) << num_shards;
}

TEST(BatchLoader, TargetsAreTheInputsShiftedByOne) {
  BatchLoader one = loader(0, 1);
  for (int step = 0; step < 40; ++step) {
    const Batch batch = one.next();
    ASSERT_EQ(batch.inputs.size(), 2 * kSequence);
    for (size_t i = 0; i < batch.inputs.size(); ++i) ASSERT_EQ(batch.targets[i], batch.inputs[i] + 1);
    for (size_t i = 1; i < kSequence; ++i) ASSERT_EQ(batch.inputs[i], batch.inputs[i - 1] + 1);
  }
}

TEST(BatchLoader, AnEpochHasEachSampleOnce) {
  const int64_t samples = windows(counting_tokens(folder(), 3000), 42)->samples_per_epoch();
  BatchLoader one = loader(0, 1);
  std::multiset<int64_t> starts;
  while (static_cast<int64_t>(starts.size()) < samples) {
    const Batch batch = one.next();
    for (int64_t i = 0; i < 2 && static_cast<int64_t>(starts.size()) < samples; ++i) {
      starts.insert(batch.inputs[static_cast<size_t>(i * kSequence)]);
    }
  }
  EXPECT_EQ(std::set<int64_t>(starts.begin(), starts.end()).size(), starts.size());
}

TEST(BatchLoader, StartingAtASampleEqualsWalkingToIt) {
  BatchLoader walker = loader(1, 2);
  std::vector<Micro> walked;
  for (int i = 0; i < 120; ++i) walked.push_back(taken(walker.next()));
  for (const int64_t step : {0, 1, 7, 29}) {
    BatchLoader fresh = loader(1, 2, step * 16);
    for (size_t i = 0; i < 4; ++i)
      EXPECT_EQ(taken(fresh.next()), walked[static_cast<size_t>(step) * 4 + i]) << "step " << step;
  }
}

TEST(BatchLoader, AnyNumberOfWorkersHandsOutTheSameBatchesInTheSameOrder) {
  BatchLoader alone = loader(1, 3, 32, 16, 0);
  std::vector<Micro> expected;
  for (int i = 0; i < 150; ++i) expected.push_back(taken(alone.next()));
  for (const int64_t num_workers : {1, 2, 3, 8}) {
    BatchLoader one = loader(1, 3, 32, 16, num_workers);
    for (int i = 0; i < 150; ++i) ASSERT_EQ(taken(one.next()), expected[static_cast<size_t>(i)]) << num_workers;
  }
}

TEST(BatchLoader, ABatchStaysUntouchedWhileTheNextIsPrepared) {
  BatchLoader one = loader(0, 1, 0, 16, 3);
  for (int i = 0; i < 50; ++i) {
    const Batch batch = one.next();
    const Micro before = taken(batch);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ASSERT_EQ(taken(batch), before);
  }
}

TEST(BatchLoader, ABatchThatMicroBatchesDoNotDivideIsRefused) { EXPECT_THROW(loader(0, 1, 0, 15), UsageError); }

TEST(BatchLoader, TrainingNeverShowsAHeldOutToken) {
  const auto set = make_set(folder(), counting_documents({1003}));
  BatchLoader one(windows(TokenRange(set, 0, 900, "set"), 9), {.micro_batch = 4, .global_batch = 4});
  int64_t last = 0;
  for (int i = 0; i < 200; ++i) {
    for (const int64_t token : one.next().targets) last = std::max(last, token);
  }
  EXPECT_LT(last, 900);
  EXPECT_GT(last, 900 - 2 * kSequence);
}

TEST(ValidationLoader, EveryTokenButTheFirstIsATargetOnceForAnyNumberOfShards) {
  for (const int64_t tokens : {2, 17, 33, 34, 500, 513}) {
    for (const int64_t num_shards : {1, 2, 4, 8}) {
      std::multiset<int64_t> targets;
      int64_t real_samples = 0;
      for (int64_t shard = 0; shard < num_shards; ++shard) {
        ValidationLoader loader(in_order(tokens), {.shard_index = shard, .num_shards = num_shards, .micro_batch = 2});
        for (int64_t round = 0; round < loader.num_rounds(); ++round) {
          const Batch batch = loader.batch(round);
          real_samples += batch.num_samples;
          for (size_t i = 0; i < batch.targets.size(); ++i) {
            if (batch.targets[i] == kIgnoredTarget) continue;
            ASSERT_EQ(batch.targets[i], batch.inputs[i] + 1);
            targets.insert(batch.targets[i]);
          }
        }
      }
      ASSERT_EQ(static_cast<int64_t>(targets.size()), tokens - 1);
      EXPECT_EQ(*targets.begin(), 1);
      EXPECT_EQ(static_cast<int64_t>(std::set<int64_t>(targets.begin(), targets.end()).size()), tokens - 1);
      EXPECT_EQ(real_samples, (tokens - 1 + kSequence - 1) / kSequence);
    }
  }
}

class Unreadable final : public Dataset {
 public:
  int64_t num_samples() const override { return 1000; }
  int64_t sequence() const override { return kSequence; }
  void sample(int64_t, int64_t, SampleView out) const override {
    if (++calls_ > 6) throw std::runtime_error("books/emma.bin: Input/output error");
    pad(out, 0);
  }
  int64_t supervised_tokens(int64_t, int64_t) const override { return 0; }
  std::vector<SampleOrigin> describe(int64_t, int64_t) const override { return {}; }

 private:
  mutable std::atomic<int> calls_{0};
};

// It would end the process, from a thread and without a word.
TEST(BatchLoader, WhatASampleThrowsInAWorkerReachesTheTurnThatItBelongsTo) {
  for (const int64_t num_workers : {0, 1}) {
    auto samples = std::make_shared<SampleStream>(std::vector<WeightedDataset>{{std::make_shared<Unreadable>()}}, 42);
    BatchLoader loader(samples, {.micro_batch = 2, .global_batch = 4, .num_workers = num_workers}, 100);
    for (int turn = 0; turn < 3; ++turn) EXPECT_EQ(loader.next().first_sample, 100 + 2 * turn);
    try {
      loader.next();
      ADD_FAILURE() << "the fourth turn has a sample that cannot be read";
    } catch (const Error& error) {
      EXPECT_STREQ(error.what(), "sample 106 of the run cannot be read: books/emma.bin: Input/output error");
    }
  }
}

TEST(ValidationLoader, ALimitTakesTheFirstMicroBatchesWhateverTheNumberOfShards) {
  for (const int64_t num_shards : {1, 2, 3}) {
    int64_t samples = 0, last = 0;
    for (int64_t shard = 0; shard < num_shards; ++shard) {
      ValidationLoader loader(in_order(1000), {.shard_index = shard, .num_shards = num_shards, .micro_batch = 2}, 5);
      for (int64_t round = 0; round < loader.num_rounds(); ++round) {
        const Batch batch = loader.batch(round);
        samples += batch.num_samples;
        for (const int64_t target : batch.targets) last = std::max(last, target);
      }
    }
    EXPECT_EQ(samples, 10);
    EXPECT_EQ(last, 10 * kSequence);
  }
}

}  // namespace
}  // namespace trireme::data
