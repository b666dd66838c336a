// What observing a run costs: --profile, the loggers, and the watch for disturbances, each beside a step of the model.
//   ninja observe_bench && ./observe_bench [steps] [trireme's words]
// By default 60 steps of llama-5m: 2 sequences of 256 tokens, float32, one thread. Steps with and without the profile
// take turns; a figure is the median of the steps' processor time. Programs on the same core still move it by some
// percent, so the profile's work is timed alone, too: that of one operation, times the operations of a step. Each
// logger gets the same row 20,000 times, in a folder of its own; the command is `cat`.
#include <fmt/format.h>
#include <stdlib.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "trireme/observe/host_usage.h"
#include "trireme/observe/loggers.h"
#include "trireme/observe/metrics.h"
#include "trireme/observe/profile.h"
#include "trireme/observe/tensorboard.h"
#include "trireme/settings/parse.h"
#include "trireme/train/disturbance_watch.h"
#include "trireme/train/session.h"
#include "trireme/train/step.h"

namespace {

namespace fs = std::filesystem;
namespace observe = trireme::observe;
namespace train = trireme::train;

double now_ms() {
  timespec t{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return double(t.tv_sec) * 1e3 + double(t.tv_nsec) * 1e-6;
}

double median(std::vector<double> ms) {
  std::sort(ms.begin(), ms.end());
  return ms[ms.size() / 2];
}

/// The same tokens in every step.
class Tokens : public train::StepTask {
 public:
  explicit Tokens(train::Session& s) : s_(s), some_(size_t(s.engine->plan().request.shape.tokens()), 7) {}
  void load(int64_t, int, const trireme::engine::BatchTensors& to) override {
    s_.load(to, {.inputs = some_, .targets = some_, .document_starts = some_});
  }
  int64_t supervised_tokens(int64_t) const override { return s_.tokens_per_step(); }
  double learning_rate(int64_t) const override { return 1e-4; }

 private:
  train::Session& s_;
  std::vector<int64_t> some_;
};

/// Medians of steps without and with a profile, which take turns.
std::pair<double, double> profiled_steps(train::Session& s, int64_t steps) {
  Tokens tokens(s);
  observe::Profile profile(s.model, *s.engine, {.steps = steps + 1, .warmup = 0});
  std::vector<double> without, with;
  for (int64_t i = 1; i <= 2 * steps; ++i) {
    const bool measures = i % 2 == 0;
    const double before = now_ms();
    if (measures) profile.begin_step(i);
    train::take_step(s, tokens, i);
    if (measures) profile.end_step();
    (measures ? with : without).push_back(now_ms() - before);
  }
  return {median(without), median(with)};
}

struct AloneCost {
  double operation_ms = 0;
  int64_t operations = 0;  ///< of a step
};

AloneCost profile_alone(train::Session& s) {
  constexpr int kTimes = 100'000;
  Tokens tokens(s);
  trireme::costs::OperationTimer timer;
  timer.start();
  train::take_step(s, tokens, 1);
  AloneCost cost;
  for (const trireme::costs::TimedOperation& operation : timer.operations()) cost.operations += operation.calls;
  const double before = now_ms();
  for (int i = 0; i < kTimes; ++i) {
    timer.begins({.name = "norm", .dtype = at::kFloat, .m = i % 40, .n = 256, .k = 1});
    timer.ends();
  }
  cost.operation_ms = (now_ms() - before) / kTimes;
  return cost;
}

double watched_step(train::Session& s) {
  constexpr int kSteps = 20'000;
  train::DisturbanceWatch watch(s);
  const double before = now_ms();
  for (int i = 0; i < kSteps; ++i) watch.after_step();
  return (now_ms() - before) / kSteps;
}

/// One reading of what the kernel counts.
double look_ms() {
  constexpr int kTimes = 1000;
  const double before = now_ms();
  for (int i = 0; i < kTimes; ++i) observe::read_host_usage();
  return (now_ms() - before) / kTimes;
}

// metrics.jsonl, which every run has.
class Jsonl final : public observe::Logger {
 public:
  explicit Jsonl(const fs::path& folder) : writer_(folder / "metrics.jsonl", 0) {}
  void append(const observe::MetricsRow& row) override { writer_.append(row); }

 private:
  observe::MetricsWriter writer_;
};

double logged_row(const std::function<std::unique_ptr<observe::Logger>(const fs::path&)>& make,
                  const fs::path& folder) {
  constexpr int kRows = 20'000;
  const std::unique_ptr<observe::Logger> logger = make(folder);
  observe::MetricsRow row{.tokens = 1'000'000,
                          .loss = 2.345678901,
                          .grad_norm = 0.612345678,
                          .lr = 1.9e-3,
                          .tokens_per_second = 12430.5,
                          .peak_fraction = 0.71234,
                          .seconds = 0.31234,
                          .rss_bytes = 432013312};
  const double before = now_ms();
  for (row.step = 1; row.step <= kRows; ++row.step) logger->append(row);
  return (now_ms() - before) / kRows;
}

}  // namespace

int main(int argc, char** argv) {
  const int64_t steps = argc > 1 ? std::max(1, std::atoi(argv[1])) : 60;
  std::string folder = (fs::temp_directory_path() / "observe-bench-XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) return 1;
  std::vector<std::string> words = {"llama-5m",
                                    "--precision=32-true",
                                    "--train.max_seq_length=256",
                                    "--train.global_batch_size=2",
                                    "--train.micro_batch_size=2",
                                    "--launch.threads_per_rank=1",
                                    "--out_dir=" + folder};
  words.insert(words.end(), argv + std::min(argc, 2), argv + argc);
  const auto s = train::make_session(trireme::parse_settings(words).settings, {});
  s->engine->initialize(1);

  const auto [plain, profiled] = profiled_steps(*s, steps);
  fmt::print("step            {:10.3f} ms of processor time, median of {}\n", plain, steps);
  fmt::print("with --profile  {:10.3f} ms  {:+.2f} %\n", profiled, 100 * (profiled / plain - 1));
  const auto share = [&](const char* name, double ms) {
    fmt::print("{:<16}{:10.4f} ms  {:.4f} % of a step\n", name, ms, 100 * ms / plain);
  };
  const AloneCost alone = profile_alone(*s);
  fmt::print("profile alone   {:10.4f} us for each of {} operations\n", 1e3 * alone.operation_ms, alone.operations);
  share("  of a step", alone.operation_ms * double(alone.operations));
  share("watch", watched_step(*s));
  const double look = look_ms();
  fmt::print("{:<16}{:10.4f} ms  {:.4f} % of a second, in which there is one\n", "  a look", look, look / 10);
  const std::map<std::string, std::function<std::unique_ptr<observe::Logger>(const fs::path&)>> loggers = {
      {"jsonl", [](const fs::path& f) { return std::make_unique<Jsonl>(f); }},
      {"tensorboard", [](const fs::path& f) { return std::make_unique<observe::EventWriter>(f / "events", 0); }},
      {"csv",
       [](const fs::path& f) {
         return std::make_unique<observe::CsvLogger>(f / "metrics.csv", 0, observe::CsvLogger::Run{});
       }},
      {"command",
       [](const fs::path&) {
         return std::make_unique<observe::CommandLogger>(std::vector<std::string>{"sh", "-c", "cat > /dev/null"},
                                                         observe::CommandLogger::Run{}, [](const std::string&) {});
       }},
      {"prometheus", [](const fs::path&) { return std::make_unique<observe::PrometheusServer>("127.0.0.1", 0); }}};
  double all = 0;
  for (const auto& [name, make] : loggers) {
    const double ms = logged_row(make, folder);
    share(name.c_str(), ms);
    all += ms;
  }
  share("all loggers", all);
  fs::remove_all(folder);
}
