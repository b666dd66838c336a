#include "trireme/train/foresight.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/text.h"
#include "trireme/observe/memory_usage.h"
#include "trireme/ops/cuda/kernels.h"
#include "trireme/train/setup.h"

namespace trireme::train {
namespace {

constexpr size_t kWarmup = 2, kMostSteps = 1000;
constexpr double kDisturbed = 0.08;  // third minus first quartile, as a share of the median
constexpr double kSmall = 0.01;  // of a step: parts that take less are not compared

double of(const costs::CauseSeconds& causes, base::Activity activity) { return causes[static_cast<size_t>(activity)]; }

const char* hardware_of(const Settings& settings) {
  return settings.accelerator == engine::Accelerator::cuda ? "this-gpu" : "this";
}

costs::Machines machines_of(const Session& s) {
  return {.hardware = costs::read_hardware(hardware_of(s.settings)),
          .ranks = std::max<int64_t>(1, s.environment.local_world_size),
          .threads = at::get_num_threads()};
}

// Before ranks start.
costs::Machines machines_of(const Settings& settings) {
  return {.hardware = costs::read_hardware(hardware_of(settings)),
          .ranks = settings.devices.value_or(1),
          .threads = threads_of_a_rank(settings)};
}

std::string describe(const Settings& settings, const costs::Prediction& predicted, int64_t tokens_per_step) {
  std::string parts;
  for (const base::ActivityName& c : base::kActivities)
    if (const double share = of(predicted.causes, c.activity) / predicted.step; share > 0.01)
      parts += fmt::format("{}{} {:.0f} %", parts.empty() ? "" : ", ", c.name, 100 * share);
  if (settings.task == Learning::rewards) parts += fmt::format("\n         {}", kWithoutAnswers);
  return fmt::format("predict  {:.4g} ms a step, {} tokens/s: {}", 1e3 * predicted.step,
                     base::human_count(static_cast<int64_t>(double(tokens_per_step) / predicted.step)), parts);
}

}  // namespace

std::string foresee(const Settings& settings, const model::Model& model, const plan::StepPlan& plan) {
  return describe(settings, costs::predict(model, plan, machines_of(settings)),
                  settings.train.global_batch_size * plan.request.shape.sequence);
}

Foresight::Foresight(const Session& session)
    : s_(session), predicted_(costs::predict(session.model, session.engine->plan(), machines_of(session))) {}

void check_foresight(const Settings& settings) {
  if (!settings.predict) return;
  const costs::Machines machines = machines_of(settings);
  costs::check_figures(
      step_request(settings, model::config_of(settings.model), 0, static_cast<int>(world_size(settings))), machines);
}

std::string Foresight::before() const { return describe(s_.settings, predicted_, s_.tokens_per_step()); }

void Foresight::note(const observe::StepTime& step) {
  if (steps_.size() < kMostSteps) steps_.push_back(step);
}

std::optional<observe::StepTime> Foresight::median() const {
  if (steps_.size() <= kWarmup) return std::nullopt;
  std::vector<observe::StepTime> sorted(steps_.begin() + kWarmup, steps_.end());
  const auto middle = sorted.begin() + std::ssize(sorted) / 2;
  std::ranges::nth_element(sorted, middle, {}, &observe::StepTime::seconds);
  return *middle;
}

std::string Foresight::after() const {
  const std::optional<observe::StepTime> took = median();
  if (!took) return "predict  too few steps to compare with: the first two warm up";
  std::string out = fmt::format("predict  {:<24}{:>12}{:>12}{:>12}\n", "", "predicted", "took", "off by");
  const auto row = [&](const char* name, double predicted, double measured) {
    if (predicted < 5e-6 && measured < 5e-6) return;
    out += fmt::format("         {:<24}{:>9.2f} ms {:>8.2f} ms", name, 1e3 * predicted, 1e3 * measured);
    // What takes next to nothing may be off by any share of it.
    out += measured >= kSmall * took->seconds ? fmt::format(" {:>+9.1f} %\n", 100 * (predicted - measured) / measured)
                                              : "\n";
  };
  const bool on_gpu = s_.device.is_cuda();
  for (const base::ActivityName& c : base::kActivities)
    if (const double predicted = of(predicted_.causes, c.activity); !on_gpu)
      row(c.name, predicted, of(took->causes, c.activity));
    else if (predicted > 0)
      out += fmt::format("         {:<24}{:>9.2f} ms\n", c.name, 1e3 * predicted);
  row("step", predicted_.step, took->seconds);
  if (!on_gpu) {
    out += "         by kind of action\n";
    for (const auto& [kind, seconds] : by_kind())
      row(schedule::name_of(kind), seconds, took->actions.contains(kind) ? took->actions.at(kind) : 0);
  }
  std::vector<double> seconds;
  for (size_t i = kWarmup; i < steps_.size(); ++i) seconds.push_back(steps_[i].seconds);
  std::ranges::sort(seconds);
  const double spread = (seconds[seconds.size() * 3 / 4] - seconds[seconds.size() / 4]) / took->seconds;
  if (spread > kDisturbed)
    out += fmt::format("         the steps themselves varied by {:.0f} %: other work disturbs this machine\n",
                       100 * spread);
  const auto usage = observe::read_memory_usage();
  const std::string held = on_gpu  ? base::human_bytes(ops::cuda_kernels().peak_bytes())
                           : usage ? base::human_bytes(usage->rss_bytes())
                                   : "unknown";
  const schedule::Arena& arena = s_.engine->plan().arena;
  return out + fmt::format("         {:<24}{:>12}{:>12}  {}", "memory of rank 0",
                           base::human_bytes(on_gpu ? arena.total() : arena.resident()), held,
                           on_gpu ? "held by LibTorch's allocator" : "resident, with the program itself");
}

void Foresight::write() const {
  base::write_file_atomic(std::filesystem::path(s_.settings.out_dir) / "prediction.json", json());
}

std::map<schedule::ActionKind, double> Foresight::by_kind() const {
  const schedule::Schedule& list = predicted_.lists.front();
  const std::vector<schedule::ActionCost>& costs = predicted_.costs.at(&list);
  std::map<schedule::ActionKind, double> seconds;
  for (size_t i = 0; i < costs.size(); ++i) seconds[list.actions[i].kind] += costs[i].compute;
  return seconds;
}

std::string Foresight::json() const {
  nlohmann::ordered_json predicted, measured;
  const std::optional<observe::StepTime> took = median();
  predicted["step"] = predicted_.step;
  if (took) measured["step"] = took->seconds;
  for (const base::ActivityName& c : base::kActivities) {
    predicted[c.key] = of(predicted_.causes, c.activity);
    if (took && !s_.device.is_cuda()) measured[c.key] = of(took->causes, c.activity);
  }
  nlohmann::ordered_json actions;
  for (const auto& [kind, seconds] : by_kind()) {
    actions[schedule::name_of(kind)]["predicted"] = seconds;
    if (took && !s_.device.is_cuda())
      actions[schedule::name_of(kind)]["measured"] = took->actions.contains(kind) ? took->actions.at(kind) : 0;
  }
  const nlohmann::ordered_json all = {{"predicted_seconds", predicted},
                                      {"measured_seconds", measured},
                                      {"actions", actions},
                                      {"planned_bytes", s_.engine->plan().arena.resident()}};
  return all.dump(2) + "\n";
}

}  // namespace trireme::train
