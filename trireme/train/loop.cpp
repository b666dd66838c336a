#include "trireme/train/task.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>

#include "trireme/base/error.h"
#include "trireme/base/stopwatch.h"
#include "trireme/checkpoint/agree.h"
#include "trireme/launch/supervise/stop_signal.h"
#include "trireme/launch/supervise/worker.h"
#include "trireme/train/evaluate_before.h"
#include "trireme/train/introduction.h"
#include "trireme/train/measures.h"
#include "trireme/train/observers.h"
#include "trireme/train/out_dir.h"
#include "trireme/train/pace.h"
#include "trireme/train/saver.h"
#include "trireme/train/setup.h"
#include "trireme/train/starting_point.h"
#include "trireme/train/stopping.h"
#include "trireme/train/trouble.h"

namespace trireme::train {
namespace {

// Thrown on all ranks, before the first step.
struct StoppedBeforeTheFirstStep {};

class Loop {
 public:
  Loop(const Settings& settings, const launch::RankEnvironment& environment)
      : s_(make_session(checked(settings, environment), environment)), c_(s_->settings), stopping_(*s_) {}

  int run(const MakeTask& make_task) try {
    begin(make_task);
    if (s_->is_first_rank())
      for (const std::string& line : introduction(*s_, *task_, *start_, moved_, *pace_)) say(line);
    if (has_held_out()) evaluate_before_training(*s_, *task_, state_, *observers_, stopping_, safe_point_);
    go_on_unless_stopped();
    if (last_ > 0 && state_.step >= last_)
      return say(nothing_to_do(c_, last_, state_.step, state_.tokens, s_->tokens_per_step())), 0;
    saver_->leave_later_behind(state_.step);
    observers_->go_on();
    launch::report_begun();
    while (!is_complete() && !stopping_.stops()) train_one();
    if (stopping_.stops() && state_.step == first_step_) throw StoppedBeforeTheFirstStep();
    const bool stops_early = stopping_.stops() && !is_complete();  // after the last step there is nothing left to stop
    finish(stops_early);
    return stops_early ? launch::kStoppedEarly : 0;
  } catch (const StoppedBeforeTheFirstStep&) {
    stopping_.close();
    stopping_.tell("before the first step");
    return launch::kStoppedEarly;
  } catch (const CommError& error) {
    if (launch::fault_of(error) == launch::Fault::timeout) tell_hang(c_, s_->environment);
    throw;
  }

 private:
  void begin(const MakeTask& make_task) {
    start_ = std::make_unique<StartingPoint>(*s_);
    task_ = make_task(*s_, start_->resume(), safe_point_);
    s_->phases.end("data");
    go_on_unless_stopped();
    check_out_dir(*s_);
    state_ = start_->load();
    s_->phases.end("weights");
    moved_ = task_->restore(state_);
    state_.settings_yaml = to_yaml(c_);  // until now those of the run that goes on
    state_.run = begin_run(c_.out_dir, s_->environment, s_->world());
    s_->phases.end("first batch");
    pace_ = std::make_unique<Pace>(*s_);
    last_ = task_->num_steps();
    evaluation_interval_ = evaluation_interval(c_, last_, task_->held_out_samples());
    s_->phases.end("measuring");
    stopping_.start_clock();
    first_step_ = state_.step;
    safe_point_();
    go_on_unless_stopped();
    const bool measured_anew = start_->is_measured_anew(moved_, task_->held_out_samples());
    checkpoint::agree(s_->world(), [&] {
      observers_ = std::make_unique<Observers>(*s_, *pace_, stopping_, has_held_out() ? evaluation_interval_ : 0,
                                               state_.step, task_->epoch(), measured_anew);
    });
    saver_ = std::make_unique<Saver>(*s_, [this](const std::string& line) { say(line); });
    if (!measured_anew && !start_->has_other_precision()) saver_->resumed_from(start_->resume(), state_.step);
  }

  void go_on_unless_stopped() const {
    if (stopping_.stops()) throw StoppedBeforeTheFirstStep();
  }

  void say(const std::string& line) { observers_->say(line); }

  void train_one() {
    const base::Stopwatch watch;
    const int64_t step = state_.step + 1;
    const bool is_drawn = c_.profile.schedule && step == first_step_ + kDrawnStep;
    const auto gives_up = [&] { return must_give_up(watch.seconds()); };
    observers_->before_step(step, [&] { task_->prepare(step, safe_point_, gives_up); });
    if (stopping_.stops()) return;
    const engine::StepResult result =
        take_step(*s_, *task_, step, {.begins_together = is_drawn, .give_up = gives_up, .commit = [this](bool gave_up) {
                                        return stopping_.commit(gave_up, saver_->busy());
                                      }});
    if (step == first_step_ + 1) s_->phases.end("first step");
    if (saver_->under_way() && !stopping_.any_is_busy()) saver_->advance();
    if (!result.committed)
      return say(fmt::format("step {} is given up: it would not have ended within launch.grace", step));
    if (is_drawn) say(draw_step(*s_, step));
    judge(step, result);
    state_.step = step;
    state_.tokens += tokens_of_step(*s_, *task_, step);
    task_->after_step(state_);
    launch::report_status(fmt::format("step {}", step));
    report(result, watch.seconds());
    if (step == first_step_ + 1) say(s_->phases.text());
    if (!is_complete() && c_.train.save_interval.value_or(0) > 0 && step % *c_.train.save_interval == 0)
      observers_->phase("save", [this] { return saver_->save(state_), safe_point_(); });
    observers_->end_step(step);
  }

  // All ranks have the same loss, so they all decide alike.
  void judge(int64_t step, const engine::StepResult& result) {
    const bool skips = result.overflowed && !s_->loss_scale->exhausted(), goes_on = skips || is_finite(result);
    if (skips) say(describe_skipped(*s_, step));
    if (!goes_on) saver_->finish();
    const std::string trouble = trouble_of(result, loss_of_guessing(c_.task, s_->model.config.vocab_size));
    !skips || shows_weights(result) ? saver_->saw(step, trouble) : saver_->suspect(step, trouble);
    if (goes_on) return;
    saver_->finish();
    throw Error(describe_not_finite(*s_, step, result));
  }

  void report(const engine::StepResult& result, double seconds) {
    base::StepEvent event{.step = state_.step,
                          .max_steps = last_,
                          .loss = loss_of(*s_, result),
                          .grad_norm = result.gradient_norm,
                          .lr = result.learning_rate,
                          .tokens = state_.tokens,
                          .epoch = task_->epoch()};
    pace_->took(seconds, tokens_of_step(*s_, *task_, state_.step), stopping_.seconds_to_limit(), event);
    const bool evaluates =
        has_held_out() && (is_complete() ? c_.eval.final_validation : state_.step % evaluation_interval_ == 0);
    event.is_kept = evaluates;
    if (evaluates)
      event.val_loss = observers_->phase("evaluate", [this] { return task_->evaluate(safe_point_, asked_); });
    state_.evaluation_due = evaluates && stopping_.stops() && !is_complete();  // the resumed run makes it up
    add_measures(event, s_->model, result.measures, task_->held_out_measures());
    task_->add_measures(event, evaluates);
    observers_->step(event);
    if (evaluates && !stopping_.stops()) observers_->sample(state_.step, *task_, safe_point_);
  }

  // Whether this step and a save of it would take longer than the time left; an unknown time counts as 0.
  bool must_give_up(double elapsed) const {
    return stopping_.is_requested() &&
           stopping_.seconds_left() < std::max(0.0, pace_->seconds_a_step() - elapsed) + saver_->expected_seconds();
  }

  bool is_complete() const { return (last_ > 0 && state_.step >= last_) || stopping_.time_is_up(); }  // on all ranks
  bool has_held_out() const { return task_->held_out_samples() > 0; }

  void finish(bool stops_early) {
    stopping_.close();
    observers_->phase("save", [this] { return saver_->finish(), saver_->save_last(state_), 0; });
    observers_->finish();
    if (stops_early && !s_->is_first_rank()) stopping_.tell(fmt::format("at step {}", state_.step));
    if (!s_->is_first_rank()) return;
    for (const std::string& line : draw_loss_curve(*s_, task_->loss_unit())) say(line);
    if (stopping_.stops()) say(stopping_.last_words(state_.step, stops_early, has_held_out()));
  }

  std::unique_ptr<Session> s_;
  const Settings& c_;
  Stopping stopping_;
  const StopCheck safe_point_ = [this] { return stopping_.agree(); };
  const std::function<bool()> asked_ = [this] { return stopping_.is_requested(); };
  std::unique_ptr<StartingPoint> start_;
  std::unique_ptr<Task> task_;
  RunState state_;
  std::string moved_;  ///< what Task::restore() returned
  std::unique_ptr<Pace> pace_;
  std::unique_ptr<Observers> observers_;
  std::unique_ptr<Saver> saver_;
  int64_t first_step_ = 0, last_ = 0, evaluation_interval_ = 1;
};

}  // namespace

int run_task(const Settings& settings, const launch::RankEnvironment& environment, const MakeTask& make_task) {
  return Loop(settings, environment).run(make_task);
}

}  // namespace trireme::train
