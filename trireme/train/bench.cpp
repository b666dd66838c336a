#include "trireme/train/bench.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <nlohmann/json.hpp>

#include "trireme/base/files.h"
#include "trireme/base/text.h"
#include "trireme/config/choices.h"
#include "trireme/config/precision.h"
#include "trireme/observe/memory_usage.h"
#include "trireme/observe/peak.h"
#include "trireme/train/peak.h"
#include "trireme/train/profile.h"
#include "trireme/train/session.h"

namespace trireme::train {
namespace {
using Clock = std::chrono::steady_clock;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

int64_t peak_rss_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss * 1024;
}

// Micro-batch i of data rank r always holds the same tokens: the loss of a fixed batch falls, which is checked by
// readers.
void fill_fixed(std::vector<int64_t>& in, std::vector<int64_t>& out, int64_t vocabulary, uint64_t seed) {
  const auto n = static_cast<int64_t>(in.size());
  uint64_t state = seed * 0x9e3779b97f4a7c15ull + 1;
  for (int64_t i = 0; i <= n; ++i) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    const auto token = static_cast<int64_t>((state >> 33) % static_cast<uint64_t>(vocabulary));
    if (i < n) in[i] = token;
    if (i > 0) out[i - 1] = token;
  }
}

}  // namespace

int bench_train(const config::Settings& settings, const launch::RankEnvironment& environment) {
  const Clock::time_point started = Clock::now();
  const auto s = make_session(settings, environment);
  s->engine->initialize(static_cast<uint64_t>(settings.seed));
  const int64_t vocabulary = s->model.config.vocab_size;
  engine::StepInputs inputs;
  const plan::StepRequest& request = s->engine->plan().request;
  std::vector<int64_t> tokens_in(static_cast<size_t>(request.shape.tokens())), tokens_out(tokens_in.size());
  inputs.load_batch = [&](int mb, const at::Tensor& tokens, const at::Tensor& targets) {
    fill_fixed(tokens_in, tokens_out, vocabulary, uint64_t(mb) * 1024 + uint64_t(request.data_index()) + 1);
    s->copy_local(tokens, tokens_in);
    s->copy_local(targets, tokens_out);
  };
  inputs.supervised_tokens = settings.train.global_batch_size * s->sequence();
  inputs.max_norm = settings.train.max_norm;
  std::vector<double> seconds, losses;
  std::map<std::string, std::vector<double>> by_kind;
  double first_step = 0;
  int64_t faults_before = 0;
  for (int64_t i = 0; i < settings.bench.warmup + settings.bench.steps; ++i) {
    inputs.optimizer = s->optimizer(settings.optimizer.lr, i + 1);
    if (i == settings.bench.warmup) faults_before = observe::page_faults().minor;
    const Clock::time_point begin = Clock::now();
    const engine::StepResult result = s->engine->train_step(inputs);
    const double step = std::chrono::duration<double>(Clock::now() - begin).count();
    if (i == 0) first_step = std::chrono::duration<double>(Clock::now() - started).count();
    losses.push_back(result.loss);
    if (i < settings.bench.warmup) continue;
    seconds.push_back(step);
    std::map<std::string, double> kinds;
    double inside = 0;
    for (const engine::ActionTime& t : s->engine->timeline()) {
      kinds[schedule::name_of(s->engine->plan().train().actions[t.action].kind)] += t.end - t.begin;
      inside += t.end - t.begin;
    }
    kinds["waiting for peers"] = step - inside;
    for (const auto& [kind, time] : kinds) by_kind[kind].push_back(time);
  }
  if (settings.profile.schedule) {
    s->world().barrier()->wait();
    inputs.optimizer = s->optimizer(settings.optimizer.lr, settings.bench.warmup + settings.bench.steps + 1);
    s->engine->train_step(inputs);
    write_profile(*s);
  }
  const double faults = double(observe::page_faults().minor - faults_before) / double(settings.bench.steps);
  const double peak = measure_peak_flops(s->precision.compute, s->world());
  if (!s->is_first_rank()) return 0;

  const double step = median(seconds), tokens_per_second = double(inputs.supervised_tokens) / step;
  const double fraction = observe::peak_fraction(tokens_per_second, s->flops_per_token(), peak);
  fmt::print("{}\n", describe_start(*s));
  fmt::print(
      "step     {:.1f} ms median of {} ({:.1f} to {:.1f}), {} tokens/s, {:.0f} % of the products' peak of {:.0f} "
      "GFLOP/s\n",
      step * 1e3, seconds.size(), *std::min_element(seconds.begin(), seconds.end()) * 1e3,
      *std::max_element(seconds.begin(), seconds.end()) * 1e3, base::human_count(int64_t(tokens_per_second)),
      fraction * 100, peak / 1e9);
  for (const auto& [kind, times] : by_kind) fmt::print("  {:<20}{:>9.1f} ms\n", kind, median(times) * 1e3);
  fmt::print("memory   {} at most resident, {} planned; {:.0f} minor page faults a step\n",
             base::human_bytes(peak_rss_bytes()), base::human_bytes(s->engine->allocated_bytes()), faults);
  if (settings.bench.json) {
    nlohmann::ordered_json action_seconds;
    for (const auto& [kind, times] : by_kind) action_seconds[kind] = median(times);
    const nlohmann::ordered_json j = {{"model", s->model.config.name},
                                      {"ranks", environment.world_size},
                                      {"strategy", config::name_of(settings.strategy)},
                                      {"precision", config::name_of(config::resolve(settings.precision))},
                                      {"backend", s->ranks.backend},
                                      {"tokens_per_step", inputs.supervised_tokens},
                                      {"step_seconds", seconds},
                                      {"median_seconds", step},
                                      {"tokens_per_second", tokens_per_second},
                                      {"peak_fraction", fraction},
                                      {"losses", losses},
                                      {"peak_rss_bytes", peak_rss_bytes()},
                                      {"planned_bytes", s->engine->allocated_bytes()},
                                      {"first_step_seconds", first_step},
                                      {"action_seconds", action_seconds},
                                      {"minor_faults_per_step", faults}};
    base::write_file_atomic(*settings.bench.json, j.dump(2) + "\n");
  }
  return 0;
}

}  // namespace trireme::train
