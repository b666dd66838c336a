// Hands out micro-batches as arrays of int64 [micro_batch, sequence]: inputs, targets (the inputs shifted by one
// token), and where documents begin. It takes shard_index and num_shards as plain numbers and never sees a rank.
//
// A global batch is `global_batch` consecutive samples; micro-batch i of it is its samples
// [i * micro_batch, (i + 1) * micro_batch) and goes to shard i mod num_shards. So a global batch does not
// depend on num_shards. Where the shards do not divide it, all make the same number of turns, and those that have
// no micro-batch in the last one get padding: token 0, nothing to learn.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "trireme/data/sample_stream.h"

namespace trireme::data {

struct BatchOptions {
  int64_t shard_index = 0;
  int64_t num_shards = 1;
  int64_t micro_batch = 1;      ///< samples in a micro-batch
  int64_t global_batch = 1;     ///< samples in an optimizer step, a multiple of micro_batch
  int64_t num_workers = 1;      ///< threads that prepare micro-batches; 0: next() does it. Changes no batch
};

/// One micro-batch. The spans stay valid until the next call of next() or seek() of the loader that made it.
struct Batch {
  std::span<const int64_t> inputs;           ///< [micro_batch * sequence]
  std::span<const int64_t> targets;          ///< [micro_batch * sequence]
  std::span<const int64_t> document_starts;  ///< [micro_batch * sequence], SampleView::document_starts
  int64_t first_sample = 0;                  ///< global index of its first sample
  int64_t micro_batch_index = 0;             ///< i, counted through the global batch over all shards
  int64_t num_samples = 0;                   ///< real ones; 0 in a turn without a micro-batch
};

/// Room for one micro-batch of rows.
struct BatchRows {
  BatchRows() = default;
  BatchRows(int64_t micro_batch, int64_t sequence);
  SampleView row(int64_t i, int64_t sequence);
  void clear(int64_t first_row, int64_t sequence);  ///< padding from there on
  Batch batch() const { return {.inputs = inputs, .targets = targets, .document_starts = document_starts}; }

  std::vector<int64_t> inputs, targets, document_starts;
};

/// Training: endless, shuffled, the next micro-batches prepared by background threads while this one is used.
class BatchLoader {
 public:
  /// Starts at sample `first_sample` of the run. UsageError where the batch arithmetic does not work out.
  BatchLoader(std::shared_ptr<const SampleStream> samples, BatchOptions options, int64_t first_sample = 0);

  /// Turns in one global batch, the same on every shard.
  int64_t micro_batches_per_step() const { return per_step_; }

  /// This shard's next turn; after the last one of a global batch comes the first one of the next.
  /// Errors    what the samples threw, with the sample's number in the run, in the turn that it belongs to
  Batch next();

  /// Goes on with the global batch that begins at this sample. State to save: global_sample_index().
  void seek(int64_t global_sample_index);

  /// Where the first global batch begins of which next() has not yet handed out this shard's last turn.
  int64_t global_sample_index() const { return step_start_; }

 private:
  struct Slot {
    BatchRows rows;
    Batch batch;
    int64_t turn = -1;  ///< that it holds
    std::exception_ptr failure;  ///< instead: why it could not be prepared
  };

  Slot& slot_of(int64_t turn) { return slots_[static_cast<size_t>(turn) % slots_.size()]; }
  void fill(Slot& slot, int64_t turn, int64_t origin) const;
  void take_sample(int64_t number, const SampleView& row) const;
  void run(const std::stop_token& stop);

  const std::shared_ptr<const SampleStream> samples_;
  const BatchOptions options_;
  const int64_t per_step_;
  int64_t step_start_;

  // Turn t is this shard's t-th micro-batch since the last seek, and lives in slot t mod their number.
  std::vector<Slot> slots_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  int64_t origin_;      // sample at which turn 0's global batch begins
  int64_t taken_ = 0;   // turns handed out
  int64_t begun_ = 0;   // turns prepared or being prepared
  int64_t filling_ = 0;  // threads at it
  std::vector<std::jthread> workers_;  // last: they stop before what they use goes
};

/// Validation: every sample of the dataset once, in its order. The turns of shards that have run out are padding: all
/// shards make the same number of calls. `max_micro_batches` (over all shards; 0: no limit) judges the first part only.
class ValidationLoader {
 public:
  ValidationLoader(std::shared_ptr<const Dataset> dataset, BatchOptions options, int64_t max_micro_batches = 0);

  /// Rounds of one pass, the same on every shard.
  int64_t num_rounds() const;
  int64_t num_micro_batches() const { return num_micro_batches_; }
  /// Targets of one pass over all shards.
  int64_t num_targets() const;

  /// The micro-batch of this shard in round `round`; num_samples is 0 where there is none.
  Batch batch(int64_t round);

 private:
  const std::shared_ptr<const Dataset> dataset_;
  const BatchOptions options_;
  int64_t num_micro_batches_;
  BatchRows rows_;
};

}  // namespace trireme::data
