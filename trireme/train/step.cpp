#include "trireme/train/step.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "trireme/base/meter.h"
#include "trireme/observe/profile.h"
#include "trireme/train/foresight.h"

namespace trireme::train {
namespace {

// Micro-batches of each data rank, as in engine::StepInputs: the rows fill whole rounds of all data ranks.
std::optional<int> used_micro_batches(const Session& s, const StepTask& task, int64_t step) {
  const std::optional<int64_t> rows = task.used_rows(step);
  if (!rows) return std::nullopt;
  const plan::StepRequest& r = s.engine->plan().request;
  const int64_t of_round = r.shape.micro_batch * r.num_data_ranks();
  return static_cast<int>((*rows + of_round - 1) / of_round);
}

}  // namespace

double learning_rate(const Session& s, const StepTask& task, int64_t step) {
  const bool waits = s.settings.precision.scale_rule == model::ScaleRule::deepspeed;
  return task.learning_rate(waits ? step - s.skipped() : step);
}

int64_t tokens_of_step(const Session& s, const StepTask& task, int64_t step) {
  const std::optional<int64_t> rows = task.used_rows(step);
  return rows ? *rows * s.sequence() : s.tokens_per_step();
}

std::optional<double> loss_of(const Session& s, const engine::StepResult& result) {
  return s.last_learned_tokens > 0 ? std::optional(result.loss) : std::nullopt;
}

engine::StepResult take_step(Session& s, StepTask& task, int64_t step, const StepOptions& options) {
  engine::StepInputs inputs{
      .load_batch = [&task, step](int micro_batch,
                                  const engine::BatchTensors& to) { task.load(step, micro_batch, to); },
      .optimizer = s.optimizer(learning_rate(s, task, step), step),
      .max_norm = s.settings.train.max_norm,
      .seed = static_cast<uint64_t>(s.settings.seed),
      .loss_scale = s.loss_scale ? std::optional(s.loss_scale->scale()) : std::nullopt,
      .skipped = s.skipped(),
      .used_micro_batches = used_micro_batches(s, task, step),
      .give_up = options.give_up,
      .commit = options.commit};
  if (options.begins_together) s.world().barrier()->wait();
  if (s.profile) s.profile->begin_step(step);
  const observe::StepWatch watch(*s.engine);
  {
    const base::Metered reads_masks(base::Activity::data);
    s.last_learned_tokens = task.supervised_tokens(step);
    inputs.supervised_tokens = std::max<int64_t>(1, s.last_learned_tokens);
  }
  const engine::StepResult result = s.engine->train_step(inputs);
  s.last_step = watch.read();
  if (s.foresight) s.foresight->note(s.last_step);
  if (s.profile) s.profile->end_step(double(tokens_of_step(s, task, step)) / double(s.tokens_per_step()));
  if (s.loss_scale && result.committed) s.loss_scale->update(result.overflowed);
  return result;
}

}  // namespace trireme::train
