#include "trireme/data/batch_loader.h"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/error.h"

namespace trireme::data {
namespace {

void check_shards(const BatchOptions& o) {
  if (o.num_shards < 1 || o.shard_index < 0 || o.shard_index >= o.num_shards)
    throw UsageError(
        fmt::format("shard_index {} is not one of num_shards {}; shards count from 0 to their number less 1",
                    o.shard_index, o.num_shards));
}

BatchOptions checked_for_validation(const BatchOptions& o) {
  check_shards(o);
  if (o.micro_batch < 1) throw UsageError(fmt::format("micro_batch {} must be at least 1 sample", o.micro_batch));
  return o;
}

BatchOptions checked(const BatchOptions& o) {
  check_shards(o);
  if (o.micro_batch < 1 || o.global_batch < 1 || o.global_batch % o.micro_batch != 0)
    throw UsageError(
        fmt::format("train.global_batch_size {} is not a multiple of train.micro_batch_size {} of at least one sample",
                    o.global_batch, o.micro_batch));
  if (o.num_workers < 0)
    throw UsageError(
        fmt::format("num_workers {} must be at least 0; with 0 next() prepares batches itself", o.num_workers));
  return o;
}

}  // namespace

int64_t longest_text(const Batch& batch, int64_t sequence, bool apart) {
  int64_t longest = 0;
  for (int64_t first = 0; first < std::ssize(batch.document_starts); first += sequence) {
    const auto of_row = [&](std::span<const int64_t> of) {
      return of.subspan(static_cast<size_t>(first), static_cast<size_t>(sequence));
    };
    const std::span<const int64_t> starts = of_row(batch.document_starts), targets = of_row(batch.targets);
    for (auto begin = starts.begin(), end = begin; begin != starts.end(); begin = end) {
      end = std::find_if(begin, starts.end(), [&](int64_t start) { return start != *begin; });
      const auto document =
          targets.subspan(static_cast<size_t>(begin - starts.begin()), static_cast<size_t>(end - begin));
      const bool learns = std::ranges::any_of(document, [](int64_t target) { return target != kIgnoredTarget; });
      if (learns) longest = std::max<int64_t>(longest, end - (apart ? begin : starts.begin()));
    }
  }
  return longest;
}

BatchRows::BatchRows(int64_t micro_batch, int64_t sequence)
    : inputs(static_cast<size_t>(micro_batch * sequence)), targets(inputs.size()), document_starts(inputs.size()) {}

SampleView BatchRows::row(int64_t i, int64_t sequence) {
  const auto part = [&](std::vector<int64_t>& of) {
    return std::span(of).subspan(static_cast<size_t>(i * sequence), static_cast<size_t>(sequence));
  };
  return {part(inputs), part(targets), part(document_starts)};
}

void BatchRows::clear(int64_t first_row, int64_t sequence) {
  const auto fill = [&](std::vector<int64_t>& of, int64_t value) {
    std::fill(of.begin() + static_cast<ptrdiff_t>(first_row * sequence), of.end(), value);
  };
  fill(inputs, 0);
  fill(targets, kIgnoredTarget);
  fill(document_starts, 0);
}

BatchLoader::BatchLoader(std::shared_ptr<const SampleStream> samples, BatchOptions options, int64_t first_sample)
    : samples_(std::move(samples)),
      options_(checked(options)),
      per_step_((options.global_batch / options.micro_batch + options.num_shards - 1) / options.num_shards),
      first_sample_(first_sample) {
  if (first_sample < 0) throw UsageError(fmt::format("first_sample {} must be at least 0", first_sample));
  // The consumer uses one slot; the others are being prepared.
  for (int64_t i = 0; i < options.num_workers + 1; ++i)
    slots_.push_back({.rows = BatchRows(options.micro_batch, samples_->sequence())});
  for (int64_t i = 0; i < options.num_workers; ++i)
    workers_.emplace_back([this](const std::stop_token& stop) { run(stop); });
}

Batch BatchLoader::next() {
  std::unique_lock lock(mutex_);
  const int64_t turn = taken_++;
  Slot& slot = slot_of(turn);
  if (workers_.empty()) {
    fill(slot, turn);
    return slot.batch;
  }
  changed_.notify_all();  // the slot of the turn before is free now
  changed_.wait(lock, [&] { return slot.turn == turn; });
  if (slot.failure) std::rethrow_exception(slot.failure);
  return slot.batch;
}

void BatchLoader::fill(Slot& slot, int64_t turn) const {
  const int64_t step_start = first_sample_ + turn / per_step_ * options_.global_batch;
  slot.batch = slot.rows.batch();
  Batch& batch = slot.batch;
  batch.micro_batch_index = turn % per_step_ * options_.num_shards + options_.shard_index;
  batch.first_sample = step_start + batch.micro_batch_index * options_.micro_batch;
  const bool real = batch.micro_batch_index * options_.micro_batch < options_.global_batch;
  batch.num_samples = real ? options_.micro_batch : 0;
  const int64_t sequence = samples_->sequence();
  for (int64_t i = 0; i < batch.num_samples; ++i) take_sample(batch.first_sample + i, slot.rows.row(i, sequence));
  if (!real) slot.rows.clear(0, sequence);
}

void BatchLoader::take_sample(int64_t number, const SampleView& row) const try {
  samples_->sample(number, row);
} catch (const UsageError& error) {
  throw UsageError(fmt::format("sample {} of the run cannot be read: {}", number, error.what()));
} catch (const std::exception& error) {
  throw Error(fmt::format("sample {} of the run cannot be read: {}", number, error.what()));
}

void BatchLoader::run(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  for (;;) {
    // The consumer uses the last turn handed out, taken_ - 1; at first none.
    const auto room = [&] { return begun_ < std::max<int64_t>(taken_, 1) + options_.num_workers; };
    if (!changed_.wait(lock, stop, room)) return;
    const int64_t turn = begun_++;
    lock.unlock();
    Slot& slot = slot_of(turn);
    std::exception_ptr failure;  // an exception that leaves a thread ends the process without a message
    try {
      fill(slot, turn);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    slot.failure = failure;
    slot.turn = turn;
    changed_.notify_all();
  }
}

ValidationLoader::ValidationLoader(std::shared_ptr<const Dataset> dataset, BatchOptions options,
                                   int64_t max_micro_batches)
    : dataset_(std::move(dataset)),
      options_(checked_for_validation(options)),
      rows_(options.micro_batch, dataset_->sequence()) {
  num_micro_batches_ = (dataset_->num_samples() + options.micro_batch - 1) / options.micro_batch;
  if (max_micro_batches > 0) num_micro_batches_ = std::min(num_micro_batches_, max_micro_batches);
}

int64_t ValidationLoader::num_rounds() const {
  return (num_micro_batches_ + options_.num_shards - 1) / options_.num_shards;
}

int64_t ValidationLoader::num_targets() const {
  const int64_t samples = std::min(dataset_->num_samples(), num_micro_batches_ * options_.micro_batch);
  int64_t targets = 0;
  for (int64_t i = 0; i < samples; ++i) targets += dataset_->supervised_tokens(0, i);
  return targets;
}

Batch ValidationLoader::batch(int64_t round) {
  if (round < 0 || round >= num_rounds())
    throw UsageError(
        fmt::format("there is no round {} of validation; ask for 0 to num_rounds() {} less 1", round, num_rounds()));
  Batch batch = rows_.batch();
  batch.micro_batch_index = round * options_.num_shards + options_.shard_index;
  batch.first_sample = batch.micro_batch_index * options_.micro_batch;
  if (batch.micro_batch_index < num_micro_batches_)
    batch.num_samples = std::min(options_.micro_batch, dataset_->num_samples() - batch.first_sample);
  const int64_t sequence = dataset_->sequence();
  for (int64_t i = 0; i < batch.num_samples; ++i) dataset_->sample(0, batch.first_sample + i, rows_.row(i, sequence));
  rows_.clear(batch.num_samples, sequence);
  return batch;
}

}  // namespace trireme::data
