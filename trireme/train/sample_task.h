// SampleTask: what the tasks of this program have in common: samples from a stream in a fixed order, batches prepared
// by threads, and an evaluation of what is held out. A task that derives from it brings the data and words about them.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/data/batch_loader.h"
#include "trireme/data/training_data.h"
#include "trireme/optim/lr_schedule.h"
#include "trireme/text/tokenizer.h"
#include "trireme/train/ledger_file.h"
#include "trireme/train/setup.h"
#include "trireme/train/task.h"

namespace trireme::train {

class SampleTask : public Task {
 public:
  SampleTask(Session& session, data::TrainingData data);

  std::string restore(RunState& state) override;
  void load(int64_t step, int micro_batch, const engine::BatchTensors& to) override;
  int64_t supervised_tokens(int64_t step) const override;
  double learning_rate(int64_t step) const override { return schedule_.at(step); }
  void after_step(RunState& state) override;
  int64_t num_steps() const override;
  double epoch() const override;
  int64_t held_out_samples() const override { return data_.val ? data_.val->num_samples() : 0; }
  std::optional<double> evaluate(const StopCheck& stops, const std::function<bool()>& is_asked_to_stop) override;
  std::vector<double> held_out_measures() const override { return held_out_measures_; }
  std::string held_out_text() const override { return "what is held out has no token to learn, so it has no loss"; }

 protected:
  Session& session() const { return s_; }
  const data::TrainingData& data() const { return data_; }

  /// Fills the tensors of a micro-batch; `held_out`: of evaluate().
  virtual void put(const engine::BatchTensors& to, const data::Batch& batch, bool held_out);

  data::BatchOptions batch_options() const;

 private:
  Session& s_;
  data::TrainingData data_;
  Done done_;  ///< before this start
  optim::LrSchedule schedule_;
  std::vector<double> held_out_measures_;
  int64_t samples_ = 0;  ///< consumed since the start of training, or since the data changed
  std::unique_ptr<data::BatchLoader> loader_;
  std::unique_ptr<LedgerFile> ledger_;
};

}  // namespace trireme::train
