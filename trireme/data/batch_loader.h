// Hands out micro-batches as arrays of int64 [micro_batch, sequence]: inputs, targets (the inputs shifted by one
// token), and where documents begin. It knows its shard_index and num_shards, but never sees a rank.
//
// A global batch is `global_batch` consecutive samples. Its micro-batch i begins at its sample i * micro_batch, has
// micro_batch samples, and goes to shard i mod num_shards. So a global batch does not depend on num_shards. Each call
// of next() is a turn, and all shards take the same number of turns. A shard without a micro-batch in the last turn
// gets padding: token 0, and no target to learn.
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
  int64_t micro_batch = 1;  ///< samples in a micro-batch
  int64_t global_batch = 1;  ///< samples in an optimizer step, a multiple of micro_batch
  int64_t num_workers = 1;  ///< threads that prepare micro-batches; 0: next() prepares them. It changes no batch
};

/// One micro-batch. The spans are valid until the loader is asked for the next batch.
struct Batch {
  std::span<const int64_t> inputs;  ///< [micro_batch * sequence]
  std::span<const int64_t> targets;  ///< [micro_batch * sequence]
  std::span<const int64_t> document_starts;  ///< [micro_batch * sequence], SampleView::document_starts
  int64_t first_sample = 0;  ///< global index of its first sample
  int64_t micro_batch_index = 0;  ///< in the global batch, over all shards
  int64_t num_samples = 0;  ///< without padding; 0 in a turn without a micro-batch
};

/// Tokens of its longest text in which something is learned; padding is none. `apart`: each document is a text of its
/// own. Otherwise a row is one text, up to the end of its last document with a learned target.
int64_t longest_text(const Batch& batch, int64_t sequence, bool apart);

/// Room for one micro-batch of rows.
struct BatchRows {
  BatchRows() = default;
  BatchRows(int64_t micro_batch, int64_t sequence);
  SampleView row(int64_t i, int64_t sequence);
  void clear(int64_t first_row, int64_t sequence);  ///< fills the rows from there on with padding
  Batch batch() const { return {.inputs = inputs, .targets = targets, .document_starts = document_starts}; }

  std::vector<int64_t> inputs, targets, document_starts;
};

/// The loader for training: endless and shuffled. Background threads prepare micro-batches while the caller uses one.
class BatchLoader {
 public:
  /// Starts at sample `first_sample` of the run.
  /// Errors    UsageError if the batch sizes do not fit together, or a number is outside its bounds
  BatchLoader(std::shared_ptr<const SampleStream> samples, BatchOptions options, int64_t first_sample = 0);

  /// This shard's micro-batch of the next turn. After the last turn of a global batch comes the first of the next one.
  /// Errors    those of a sample, thrown in the sample's turn, with its number in the run
  Batch next();

 private:
  struct Slot {
    BatchRows rows;
    Batch batch;
    int64_t turn = -1;  ///< the turn that it holds
    std::exception_ptr failure;  ///< why the turn could not be prepared
  };

  Slot& slot_of(int64_t turn) { return slots_[static_cast<size_t>(turn) % slots_.size()]; }
  void fill(Slot& slot, int64_t turn) const;
  void take_sample(int64_t number, const SampleView& row) const;
  void run(const std::stop_token& stop);

  const std::shared_ptr<const SampleStream> samples_;
  const BatchOptions options_;
  const int64_t per_step_;  // turns in a global batch, the same on every shard
  const int64_t first_sample_;  // of turn 0's global batch

  std::vector<Slot> slots_;  // turn t, this shard's t-th micro-batch, uses slot t mod slots_.size()
  std::mutex mutex_;
  std::condition_variable_any changed_;
  int64_t taken_ = 0;  // turns handed out
  int64_t begun_ = 0;  // turns prepared or being prepared
  std::vector<std::jthread> workers_;  // the last member: threads stop before the members that they use are destroyed
};

/// The loader for validation: every sample of the dataset once, in order. All shards make the same number of calls; a
/// shard without samples left gets padding. `max_micro_batches` limits a pass, over all shards; 0: no limit.
class ValidationLoader {
 public:
  ValidationLoader(std::shared_ptr<const Dataset> dataset, BatchOptions options, int64_t max_micro_batches = 0);

  /// Rounds of one pass, the same on every shard.
  int64_t num_rounds() const;
  /// Learned targets of one pass, over all shards.
  int64_t num_targets() const;

  /// This shard's micro-batch in round `round`; num_samples is 0 if it has none.
  Batch batch(int64_t round);

 private:
  const std::shared_ptr<const Dataset> dataset_;
  const BatchOptions options_;
  int64_t num_micro_batches_;
  BatchRows rows_;
};

}  // namespace trireme::data
