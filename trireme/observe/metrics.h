// metrics.jsonl: one JSON object a line for every logged step, for scripts and for the loss curve.
//
//   step               steps done since the start of training
//   tokens             tokens seen since the start of training
//   loss               mean training loss of the step, nats a token; only if a token of it was learned
//   val_loss           held-out loss, only if the step ended with an evaluation
//   measures           an object of further numbers, only of models whose loss has parts (docs/free-transformer.md)
//   grad_norm          global gradient norm before clipping
//   lr                 learning rate of the step
//   loss_scale         scale of the next step's loss, only if losses are scaled
//   skipped            steps of the run skipped because a gradient overflowed, only with loss_scale
//   tokens_per_second  of the whole job
//   peak_fraction      share of the machine's peak arithmetic, only when known
//   seconds            wall time of the step
//   rss_bytes          resident memory of the reporting rank, read once a second
//   shared_bytes       the part of it that other processes map too, only when known
//   resumed            step of the checkpoint that this part of the run was resumed from, only on its first line
//   measured_anew      true beside it, if losses of earlier lines are not to be compared: of other data or objectives
//
// A number that is not finite is null. Each line is written with one write call, so a crash truncates at most the last
// line, which readers skip.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/files.h"
#include "trireme/base/progress.h"

namespace trireme::observe {

struct MetricsRow {
  int64_t step = 0;
  int64_t tokens = 0;
  std::optional<double> loss;
  std::optional<double> val_loss;
  std::vector<base::Measured> measures = {};
  double grad_norm = 0;
  double lr = 0;
  std::optional<double> loss_scale;
  int64_t skipped = 0;
  double tokens_per_second = 0;
  std::optional<double> peak_fraction;
  double seconds = 0;
  int64_t rss_bytes = 0;
  std::optional<int64_t> shared_bytes;
  std::optional<int64_t> resumed;
  bool measured_anew = false;

  // Not in the file: what LitGPT's table has (loggers.h).
  double epoch = 0;
  double eta_seconds = 0;  ///< to the end of training; NaN when unknown
};

MetricsRow metrics_row(const base::StepEvent& event);

/// `found` and what else the row of its step in the file at `path` says; `found` alone if there is none.
/// Errors    as read_metrics
base::StepEvent joined_with_row(base::StepEvent found, const std::filesystem::path& path);

/// Whether the file at `path` has rows of later steps; false if it is not there. Errors    as read_metrics
bool has_later_rows(const std::filesystem::path& path, int64_t step);

/// The row as one line of JSON, without line end.
std::string to_json(const MetricsRow& row);

/// The row's numbers by their names there, without those that say where the run is.
std::vector<base::Measured> numbers_of(const MetricsRow& row);

/// Where a run's numbers go: metrics.jsonl, and what gets every row that is written there.
class Logger {
 public:
  virtual ~Logger() = default;
  virtual void append(const MetricsRow& row) = 0;
  /// Training begins, or goes on behind a checkpoint.
  virtual void go_on() {}
};

class MetricsWriter final : public Logger {
 public:
  /// A new run (`resumed_step` 0) begins an empty file. A resumed run keeps the lines up to and including
  /// `resumed_step`, because it repeats the later steps; they go when it goes on, or with the first row.
  /// Errors    FileError
  MetricsWriter(std::filesystem::path path, int64_t resumed_step);
  void go_on() override;

  /// A second row of the last step replaces the first, and keeps its marks of a resume.
  void append(const MetricsRow& row) override;

 private:
  std::filesystem::path path_;
  base::FileDescriptor file_;
  std::optional<int64_t> cut_behind_;  ///< this step, before anything is written
  // Of the file's last row.
  std::optional<int64_t> last_step_, last_resumed_;
  bool last_anew_ = false;
};

/// Writes every `log_interval`-th step, those with an evaluation, and the last one, whatever ends the run.
class MetricsSink final : public base::ProgressSink {
 public:
  MetricsSink(int64_t resumed_step, bool measured_anew, int64_t log_interval,
              std::function<void(const MetricsRow&)> write);
  void step(const base::StepEvent& event) override;
  void phase(const base::PhaseEvent&) override {}
  /// No step comes any more.
  void finish();

 private:
  void write(const base::StepEvent& event);

  int64_t log_interval_;
  std::optional<base::StepEvent> unwritten_;  ///< the newest step
  std::optional<int64_t> resumed_;  // until it has been written
  bool measured_anew_;
  std::function<void(const MetricsRow&)> write_;
};

/// All rows of the file in its order, without a truncated last line.
/// Errors    FileError if it cannot be read; UsageError naming a line that is not a row
std::vector<MetricsRow> read_metrics(const std::filesystem::path& path);

}  // namespace trireme::observe
