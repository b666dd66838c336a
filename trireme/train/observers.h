// Observers: the screen and the files of a training run. Only rank 0 shows anything.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/base/stopwatch.h"
#include "trireme/observe/loggers.h"
#include "trireme/observe/metrics.h"
#include "trireme/observe/progress_line.h"
#include "trireme/observe/tensorboard.h"
#include "trireme/settings/parse.h"
#include "trireme/train/alike.h"
#include "trireme/train/disturbance_watch.h"
#include "trireme/train/epoch_loss.h"
#include "trireme/train/foresight.h"
#include "trireme/train/out_dir.h"
#include "trireme/train/pace.h"
#include "trireme/train/rollout.h"
#include "trireme/train/run_profile.h"
#include "trireme/train/session.h"
#include "trireme/train/stopping.h"
#include "trireme/train/task.h"
#include "trireme/train/written_or_told.h"

namespace trireme::train {

class Observers {
 public:
  Observers(const Observers&) = delete;
  Observers& operator=(const Observers&) = delete;
  /// Every rank must call. An evaluation_interval of 0: none. `epoch`: passes over the data before this start.
  /// `measured_anew`: evaluations before it are not to be compared with later ones.
  /// `stopping` outlives this.
  Observers(Session& s, const Pace& pace, const Stopping& stopping, int64_t evaluation_interval, int64_t resumed_step,
            double epoch, bool measured_anew)
      : on_error_(s.settings.save.on_error),
        recorder_(s.ranks.meeting.recorder),
        foresight_(s.foresight),
        disturbances_(s),
        epoch_loss_(epoch, s.settings.train.epochs,
                    s.settings.task == Learning::rewards ? steps_of_rollout(s.settings.grpo) : 1),
        cuts_texts_(s.settings.task == Learning::language && s.settings.data.packing == data::Packing::wrapped),
        writes_answers_(s.settings.task == Learning::rewards) {
    if (s.settings.profile.measure) s.profile = profile_ = profile_of_run(s, pace.peak_flops(), evaluation_interval);
    const std::string unlike = check_alike(s);
    if (!s.is_first_rank()) return;
    std::filesystem::create_directories(s.settings.out_dir);
    observe::ProgressLineOptions options = observe::progress_options_for(stdout);
    options.log_interval = s.settings.train.log_interval;
    line_ = std::make_unique<observe::ProgressLine>(options);
    say(unlike);
    const std::filesystem::path out_dir = s.settings.out_dir;
    open([&] { return std::make_unique<observe::MetricsWriter>(out_dir / "metrics.jsonl", resumed_step); });
    const TrainSettings& t = s.settings.train;
    const auto wants = [&](std::string_view name) {
      return t.loggers && std::ranges::find(*t.loggers, name) != t.loggers->end();
    };
    if (wants("tensorboard"))
      open([&] {
        auto events = std::make_unique<observe::EventWriter>(out_dir / kEventsFolder, resumed_step);
        events->append_text(resumed_step, "settings", to_yaml(s.settings));
        events_ = events.get();
        return events;
      });
    const plan::StepRequest& step = s.engine->plan().request;
    if (wants("csv"))
      open([&] {
        return std::make_unique<observe::CsvLogger>(
            out_dir / kCsvFile, resumed_step,
            observe::CsvLogger::Run{.micro_batches = step.num_micro_batches,
                                    .data_ranks = step.num_data_ranks(),
                                    .has_perplexity = s.settings.task == Learning::language});
      });
    if (t.logger_command)
      loggers_.push_back(std::make_unique<observe::CommandLogger>(
          *t.logger_command,
          observe::CommandLogger::Run{run_name(s.settings), std::filesystem::absolute(out_dir).string()},
          [this](const std::string& line) { say(line); },
          [&stopping] { return stopping.is_requested() ? std::optional(stopping.seconds_left()) : std::nullopt; }));
    if (t.prometheus_port)
      loggers_.push_back(
          std::make_unique<observe::PrometheusServer>(t.prometheus_address, static_cast<uint16_t>(*t.prometheus_port)));
    metrics_ = std::make_unique<observe::MetricsSink>(resumed_step, measured_anew, t.log_interval,
                                                      [this](const observe::MetricsRow& row) { append(row); });
  }
  /// Training goes on: rows of later steps, which an earlier start has written, go.
  void go_on() {
    with_loggers([](observe::Logger& logger) { logger.go_on(); });
  }
  /// "": says nothing.
  void say(const std::string& line) {
    if (line_ && !line.empty()) line_->say(line);
  }
  /// Runs what a task does for a step before the step begins. A profile's window begins before it.
  template <typename Work>
  void before_step(int64_t step, Work work) {
    if (profile_) profile_->open(step);
    const base::Stopwatch watch;
    work();
    if (profile_ && writes_answers_) profile_->between_steps(observe::Profile::Between::answers, watch.seconds());
  }
  void step(base::StepEvent event) {
    if (!line_) return;
    const std::string epoch = epoch_loss_.note(event);
    line_->step(event);
    if (metrics_) metrics_->step(event);
    if (!event.loss && !std::exchange(told_of_no_loss_, true))
      say(fmt::format("step {} learns from no token, so it has no loss{}", event.step,
                      cuts_texts_ ? ": data.packing wrapped cuts rows anywhere; best_fit keeps texts whole" : ""));
    say(epoch);
  }
  /// An evaluation of the step before this start. What `found` does not say, the step's row has.
  void make_up(const base::StepEvent& found, const std::filesystem::path& out_dir) {
    if (!line_) return;
    base::StepEvent event = found;
    bool leaves_rows = false;  // a run that ends here, with an earlier checkpoint, leaves those of later ones
    is_written([&] {
      event = observe::joined_with_row(found, out_dir / "metrics.jsonl");
      leaves_rows = event.max_steps > 0 && event.step >= event.max_steps &&
                    observe::has_later_rows(out_dir / "metrics.jsonl", event.step);
    });
    line_->step(event);
    if (metrics_ && !leaves_rows) metrics_->step(event);
  }
  /// After everything that follows a step. Every rank must call.
  void end_step(int64_t step) {
    if (profile_ && profile_->is_complete()) say_report();
    say(disturbances_.after_step());
  }
  /// Every rank must call.
  void finish() {
    if (profile_) say_report();
    if (foresight_) {
      is_written([this] { foresight_->write(); });
      say(foresight_->after());
    }
    if (metrics_) metrics_->finish();
    if (line_) line_->finish();
  }

  /// Runs `work`: shows that `name` has begun, and afterwards how long it took if that is worth a line.
  template <typename Work>
  auto phase(const std::string& name, Work work) {
    const base::Stopwatch watch;
    if (line_) line_->phase({.kind = base::PhaseEvent::Kind::begin, .name = name});
    recorder_->set_phase(name);
    auto result = work();
    recorder_->set_phase("");
    if (profile_ && name == "evaluate") profile_->between_steps(observe::Profile::Between::evaluation, watch.seconds());
    if (profile_ && name == "save") profile_->between_steps(observe::Profile::Between::save, watch.seconds());
    if (line_) line_->phase({.kind = base::PhaseEvent::Kind::end, .name = name, .seconds = watch.seconds()});
    return result;
  }

  /// What the model writes now, if the task has it write anything. Every rank must call.
  void sample(int64_t step, Task& task, const StopCheck& stops) {
    if (!task.samples()) return;
    const std::string text = phase("sample", [&] { return task.sample(stops); });
    say(text);
    if (events_ == nullptr || text.empty()) return;
    if (!is_written([&] { events_->append_text(step, "sample", text); })) leave_out(events_);
  }

 private:
  void say_report() {
    std::string report = profile_->report();
    if (!report.empty()) report.pop_back();  // say() ends the line
    say(report);
  }

  /// A file that cannot be begun, or cut at a resume, is one that cannot be written.
  template <typename Make>
  void open(const Make& make) {
    is_written([&] { loggers_.push_back(make()); });
  }

  void append(const observe::MetricsRow& row) {
    with_loggers([&](observe::Logger& logger) { logger.append(row); });
  }

  /// Files that cannot be written stop the run, or from now on nothing is written to them.
  template <typename Work>
  void with_loggers(const Work& work) {
    std::vector<const observe::Logger*> failed;
    for (const auto& logger : loggers_)
      if (!is_written([&] { work(*logger); })) failed.push_back(logger.get());
    for (const observe::Logger* logger : failed) leave_out(logger);
  }

  template <typename Write>
  bool is_written(const Write& write) {
    const std::string line = written_or_told(on_error_, write);
    say(line);
    return line.empty();
  }

  void leave_out(const observe::Logger* logger) {
    if (logger == events_) events_ = nullptr;
    std::erase_if(loggers_, [&](const auto& other) { return other.get() == logger; });
  }

  checkpoint::OnSaveError on_error_;
  std::shared_ptr<comm::FlightRecorder> recorder_;
  std::shared_ptr<Foresight> foresight_;
  std::shared_ptr<observe::Profile> profile_;
  DisturbanceWatch disturbances_;
  EpochLoss epoch_loss_;
  bool cuts_texts_, writes_answers_, told_of_no_loss_ = false;
  std::unique_ptr<observe::ProgressLine> line_;
  std::vector<std::unique_ptr<observe::Logger>> loggers_;
  observe::EventWriter* events_ = nullptr;  ///< one of them
  std::unique_ptr<observe::MetricsSink> metrics_;
};

}  // namespace trireme::train
