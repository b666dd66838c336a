#include "trireme/bench/commands.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "trireme/base/json.h"
#include "trireme/base/meter.h"
#include "trireme/base/named_file.h"
#include "trireme/base/text.h"
#include "trireme/bench/disk.h"
#include "trireme/bench/limits.h"
#include "trireme/bench/report.h"
#include "trireme/config/choices.h"
#include "trireme/costs/operation_table.h"
#include "trireme/costs/operation_timer.h"
#include "trireme/costs/step_costs.h"
#include "trireme/machine/nvml.h"
#include "trireme/observe/memory_usage.h"
#include "trireme/observe/peak.h"
#include "trireme/observe/timeline.h"
#include "trireme/ops/cuda/kernels.h"
#include "trireme/settings/derived.h"
#include "trireme/train/foresight.h"
#include "trireme/train/pace.h"
#include "trireme/train/session.h"
#include "trireme/train/setup.h"
#include "trireme/train/step.h"

namespace trireme::bench {
namespace {
using train::Session;

int64_t peak_rss_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss * 1024;
}

// Micro-batch i of data rank r always holds the same tokens, so the loss must fall.
void fill_fixed(std::vector<int64_t>& in, std::vector<int64_t>& out, int64_t vocabulary, uint64_t seed) {
  const auto n = std::ssize(in);
  uint64_t state = seed * 0x9e3779b97f4a7c15ull + 1;
  for (int64_t i = 0; i <= n; ++i) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    const auto token = static_cast<int64_t>((state >> 33) % static_cast<uint64_t>(vocabulary));
    if (i < n) in[i] = token;
    if (i > 0) out[i - 1] = token;
  }
}

// Rows of the table: where a step's time goes. They add up to the step, without hidden communication, which overlaps
// with the rest.
struct Row {
  const char* name;
  const char* text;
};
constexpr std::array<Row, 9> kRows = {{{"products", "matrix products"},
                                       {"attention", "attention"},
                                       {"elementwise", "element-wise"},
                                       {"communication_exposed", "communication, waited for"},
                                       {"communication_hidden", "communication, hidden"},
                                       {"optimizer", "optimizer"},
                                       {"data", "data"},
                                       {"offload", "host memory and disk, waited for"},
                                       {"idle", "between actions"}}};
constexpr size_t kExposedRow = 3, kHiddenRow = 4;

using Parts = std::array<double, kRows.size()>;

Parts parts_of(const observe::StepTime& time) {
  using base::Activity;
  const auto spent = [&](Activity a) { return time.causes[static_cast<size_t>(a)]; };
  return {spent(Activity::products),
          spent(Activity::attention),
          spent(Activity::elementwise),
          spent(Activity::communication),
          time.hidden,
          spent(Activity::optimizer),
          spent(Activity::data),
          spent(Activity::offload),
          spent(Activity::other)};
}

struct Steps {
  std::vector<double> seconds, losses;  ///< losses of the warm-up too
  std::vector<Parts> parts;
  std::map<std::string, std::vector<double>> actions;  ///< seconds a step in each kind of action
  double minor_faults = 0;  ///< a step
  std::vector<costs::TimedOperation> operations;  ///< if they are timed
  std::string prediction;  ///< as JSON, of the first rank if it is asked for
};

double median(const std::vector<double>& values) { return values[median_step(values)]; }

/// A task with the same tokens in every step, which are made when they are first needed.
class FixedBatches : public train::StepTask {
 public:
  explicit FixedBatches(Session& s) : s_(s), starts_(s.engine->plan().request.shape.tokens()) {}

  void load(int64_t, int micro_batch, const engine::BatchTensors& to) override {
    Batch& batch = batches_[micro_batch];
    if (batch.in.empty()) {
      batch.in.resize(starts_.size());
      batch.out.resize(starts_.size());
      const int data_index = s_.engine->plan().request.data_index();
      fill_fixed(batch.in, batch.out, s_.model.config.vocab_size,
                 uint64_t(micro_batch) * 1024 + uint64_t(data_index) + 1);
      if (const int64_t labels = s_.model.config.classifier.num_labels; labels > 0)
        for (int64_t& target : batch.out) target %= labels;  // of each text, its first target counts
    }
    s_.load(to, {.inputs = batch.in, .targets = batch.out, .document_starts = starts_});
  }
  int64_t supervised_tokens(int64_t) const override {
    return s_.model.config.is_classifier() ? s_.settings.train.global_batch_size : s_.tokens_per_step();
  }
  double learning_rate(int64_t) const override { return s_.settings.optimizer.lr; }

 private:
  Session& s_;
  struct Batch {
    std::vector<int64_t> in, out;
  };
  std::map<int, Batch> batches_;  ///< by micro-batch
  std::vector<int64_t> starts_;
};

void say(const Session& s, const std::string& text) {
  if (!s.is_first_rank()) return;
  fmt::print("{}\n", text);
  std::fflush(stdout);
}

Steps run_steps(Session& s, FixedBatches& batches, bool first) {
  Steps steps;
  const int64_t warmup = s.settings.bench.warmup, count = s.settings.bench.steps;
  int64_t faults_before = 0;
  std::optional<costs::OperationTimer> timer;
  for (int64_t i = 0; i < warmup + count; ++i) {
    if (i == warmup) faults_before = observe::page_faults().minor;
    if (i == warmup && s.settings.bench.operations) timer.emplace(s.device.is_cuda()).start();
    steps.losses.push_back(train::take_step(s, batches, i + 1).loss);
    const observe::StepTime& time = s.last_step;
    if (first && i == 0) {
      s.phases.end("first step");
      say(s, s.phases.text());
    }
    if (i < warmup) continue;
    steps.seconds.push_back(time.seconds);
    steps.parts.push_back(parts_of(time));
    for (const auto& [kind, seconds] : time.actions) steps.actions[schedule::name_of(kind)].push_back(seconds);
  }
  if (timer) steps.operations = timer->operations();
  if (first && s.foresight) {
    say(s, s.foresight->after());
    steps.prediction = s.foresight->json();
  }
  steps.minor_faults = double(observe::page_faults().minor - faults_before) / double(count);
  return steps;
}

Steps run_fenced_steps(Session& s, FixedBatches& batches) {
  base::set_meter_fence([] { ops::cuda_kernels().synchronize(); });
  Steps steps = run_steps(s, batches, false);
  base::set_meter_fence(nullptr);
  return steps;
}

struct Figures {
  double step, tokens_per_second;
  double peak;  ///< FLOP/s of all ranks, as train::measure_peak_flops
  double fraction;
  double divided_step;  ///< seconds of the step whose parts are shown
  Parts parts;
  std::optional<machine::GpuReading> gpu;  ///< right after the steps
  int64_t gpu_bytes = 0;  ///< the most that LibTorch's allocator held during the steps, which includes the plan
  double disk_bytes = 0;  ///< that all ranks move in a step
  DiskRates disk;  ///< if they move any
};

/// Whether each rank does an equal share of the model's work: not with recomputation or pipeline stages.
bool does_even_share(const Session& s) {
  return s.settings.recompute.mode == schedule::Recompute::none && s.engine->plan().request.size(comm::Axis::pp) == 1;
}

/// "   at 71.2 % of peak" for products and attention; empty for other rows.
std::string rate(const Session& s, const Figures& f, size_t row) {
  if (row > 1 || f.parts[row] <= 0 || !does_even_share(s)) return "";
  const double products = s.product_flops_per_token();
  const double flops = (row == 0 ? products : s.flops_per_token() - products) * f.tokens_per_second * f.step;
  return fmt::format("   at {:.1f} % of peak", flops / f.parts[row] / f.peak * 100);
}

void print(Session& s, const Steps& steps, const Figures& f) {
  const auto [fastest, slowest] = std::minmax_element(steps.seconds.begin(), steps.seconds.end());
  fmt::print("step     {:.1f} ms median of {} ({:.1f} to {:.1f}), {} tokens/s\n", f.step * 1e3, steps.seconds.size(),
             *fastest * 1e3, *slowest * 1e3, base::human_count(std::llround(f.tokens_per_second)));
  fmt::print(
      "peak     {:.1f} % of {:.0f} GFLOP/s, {}, counting 6 N {}+ 12 H d K\n"
      "         = {:.0f} MFLOP a token (K: keys that a query sees on average, summed over blocks)\n",
      f.fraction * 100, f.peak / 1e9, train::what_peak_is(s.precision.compute, s.device),
      s.model.num_frozen_product_parameters() > 0 ? "- 2 F " : "", s.flops_per_token() / 1e6);
  if (s.device.is_cuda())
    fmt::print("parts    of a step of {:.1f} ms, in which every action waits for the GPU\n", f.divided_step * 1e3);
  for (size_t i = 0; i < kRows.size(); ++i)
    if (i != kHiddenRow || f.parts[i] > 0)
      fmt::print("  {:<26}{:>9.1f} ms{:>7.1f} %{}\n", kRows[i].text, f.parts[i] * 1e3,
                 f.parts[i] / f.divided_step * 100, rate(s, f, i));
  fmt::print("memory   {} at most resident, {} planned; {:.0f} minor page faults a step\n",
             base::human_bytes(peak_rss_bytes()), base::human_bytes(s.engine->plan().arena.resident()),
             steps.minor_faults);
  if (f.disk.both > 0)
    fmt::print("disk     {:.2f} GB a step; it moves {:.2f} GB/s, which is {:.1f} s of the step's {:.1f}\n",
               f.disk_bytes / 1e9, f.disk.both, f.disk_bytes / 1e9 / f.disk.both, f.step);
  if (s.device.is_cuda())
    fmt::print("GPU      {} at most held by LibTorch's allocator, in which the plan lies\n",
               base::human_bytes(f.gpu_bytes));
  if (f.gpu) fmt::print("         {}\n", machine::text_of(*f.gpu));
}

/// In which the rank moves its costs::moved_bytes: communication, and the sums of a rank that reduces with nobody,
/// which count as element-wise.
double moved_seconds(const Session& s, const Steps& steps, const Figures& f) {
  double seconds = f.parts[kExposedRow];
  if (s.engine->plan().groups.reduce.size() != 1) return seconds;
  for (const schedule::ActionKind kind :
       {schedule::ActionKind::reduce_gradient, schedule::ActionKind::all_reduce_gradient})
    if (const auto sums = steps.actions.find(schedule::name_of(kind)); sums != steps.actions.end())
      seconds += median(sums->second);
  return seconds;
}

void write_json(const Session& s, const Steps& steps, const Figures& f) {
  nlohmann::ordered_json action_seconds, parts;
  for (const auto& [kind, times] : steps.actions) action_seconds[kind] = median(times);
  for (size_t i = 0; i < kRows.size(); ++i) parts[kRows[i].name] = f.parts[i];
  const Report here = new_report("train", "");
  nlohmann::ordered_json j = {{"date", here.date},
                              {"machine", here.machine},
                              {"processor", here.processor},
                              {"cores", here.cores},
                              {"libtorch", here.libtorch},
                              {"trireme", here.trireme},
                              {"model", s.model.config.name},
                              {"ranks", s.environment.world_size},
                              {"threads", at::get_num_threads()},
                              {"strategy", config::name_of(s.settings.strategy)},
                              {"precision", config::name_of(number_format(s.settings))},
                              {"backend", s.ranks.backend},
                              {"tokens_per_step", s.tokens_per_step()},
                              {"step_seconds", steps.seconds},
                              {"median_seconds", f.step},
                              {"tokens_per_second", f.tokens_per_second},
                              {"peak_flops", f.peak},
                              {"peak_fraction", f.fraction},
                              {"losses", steps.losses},
                              {"peak_rss_bytes", peak_rss_bytes()},
                              {"planned_bytes", s.engine->plan().arena.resident()},
                              {"device", s.device.is_cuda() ? "cuda" : "cpu"},
                              {"peak_gpu_bytes", f.gpu_bytes},
                              {"first_step_seconds", s.phases.total()},
                              {"parts", parts},
                              {"action_seconds", action_seconds},
                              {"minor_faults_per_step", steps.minor_faults}};
  if (f.disk.both > 0)
    j["disk"] = {{"bytes_per_step", f.disk_bytes},
                 {"rate", 1e9 * f.disk.both},
                 {"read_rate", 1e9 * f.disk.read},
                 {"write_rate", 1e9 * f.disk.write},
                 {"core_seconds_per_byte", 1e-9 * f.disk.work}};
  if (!steps.prediction.empty()) j["prediction"] = base::parse_json<nlohmann::ordered_json>(steps.prediction);
  if (s.settings.bench.operations) {
    j["operations"] = costs::operations_json(steps.operations, s.settings.bench.steps);
    j["moved_bytes"] = costs::moved_bytes(s.engine->plan());
    j["moved_seconds"] = moved_seconds(s, steps, f);
  }
  base::write_named_file(*s.settings.bench.json, j.dump(2) + "\n");
}

}  // namespace

int bench_train(const Settings& settings, const launch::RankEnvironment& environment) {
  const auto s = train::make_session(settings, environment);
  say(*s, train::describe_start(*s));
  if (s->foresight) say(*s, s->foresight->before());
  s->engine->initialize(static_cast<uint64_t>(settings.seed));
  s->phases.end("weights");
  FixedBatches batches(*s);
  const Steps steps = run_steps(*s, batches, true);
  if (settings.profile.schedule) {
    train::take_step(*s, batches, settings.bench.warmup + settings.bench.steps + 1, {.begins_together = true});
    observe::write_timeline(s->model, *s->engine, s->engine->timeline(), base::named_file(*settings.profile.schedule));
  }
  Figures f{};
  // On a GPU the host runs ahead and cannot see where time goes, so run again and wait for each action.
  if (s->device.is_cuda()) {
    f.gpu = machine::read_gpu(ops::cuda_kernels().device_bus_id());
    f.gpu_bytes = ops::cuda_kernels().peak_bytes();
  }
  const Steps divided = s->device.is_cuda() ? run_fenced_steps(*s, batches) : steps;
  f.peak = train::measure_peak_flops(s->precision.compute, s->world(), s->device);
  if (!s->is_first_rank()) return 0;

  f.step = median(steps.seconds);
  for (const schedule::Action& a : s->engine->plan().train().actions)
    if (schedule::is_transfer(a.kind) && a.queue.lane == schedule::kDiskLane)
      f.disk_bytes += double(a.bytes) * s->environment.local_world_size;
  if (f.disk_bytes > 0) f.disk = offload_rates(train::offload_path(settings), settings.offload.buffers);
  const size_t typical = median_step(divided.seconds);
  f.divided_step = divided.seconds[typical];
  f.parts = divided.parts[typical];
  f.tokens_per_second = double(s->tokens_per_step()) / f.step;
  f.fraction = observe::peak_fraction(f.tokens_per_second, s->flops_per_token(), f.peak);
  print(*s, steps, f);
  if (!steps.operations.empty())
    fmt::print("{}", costs::operations_text(steps.operations, settings.bench.steps, f.step));
  if (settings.bench.json) write_json(*s, steps, f);
  return 0;
}

}  // namespace trireme::bench
