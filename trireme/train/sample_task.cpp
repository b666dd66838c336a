#include "trireme/train/sample_task.h"

#include <algorithm>
#include <utility>

#include "trireme/train/run_data.h"
#include "trireme/train/trained_template.h"

namespace trireme::train {

SampleTask::SampleTask(Session& session, data::TrainingData data) : s_(session), data_(std::move(data)) {}

std::string SampleTask::restore(RunState& state) {
  const std::string changed = meet_data(s_.settings.data, data_.identity, state);
  keep_tokenizer(s_, state);
  keep_template(s_, data_.chat_template, state);
  samples_ = state.samples;
  done_ = {.step = state.step, .samples = state.samples, .tokens = state.tokens};
  schedule_ = lr_schedule(s_.settings, num_steps());
  loader_ = std::make_unique<data::BatchLoader>(data_.train, batch_options(), samples_);
  if (s_.settings.data.ledger) ledger_ = std::make_unique<LedgerFile>(s_.settings.out_dir, s_.environment.global_rank);
  return changed;
}

void SampleTask::load(int64_t step, int, const engine::BatchTensors& to) {
  const data::Batch batch = loader_->next();
  put(to, batch, /*held_out=*/false);
  if (ledger_) ledger_->write(step, batch, *data_.train);
}

void SampleTask::put(const engine::BatchTensors& to, const data::Batch& batch, bool /*held_out*/) {
  s_.load(to, batch);
}

int64_t SampleTask::supervised_tokens(int64_t) const {
  return data_.train->supervised_tokens(samples_, s_.settings.train.global_batch_size);
}

void SampleTask::after_step(RunState& state) {
  samples_ += s_.settings.train.global_batch_size;
  state.samples = samples_;
}

int64_t SampleTask::num_steps() const {
  return run_steps(s_.settings, s_.sequence(), data_.train->samples_per_epoch(), done_);
}

double SampleTask::epoch() const { return double(samples_) / double(data_.train->samples_per_epoch()); }

std::optional<double> SampleTask::evaluate(const StopCheck& stops, const std::function<bool()>&) {
  data::ValidationLoader loader(data_.val, batch_options(), s_.settings.eval.max_iters);
  const auto targets = double(loader.num_targets());
  held_out_measures_.clear();
  if (targets == 0) return std::nullopt;
  double sum = 0;
  engine::LossSums sums;
  for (int64_t round = 0; round < loader.num_rounds(); ++round) {
    const auto load = [&](int, const engine::BatchTensors& to) { put(to, loader.batch(round), true); };
    sum = s_.engine->evaluate(load, 1, &sums);
    held_out_measures_ = s_.engine->measures();
    if (stops()) return std::nullopt;
  }
  for (double& measure : held_out_measures_) measure /= targets;
  return sum / targets;
}

data::BatchOptions SampleTask::batch_options() const {
  const plan::StepRequest& request = s_.engine->plan().request;
  return {.shard_index = request.data_index(),
          .num_shards = request.num_data_ranks(),
          .micro_batch = s_.settings.train.micro_batch_size,
          .global_batch = s_.settings.train.global_batch_size,
          .num_workers = s_.settings.data.num_workers};
}

}  // namespace trireme::train
