#include <ATen/ATen.h>
#include <fmt/format.h>

#include "trireme/base/processor.h"
#include "trireme/base/text.h"
#include "trireme/bench/commands.h"
#include "trireme/bench/limits.h"
#include "trireme/bench/measure.h"
#include "trireme/data/batch_loader.h"
#include "trireme/machine/limits.h"
#include "trireme/train/session.h"
#include "trireme/train/setup.h"
#include "trireme/train/step.h"

namespace trireme::bench {
namespace {

struct Setup {
  Settings settings;
  data::TrainingData data;
  data::BatchOptions options;
  int64_t sequence = 0;
  int64_t tokens = 0;  // of a micro-batch
};

Setup set_up(const Settings& given) {
  Setup s{.settings = given};
  s.settings.devices = 1;
  s.settings.train.global_batch_size = given.train.micro_batch_size;
  const model::ModelConfig model = model::config_of(s.settings.model);
  if (given.task != train::Learning::language || model.is_classifier())
    throw UsageError(
        "error: bench data loads texts that a model continues; leave task out, and take a model without labels");
  s.sequence = train::sequence_length(s.settings, model);
  s.data = data::load_training_data(train::training_data_options(s.settings, s.sequence),
                                    *train::resolve_tokenizer(s.settings, model));
  s.options = {.micro_batch = given.train.micro_batch_size,
               .global_batch = given.train.micro_batch_size,
               .num_workers = given.data.num_workers};
  s.tokens = given.train.micro_batch_size * s.sequence;
  return s;
}

data::BatchLoader loader_of(const Setup& s) { return {s.data.train, s.options}; }

Row tokens_row(const std::string& name, const Setup& s, const std::vector<double>& seconds, const std::string& limit) {
  Row row{.name = name,
          .shape = fmt::format("{} x {} tokens", s.options.micro_batch, s.sequence),
          .unit = "tokens/s",
          .limit = limit};
  set_times(row, seconds, static_cast<double>(s.tokens));
  return row;
}

// Batches from the loader, as in training.
class LoadedBatches : public train::StepTask {
 public:
  LoadedBatches(const Setup& s, train::Session& session) : session_(session), loader_(loader_of(s)) {}

  void load(int64_t, int, const engine::BatchTensors& to) override { session_.load(to, loader_.next()); }
  int64_t supervised_tokens(int64_t) const override { return session_.tokens_per_step(); }
  double learning_rate(int64_t) const override { return 1e-4; }

 private:
  train::Session& session_;
  data::BatchLoader loader_;
};

std::vector<double> step_seconds(const Setup& s, train::Session& session) {
  LoadedBatches batches(s, session);
  int64_t step = 0;
  const Budget budget = s.settings.bench.quick ? Budget{.seconds = 0.1, .least = 2, .most = 3}
                                               : Budget{.seconds = 3, .least = 3, .most = 20};
  return time_calls([&] { train::take_step(session, batches, ++step); }, budget);
}

}  // namespace

int bench_data(const Settings& settings, const std::string& command) {
  const int threads = use_threads(settings);
  const Setup s = set_up(settings);
  const Budget budget = Budget::of(settings.bench.quick);
  Report report = new_report("data", command);
  Progress progress("bench data");

  // A token of this corpus is one byte; it is written twice as int64: as an input and as a target.
  const double token_bytes = 1 + 16;
  const std::string moved = fmt::format("copy of {:.0f} bytes a token, 1 thread", token_bytes),
                    arithmetic = fmt::format("the model's products at the register loop's peak, {}",
                                             base::plural(threads, "thread"));
  progress.step(1, 3, "the loader");
  data::BatchLoader loader = loader_of(s);
  const Row background = tokens_row(fmt::format("loader, {} of its own", base::plural(s.options.num_workers, "thread")),
                                    s, time_calls([&] { loader.next(); }, budget), moved);
  data::BatchOptions without = s.options;
  without.num_workers = 0;
  data::BatchLoader caller(s.data.train, without);
  const Row inline_row = tokens_row("loader without a thread", s, time_calls([&] { caller.next(); }, budget), moved);
  progress.step(2, 3, "training steps");
  const launch::RankEnvironment alone;
  const auto session = train::make_session(s.settings, alone);
  session->engine->initialize(static_cast<uint64_t>(settings.seed));
  Row step = tokens_row("a training step", s, step_seconds(s, *session), arithmetic);
  step.shape += fmt::format(", {}, {}", session->model.config.name, base::plural(threads, "thread"));
  report.rows = {background, inline_row, step};
  for (Row& row : report.rows) row.values = {{"steps fed at once", row.rate / step.rate}};

  const double copy = machine::measure_copy(1, base::core_cache_bytes() / 4).best(),
               flops = machine::register_loop_flops(session->precision.compute, threads);
  report.limits = {{moved, copy / token_bytes, "tokens/s"},
                   {arithmetic, flops / session->flops_per_token(), "tokens/s"}};
  deliver(report, settings);
  return 0;
}

}  // namespace trireme::bench
