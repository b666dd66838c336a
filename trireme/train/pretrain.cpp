#include "trireme/train/pretrain.h"

#include <memory>
#include <optional>

#include "trireme/train/classify.h"
#include "trireme/train/grpo.h"
#include "trireme/train/introduction.h"
#include "trireme/train/out_dir.h"
#include "trireme/train/preferences.h"
#include "trireme/train/run_data.h"
#include "trireme/train/sample_reply.h"
#include "trireme/train/sample_task.h"
#include "trireme/train/setup.h"

namespace trireme::train {
namespace {

class Pretraining : public SampleTask {
 public:
  Pretraining(Session& session, std::unique_ptr<text::Tokenizer> tokenizer, data::TrainingData data)
      : SampleTask(session, std::move(data)), tokenizer_(std::move(tokenizer)) {
    if (session.settings.eval.max_new_tokens) sample_.emplace(session, SampleTask::data(), *tokenizer_);
  }

  std::string restore(RunState& state) override {
    std::string changed = SampleTask::restore(state);
    if (data().chat_template.empty()) stop_between_texts(session(), *tokenizer_, state);
    return changed;
  }

  bool samples() const override { return sample_.has_value(); }
  std::string sample(const StopCheck& stops) override { return sample_->write(stops); }

  std::vector<std::string> introduction() const override {
    std::vector<std::string> lines = {describe_data(session().settings.data, data(), *tokenizer_)};
    if (sample_) lines.push_back(sample_->describe());
    return lines;
  }

  std::string loss_unit() const override { return tokenizer_->name() == "byte" ? "nats a byte" : "nats a token"; }

 private:
  std::unique_ptr<text::Tokenizer> tokenizer_;
  std::optional<SampleReply> sample_;  ///< absent: none is written
};

std::unique_ptr<Task> make_task(Session& session, const std::filesystem::path& resume, const StopCheck& stops) {
  if (session.settings.task == Learning::classify) return make_classification(session, resume, stops);
  if (session.settings.task == Learning::rewards) return make_grpo(session, resume, stops);
  if (session.settings.task == Learning::preferences) return make_preferences(session, resume, stops);
  auto tokenizer = load_run_tokenizer(session);
  data::TrainingData data = load_run_data(session, resume, *tokenizer, stops);
  return std::make_unique<Pretraining>(session, std::move(tokenizer), std::move(data));
}

}  // namespace

int pretrain(const Settings& settings, const launch::RankEnvironment& environment) {
  forget_earlier_run(settings.out_dir, environment);
  return run_task(settings, environment, make_task);
}

}  // namespace trireme::train
