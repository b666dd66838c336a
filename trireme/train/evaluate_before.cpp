#include "trireme/train/evaluate_before.h"

#include <fmt/format.h>

#include <limits>
#include <optional>
#include <utility>

#include "trireme/train/measures.h"

namespace trireme::train {
namespace {

std::function<bool()> is_asked(const Stopping& stopping) {
  return [&stopping] { return stopping.is_requested(); };
}

void evaluate_first(Session& s, Task& task, Observers& observers, const Stopping& stopping, const StopCheck& stops) {
  const std::optional<double> loss = task.evaluate(stops, is_asked(stopping));
  if (stopping.stops()) return;
  s.phases.end("evaluation");
  observers.say(loss ? fmt::format("held-out loss {:.4f} before training", *loss) : task.held_out_text());
  if (task.samples()) observers.say(task.sample(stops));
}

void make_up(Session& s, Task& task, const RunState& state, Observers& observers, const Stopping& stopping,
             const StopCheck& stops) {
  constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();  // unless the step's row has it
  base::StepEvent event{.step = state.step,
                        .max_steps = task.num_steps(),
                        .grad_norm = kUnknown,
                        .lr = kUnknown,
                        .tokens = state.tokens,
                        .eta_seconds = kUnknown,
                        .epoch = task.epoch(),
                        .is_kept = true};
  event.val_loss = observers.phase("evaluate", [&] { return task.evaluate(stops, is_asked(stopping)); });
  if (stopping.stops()) return;
  s.phases.end("evaluation");
  add_measures(event, s.model, {}, task.held_out_measures());
  task.add_measures(event, true);
  observers.make_up(event, s.settings.out_dir);
  observers.sample(state.step, task, stops);
}

}  // namespace

void evaluate_before_training(Session& s, Task& task, RunState& state, Observers& observers, const Stopping& stopping,
                              const StopCheck& stops) {
  if (std::exchange(state.evaluation_due, false))
    make_up(s, task, state, observers, stopping, stops);
  else if (s.settings.eval.initial_validation)
    evaluate_first(s, task, observers, stopping, stops);
}

}  // namespace trireme::train
