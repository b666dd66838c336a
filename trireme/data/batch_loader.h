// Hands out micro-batches as two arrays of int64 [micro_batch, sequence]: inputs, and targets (the inputs
// shifted by one token). It takes shard_index and num_shards as plain numbers and never sees a rank.
//
// A global batch is `global_batch` consecutive samples; micro-batch i of it is its samples
// [i * micro_batch, (i + 1) * micro_batch) and goes to shard i mod num_shards. So a global batch does not
// depend on num_shards. Where the shards do not divide it, all make the same number of turns, and those that have
// no micro-batch in the last one get padding: token 0, nothing to learn.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "trireme/data/sampler.h"
#include "trireme/data/token_file.h"

namespace trireme::data {

/// Target of positions that are not to be learned or judged (padding).
inline constexpr int64_t kIgnoredTarget = -100;

struct BatchOptions {
  int64_t shard_index = 0;
  int64_t num_shards = 1;
  int64_t micro_batch = 1;   ///< samples in a micro-batch
  int64_t global_batch = 1;  ///< samples in an optimizer step, a multiple of micro_batch
  int64_t sequence = 1;      ///< tokens in a sample
};

/// One micro-batch. The spans stay valid until the next call of next() or seek() of the loader that made it.
struct Batch {
  std::span<const int64_t> inputs;   ///< [micro_batch * sequence]
  std::span<const int64_t> targets;  ///< [micro_batch * sequence]
  int64_t first_sample = 0;          ///< global index of its first sample
  int64_t micro_batch_index = 0;     ///< i, counted through the global batch over all shards
  int64_t num_samples = 0;           ///< real ones; 0 in a turn without a micro-batch
};

/// Training: endless, shuffled, the next micro-batch prepared by a background thread while this one is used.
class BatchLoader {
 public:
  /// Starts at sample `first_sample` of the run. UsageError where the batch arithmetic does not work out.
  BatchLoader(TokenView tokens, Sampler sampler, BatchOptions options, int64_t first_sample = 0);

  /// Turns in one global batch, the same on every shard.
  int64_t micro_batches_per_step() const { return per_step_; }

  /// This shard's next turn; after the last one of a global batch comes the first one of the next.
  Batch next();

  /// Goes on with the global batch that begins at this sample. State to save: global_sample_index().
  void seek(int64_t global_sample_index);

  /// Where the first global batch begins of which next() has not yet handed out this shard's last turn.
  int64_t global_sample_index() const { return step_start_; }

 private:
  struct Slot {
    std::vector<int64_t> inputs, targets;
    Batch batch;
  };

  void fill(Slot& slot, int64_t turn) const;
  void run(std::stop_token stop);

  const TokenView tokens_;
  const Sampler sampler_;
  const BatchOptions options_;
  const int64_t per_step_;
  int64_t step_start_;

  // Turn t is this shard's t-th micro-batch since the last seek, and lives in slots_[t % 2].
  Slot slots_[2];
  std::mutex mutex_;
  std::condition_variable_any changed_;
  int64_t origin_;      // sample at which turn 0's global batch begins
  int64_t taken_ = 0;   // turns handed out
  int64_t filled_ = 0;  // turns prepared
  bool filling_ = false;
  std::jthread worker_;  // last: it stops before what it uses goes
};

/// Validation: every token of the text but the first is a target exactly once, in order, no shuffling. The
/// text's end is padded with kIgnoredTarget, and so are the turns of shards that have run out: all shards
/// make the same number of calls. `max_micro_batches` (over all shards; 0: no limit) judges the first part only.
class ValidationLoader {
 public:
  ValidationLoader(TokenView tokens, BatchOptions options, int64_t max_micro_batches = 0);

  /// Calls of next() in one pass, the same on every shard.
  int64_t num_rounds() const;
  int64_t num_micro_batches() const { return num_micro_batches_; }
  /// Targets of one pass over all shards.
  int64_t num_targets() const;

  /// The micro-batch of this shard in round `round`; num_samples is 0 where there is none.
  Batch batch(int64_t round);

 private:
  const TokenView tokens_;
  const BatchOptions options_;
  int64_t num_micro_batches_;
  std::vector<int64_t> inputs_, targets_;
};

}  // namespace trireme::data
