#include "trireme/train/pretrain.h"

#include <algorithm>
#include <memory>
#include <optional>

#include "trireme/data/batch_loader.h"
#include "trireme/optim/lr_schedule.h"
#include "trireme/train/introduction.h"
#include "trireme/train/ledger_file.h"
#include "trireme/train/out_dir.h"
#include "trireme/train/run_data.h"
#include "trireme/train/sample_reply.h"
#include "trireme/train/setup.h"
#include "trireme/train/task.h"

namespace trireme::train {
namespace {

class Pretraining : public Task {
 public:
  Pretraining(Session& session, const std::filesystem::path& resume, const StopCheck& stops)
      : s_(session),
        tokenizer_(resolve_tokenizer(s_.settings, s_.model.config)),
        data_(load_run_data(s_, resume, *tokenizer_, stops)),
        schedule_(lr_schedule(s_.settings, num_steps())) {
    if (s_.settings.eval.max_new_tokens) sample_.emplace(s_, data_, *tokenizer_);
  }

  std::string restore(RunState& state) override {
    const std::string changed = meet_data(s_.settings.data, data_.identity, state);
    keep_tokenizer(s_, state);
    samples_ = state.samples;
    loader_ = std::make_unique<data::BatchLoader>(data_.train, batch_options(), samples_);
    if (s_.settings.data.ledger)
      ledger_ = std::make_unique<LedgerFile>(s_.settings.out_dir, s_.environment.global_rank);
    return changed;
  }

  void load(int64_t step, int, const engine::BatchTensors& to) override {
    const data::Batch batch = loader_->next();
    s_.load(to, batch);
    if (ledger_) ledger_->write(step, batch, *data_.train);
  }

  // A step without supervised tokens has loss 0.
  int64_t supervised_tokens(int64_t) const override {
    return std::max<int64_t>(1, data_.train->supervised_tokens(samples_, s_.settings.train.global_batch_size));
  }

  double learning_rate(int64_t step) const override { return schedule_.at(step); }

  void after_step(RunState& state) override {
    samples_ += s_.settings.train.global_batch_size;
    state.samples = samples_;
  }

  int64_t num_steps() const override { return run_steps(s_.settings, s_.sequence(), data_.train->samples_per_epoch()); }

  double epoch() const override { return double(samples_) / double(data_.train->samples_per_epoch()); }

  int64_t held_out_samples() const override { return data_.val ? data_.val->num_samples() : 0; }

  std::optional<double> evaluate(const StopCheck& stops) override {
    data::ValidationLoader loader(data_.val, batch_options(), s_.settings.eval.max_iters);
    double sum = 0;
    for (int64_t round = 0; round < loader.num_rounds(); ++round) {
      sum += s_.engine->evaluate([&](int, const engine::BatchTensors& to) { s_.load(to, loader.batch(round)); }, 1);
      const std::vector<double>& measures = s_.engine->measures();
      if (round == 0) held_out_measures_.assign(measures.size(), 0);
      for (size_t i = 0; i < measures.size(); ++i) held_out_measures_[i] += measures[i];
      if (stops()) return std::nullopt;
    }
    const double targets = double(std::max<int64_t>(1, loader.num_targets()));
    for (double& measure : held_out_measures_) measure /= targets;
    return sum / targets;
  }

  std::vector<double> held_out_measures() const override { return held_out_measures_; }

  std::string sample(const StopCheck& stops) override { return sample_ ? sample_->write(stops) : ""; }

  std::vector<std::string> introduction() const override {
    std::vector<std::string> lines = {describe_data(s_.settings.data, data_, *tokenizer_)};
    if (sample_) lines.push_back(sample_->describe());
    return lines;
  }

  std::string loss_unit() const override { return tokenizer_->name() == "byte" ? "nats a byte" : "nats a token"; }

 private:
  data::BatchOptions batch_options() const {
    const plan::StepRequest& request = s_.engine->plan().request;
    return {.shard_index = request.data_index(),
            .num_shards = request.num_data_ranks(),
            .micro_batch = s_.settings.train.micro_batch_size,
            .global_batch = s_.settings.train.global_batch_size,
            .num_workers = s_.settings.data.num_workers};
  }

  Session& s_;
  std::unique_ptr<text::Tokenizer> tokenizer_;
  data::TrainingData data_;
  optim::LrSchedule schedule_;
  std::vector<double> held_out_measures_;
  int64_t samples_ = 0;  ///< consumed since the start of training, or since the data changed
  std::unique_ptr<data::BatchLoader> loader_;
  std::unique_ptr<LedgerFile> ledger_;
  std::optional<SampleReply> sample_;  ///< absent: none is written
};

}  // namespace

int pretrain(const Settings& settings, const launch::RankEnvironment& environment) {
  forget_earlier_run(settings.out_dir, environment);
  return run_task(settings, environment, [](auto&... with) { return std::make_unique<Pretraining>(with...); });
}

}  // namespace trireme::train
