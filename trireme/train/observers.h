// Observers: the screen and the files of a training run. Only rank 0 shows anything.
#pragma once

#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <string>

#include "trireme/base/files.h"
#include "trireme/base/stopwatch.h"
#include "trireme/observe/metrics.h"
#include "trireme/observe/progress_line.h"
#include "trireme/observe/tensorboard.h"
#include "trireme/train/foresight.h"
#include "trireme/train/out_dir.h"
#include "trireme/train/session.h"

namespace trireme::train {

class Observers {
 public:
  Observers(const Observers&) = delete;
  Observers& operator=(const Observers&) = delete;
  Observers(const Session& s, int64_t resumed_step)
      : on_error_(s.settings.save.on_error), recorder_(s.ranks.meeting.recorder), foresight_(s.foresight) {
    if (!s.is_first_rank()) return;
    std::filesystem::create_directories(s.settings.out_dir);
    observe::ProgressLineOptions options = observe::progress_options_for(stdout);
    options.log_interval = s.settings.train.log_interval;
    line_ = std::make_unique<observe::ProgressLine>(options);
    const std::filesystem::path out_dir = s.settings.out_dir;
    std::function<void(const observe::MetricsRow&)> and_then;
    if (s.settings.train.tensorboard) {
      events_ = std::make_unique<observe::EventWriter>(out_dir / kEventsFolder, resumed_step);
      and_then = [this](const observe::MetricsRow& row) { events_->append(row); };
    }
    metrics_ = std::make_unique<observe::MetricsSink>(out_dir / "metrics.jsonl", resumed_step,
                                                      s.settings.train.log_interval, std::move(and_then));
  }
  /// "": says nothing.
  void say(const std::string& line) {
    if (line_ && !line.empty()) line_->say(line);
  }
  void step(const base::StepEvent& event) {
    if (!line_) return;
    line_->step(event);
    record(event);
  }
  void finish() {
    if (foresight_) say(foresight_->finish());
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
    if (line_) line_->phase({.kind = base::PhaseEvent::Kind::end, .name = name, .seconds = watch.seconds()});
    return result;
  }

 private:
  void record(const base::StepEvent& event) try {
    if (metrics_) metrics_->step(event);
  } catch (const base::FileError& error) {
    if (on_error_ == checkpoint::OnSaveError::stop) throw;
    metrics_.reset();
    say(fmt::format("warn     metrics.jsonl ends at step {}: {}", event.step - 1, error.what()));
  }

  checkpoint::OnSaveError on_error_;
  std::shared_ptr<comm::FlightRecorder> recorder_;
  std::shared_ptr<Foresight> foresight_;
  std::unique_ptr<observe::ProgressLine> line_;
  std::unique_ptr<observe::EventWriter> events_;
  std::unique_ptr<observe::MetricsSink> metrics_;
};

}  // namespace trireme::train
