#include "trireme/data/batch_loader.h"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/error.h"

namespace trireme::data {
namespace {

BatchOptions checked(const BatchOptions& o) {
  check_invariant(o.num_shards >= 1 && o.shard_index >= 0 && o.shard_index < o.num_shards,
                  "shard_index is in [0, num_shards)");
  if (o.micro_batch < 1 || o.global_batch < 1 || o.global_batch % o.micro_batch != 0) {
    throw UsageError(
        fmt::format("train.global_batch_size {} is not a multiple of train.micro_batch_size {} of at "
                    "least one sample",
                    o.global_batch, o.micro_batch));
  }
  return o;
}

}  // namespace

BatchLoader::BatchLoader(TokenView tokens, Sampler sampler, BatchOptions options, int64_t first_sample)
    : tokens_(std::move(tokens)),
      sampler_(sampler),
      options_(checked(options)),
      per_step_((options.global_batch / options.micro_batch + options.num_shards - 1) / options.num_shards),
      step_start_(first_sample),
      origin_(first_sample) {
  check_invariant(sampler.sequence() == options.sequence, "loader and sampler cut the same windows");
  check_invariant(first_sample >= 0, "samples are numbered from 0");
  for (Slot& slot : slots_) {
    slot.inputs.resize(static_cast<size_t>(options.micro_batch * options.sequence));
    slot.targets.resize(slot.inputs.size());
  }
  worker_ = std::jthread([this](std::stop_token stop) { run(std::move(stop)); });
}

Batch BatchLoader::next() {
  std::unique_lock lock(mutex_);
  const int64_t turn = taken_++;
  changed_.notify_all();  // the slot of the turn before is free now
  changed_.wait(lock, [&] { return filled_ > turn; });
  step_start_ = origin_ + taken_ / per_step_ * options_.global_batch;
  return slots_[turn % 2].batch;
}

void BatchLoader::seek(int64_t global_sample_index) {
  check_invariant(global_sample_index >= 0, "samples are numbered from 0");
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !filling_; });
  origin_ = step_start_ = global_sample_index;
  taken_ = filled_ = 0;
  changed_.notify_all();
}

void BatchLoader::fill(Slot& slot, int64_t turn) const {
  const int64_t step_start = origin_ + turn / per_step_ * options_.global_batch;
  Batch& batch = slot.batch;
  batch.micro_batch_index = turn % per_step_ * options_.num_shards + options_.shard_index;
  batch.first_sample = step_start + batch.micro_batch_index * options_.micro_batch;
  batch.inputs = slot.inputs;
  batch.targets = slot.targets;
  batch.num_samples = options_.micro_batch;
  if (batch.micro_batch_index * options_.micro_batch >= options_.global_batch) {
    batch.num_samples = 0;
    std::fill(slot.inputs.begin(), slot.inputs.end(), 0);
    std::fill(slot.targets.begin(), slot.targets.end(), kIgnoredTarget);
    return;
  }
  const auto sequence = static_cast<size_t>(options_.sequence);
  for (int64_t i = 0; i < options_.micro_batch; ++i) {
    const int64_t start = sampler_.sample(batch.first_sample + i);
    const size_t row = static_cast<size_t>(i) * sequence;
    tokens_.copy(start, std::span(slot.inputs).subspan(row, sequence));
    tokens_.copy(start + 1, std::span(slot.targets).subspan(row, sequence));
  }
}

void BatchLoader::run(std::stop_token stop) {
  std::unique_lock lock(mutex_);
  for (;;) {
    // Of the two slots the consumer holds the one handed out last, turn taken_ - 1; at first none.
    const bool work = changed_.wait(lock, stop, [&] { return filled_ < std::max<int64_t>(taken_ + 1, 2); });
    if (!work) return;
    const int64_t turn = filled_;
    filling_ = true;
    lock.unlock();
    fill(slots_[turn % 2], turn);
    lock.lock();
    filling_ = false;
    ++filled_;
    changed_.notify_all();
  }
}

ValidationLoader::ValidationLoader(TokenView tokens, BatchOptions options, int64_t max_micro_batches)
    : tokens_(std::move(tokens)), options_(options) {
  check_invariant(options.num_shards >= 1 && options.shard_index >= 0 && options.shard_index < options.num_shards,
                  "shard_index is in [0, num_shards)");
  check_invariant(tokens_.size() >= 2 && options.micro_batch >= 1, "validation text holds at least one target");
  const int64_t samples = (tokens_.size() - 1 + options.sequence - 1) / options.sequence;
  num_micro_batches_ = (samples + options.micro_batch - 1) / options.micro_batch;
  if (max_micro_batches > 0) num_micro_batches_ = std::min(num_micro_batches_, max_micro_batches);
  inputs_.resize(static_cast<size_t>(options.micro_batch * options.sequence));
  targets_.resize(inputs_.size());
}

int64_t ValidationLoader::num_rounds() const {
  return (num_micro_batches_ + options_.num_shards - 1) / options_.num_shards;
}

int64_t ValidationLoader::num_targets() const {
  return std::min(tokens_.size() - 1, num_micro_batches_ * options_.micro_batch * options_.sequence);
}

Batch ValidationLoader::batch(int64_t round) {
  check_invariant(round >= 0 && round < num_rounds(), "a round of validation is in [0, num_rounds())");
  std::fill(inputs_.begin(), inputs_.end(), 0);
  std::fill(targets_.begin(), targets_.end(), kIgnoredTarget);
  Batch batch{.inputs = inputs_, .targets = targets_};
  batch.micro_batch_index = round * options_.num_shards + options_.shard_index;
  batch.first_sample = batch.micro_batch_index * options_.micro_batch;
  if (batch.micro_batch_index >= num_micro_batches_) return batch;
  // Windows at a stride of `sequence` are contiguous, so the whole micro-batch is one stretch of text.
  const int64_t first = batch.first_sample * options_.sequence;
  const auto count =
      static_cast<size_t>(std::min(options_.micro_batch * options_.sequence, tokens_.size() - 1 - first));
  tokens_.copy(first, std::span(inputs_).first(count));
  tokens_.copy(first + 1, std::span(targets_).first(count));
  batch.num_samples = (static_cast<int64_t>(count) + options_.sequence - 1) / options_.sequence;
  return batch;
}

}  // namespace trireme::data
