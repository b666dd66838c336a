// Loggers: where a run's numbers go beside metrics.jsonl. Each gets every row that is written there.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/child_process.h"
#include "trireme/base/crew.h"
#include "trireme/base/files.h"
#include "trireme/observe/metrics.h"

namespace trireme::observe {

/// metrics.csv: LitGPT's columns by their names and in their order, then one for each other number of metrics.jsonl. A
/// number that a row lacks is empty. A new number becomes a new last column, for which the file is written again.
///
/// `step` is the optimizer's step, as in LitGPT's output. In LitGPT's file it is iter - 1, because Lightning's logger
/// writes its own number over it. A held-out loss is in the row of its step, not in a row of its own.
/// Source    litgpt/pretrain.py, lightning/fabric/loggers/csv_logs.py
class CsvLogger final : public Logger {
 public:
  struct Run {
    int64_t micro_batches = 1;  ///< of a step and rank
    int64_t data_ranks = 1;
    bool has_perplexity = true;  ///< the loss is of a token or byte, so exp of it is the perplexity
  };
  /// What the last row says of the steps before this start, which may have had other ranks and batches.
  struct Before {
    int64_t step = 0, micro_batches = 0, tokens = 0, total_tokens = 0;  ///< the middle two of a rank
  };
  /// As MetricsWriter: a resumed run keeps the rows up to and including `resumed_step`, and counts on from the last.
  /// Errors    FileError; UsageError for a file that this class did not write
  CsvLogger(std::filesystem::path path, int64_t resumed_step, Run run);
  void go_on() override;
  void append(const MetricsRow& row) override;

 private:
  std::filesystem::path path_;
  Run run_;
  Before before_;
  std::optional<int64_t> last_step_;  ///< of the file's last row
  std::vector<std::string> columns_;
  std::optional<std::string> kept_;  ///< what the file will hold when the run goes on
  base::FileDescriptor file_;
};

/// Errors    UsageError: no file of the program `words.front()` may be executed
void check_program(const std::vector<std::string>& words);

/// Writes each row as metrics.jsonl has it to the standard input of a program. Training never waits for the program:
/// what it does not read in time is kept up to 1 MiB, and then left out. A program that ends is told of once, and not
/// started again.
class CommandLogger final : public Logger {
 public:
  using Say = std::function<void(const std::string& line)>;
  /// What the program finds in its environment: RUN_NAME and RUN_FOLDER.
  struct Run {
    std::string name, folder;
  };
  /// Seconds until all of this must have ended; nothing: no such time is known.
  using TimeLeft = std::function<std::optional<double>()>;
  /// Errors    as check_program
  CommandLogger(const std::vector<std::string>& words, const Run& run, Say say, TimeLeft time_left = {});
  /// Gives the program ten seconds to read the rest and to end, or what is left if that is less. One that is killed
  /// then is told of.
  ~CommandLogger() override;
  void append(const MetricsRow& row) override;

 private:
  bool ends_soon();
  void send_waiting();

  std::vector<std::string> words_;
  Say say_;
  TimeLeft time_left_;
  base::ChildProcess child_;
  std::string waiting_;
  bool has_ended_ = false, leaves_out_ = false;
};

/// Errors    UsageError: PrometheusServer could not listen there now
void check_prometheus_port(const std::string& address, uint16_t port);

/// The newest row for Prometheus: GET /metrics at a port, in its text format.
class PrometheusServer final : public Logger {
 public:
  /// Errors    UsageError: the port is taken, or the address is none of this machine's
  PrometheusServer(const std::string& address, uint16_t port);
  ~PrometheusServer() override;
  void append(const MetricsRow& row) override;

 private:
  void serve();
  std::string text();

  base::FileDescriptor listener_, wake_;
  std::mutex mutex_;  ///< guards row_
  std::optional<MetricsRow> row_;
  std::optional<base::Crew> crew_;  ///< one thread
};

}  // namespace trireme::observe
