// Counting: sample i is i, i + 1, i + 2, ... modulo the vocabulary, and the model learns which number comes next.
#include "toy_task.h"

#include "trireme/train/setup.h"

namespace trireme::train {
namespace {

class Counting : public Task {
 public:
  explicit Counting(Session& session) : s_(session), schedule_(lr_schedule(s_.settings, num_steps())) {}

  std::string restore(RunState& state) override {
    state.data = data::DataIdentity({{"data", "counting"}});
    samples_ = state.samples;
    return "";
  }

  void load(int64_t, int micro_batch, const engine::BatchTensors& to) override {
    const plan::StepRequest& request = s_.engine->plan().request;
    const int64_t turn = int64_t{micro_batch} * request.num_data_ranks() + request.data_index();
    const int64_t rows = s_.settings.train.micro_batch_size, vocabulary = s_.model.config.vocab_size;
    std::vector<int64_t> inputs, targets;
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t i = 0; i < s_.sequence(); ++i) {
        const int64_t number = samples_ + turn * rows + row + i;
        inputs.push_back(number % vocabulary);
        targets.push_back((number + 1) % vocabulary);
      }
    s_.load(to, {.inputs = inputs, .targets = targets});
  }

  int64_t supervised_tokens(int64_t) const override { return s_.tokens_per_step(); }
  double learning_rate(int64_t step) const override { return schedule_.at(step); }

  void after_step(RunState& state) override {
    samples_ += s_.settings.train.global_batch_size;
    state.samples = samples_;
  }

  int64_t num_steps() const override { return s_.settings.train.max_steps.value_or(0); }
  double epoch() const override { return 0; }  // it never comes round
  int64_t held_out_samples() const override { return 0; }
  std::optional<double> evaluate(const StopCheck&, const std::function<bool()>&) override { return std::nullopt; }
  std::vector<std::string> introduction() const override { return {"data     numbers, each one more than the last"}; }
  std::string loss_unit() const override { return "nats a number"; }

 private:
  Session& s_;
  optim::LrSchedule schedule_;
  int64_t samples_ = 0;
};

}  // namespace

std::unique_ptr<Task> make_counting(Session& session, const std::filesystem::path&, const StopCheck&) {
  return std::make_unique<Counting>(session);
}

}  // namespace trireme::train
