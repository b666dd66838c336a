#include "trireme/observe/profile.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <type_traits>
#include <utility>
#include <vector>

#include "trireme/base/cgroup.h"
#include "trireme/base/files.h"
#include "trireme/base/stopwatch.h"
#include "trireme/base/usable_cpus.h"
#include "trireme/costs/operation_table.h"
#include "trireme/observe/core_time.h"
#include "trireme/observe/memory_usage.h"
#include "trireme/observe/timeline.h"

namespace trireme::observe {
namespace {

constexpr size_t kShownUnits = 8, kShownOperations = 12;

static_assert(std::is_trivially_copyable_v<RankWindow> && sizeof(RankWindow) % sizeof(double) == 0);

RunFacts facts_of(RunFacts run, const plan::StepPlan& plan) {
  const plan::StepRequest& r = plan.request;
  run.micro_batches = r.num_micro_batches;
  run.pipeline_ranks = r.size(comm::Axis::pp);
  run.planned_bytes = plan.arena.resident();
  double each = 0, all = 0;
  for (const schedule::Action& a : plan.train().actions) {
    const schedule::ActionTraits& kind = schedule::traits_of(a.kind);
    if (kind.owner != schedule::Owner::group || kind.queue == schedule::QueueKind::compute) continue;
    all += double(a.bytes), each += a.micro_batch >= 0 ? double(a.bytes) : 0;
  }
  run.sent_each_micro_batch = all > 0 ? each / all : 0;
  return run;
}

}  // namespace

Profile::Profile(const model::Model& model, engine::Engine& engine, ProfileOptions options)
    : model_(model),
      engine_(engine),
      options_(std::move(options)),
      core_share_(core_time(*engine.communicators().world, at::get_num_threads())),
      cpus_(base::usable_cpus()) {
  options_.run = facts_of(options_.run, engine.plan());
  // Now, because it may be impossible: the files are written after all steps.
  if (!options_.folder.empty() && engine.communicators().world->rank() == 0)
    std::filesystem::create_directories(options_.folder);
}

void Profile::open(int64_t step) {
  if (first_ == 0) first_ = step + options_.warmup, last_ = first_ + options_.steps - 1;
  if (told_ || step < first_ || timer_) return;
  watch_ = base::Stopwatch();
  before_ = read_host_usage("/", &cpus_);
  timer_.emplace(options_.run.on_gpu);
}

void Profile::begin_step(int64_t step) {
  open(step);
  if (told_ || step < first_) return;
  mine_.answers += std::exchange(after_step_.answers, 0);
  mine_.evaluation += std::exchange(after_step_.evaluation, 0);
  mine_.saves += std::exchange(after_step_.saves, 0);
  if (step == last_) engine_.communicators().world->barrier()->wait();
  timer_->start();
  cpu_before_ = base::thread_cpu_seconds();
  step_.emplace(engine_);
}

void Profile::end_step(double filled) {
  if (!step_) return;
  timer_->stop();
  const StepTime step = step_->read();
  step_.reset();
  ++measured_;
  filled_ += filled;
  mine_.seconds = watch_.seconds();
  if (measured_ >= options_.steps) used_ = read_host_usage("/", &cpus_) - before_;
  // What waits for peers and for data may sleep; other time off the cores was taken by someone else.
  const double on_core = base::thread_cpu_seconds() - cpu_before_;
  const auto waits = [&](base::Activity a) { return step.causes[static_cast<size_t>(a)]; };
  off_core_ +=
      std::max(0.0, step.seconds - on_core - waits(base::Activity::communication) - waits(base::Activity::data));
  mine_.in_steps += step.seconds;
  for (size_t i = 0; i < step.causes.size(); ++i) mine_.causes[i] += step.causes[i];
  mine_.hidden += step.hidden;
  using Kind = schedule::ActionKind;
  const auto in = [&](std::initializer_list<Kind> kinds) {
    double seconds = 0;
    for (const Kind kind : kinds)
      if (const auto took = step.actions.find(kind); took != step.actions.end()) seconds += took->second;
    return seconds;
  };
  mine_.recompute += in({Kind::recompute});
  mine_.forward += in({Kind::forward});
  mine_.backward += in({Kind::recompute, Kind::backward, Kind::backward_input, Kind::backward_weight});
  last_step_ = engine_.timeline();  // an evaluation behind this step has another list
  const auto& actions = engine_.plan().train().actions;
  for (const engine::ActionTime& t : last_step_) {
    const schedule::Action& a = actions[static_cast<size_t>(t.action)];
    if (schedule::is_computation(a.kind) && a.kind != schedule::ActionKind::step) units_[a.owner] += t.end - t.begin;
  }
}

void Profile::between_steps(Between what, double seconds) {
  if (!timer_) return;
  double& sum = what == Between::answers      ? after_step_.answers
                : what == Between::evaluation ? after_step_.evaluation
                                              : after_step_.saves;
  sum += seconds;
}

RankWindow Profile::window() const {
  RankWindow w = mine_;
  const HostUsage used = used_ ? *used_ : read_host_usage("/", &cpus_) - before_;
  w.lacking = std::max(timer_->lacking(), off_core_);
  // A thread that waits for a page of memory is on no core, too. Only the kernel knows that it was ready to run.
  if (const double waited = used.longest_wait(); waited > 0)
    w.lacking = std::min(w.lacking, waited + used.throttled_seconds);
  w.throttled = used.throttled_seconds, w.disk = used.waited_for_disk();
  w.stolen = used.stolen_seconds, w.idle = used.idle_seconds;
  w.major_faults = double(used.major_faults), w.swapped_bytes = double(used.swapped_bytes);
  w.threads = at::get_num_threads();
  w.rank = engine_.communicators().world->rank();
  w.stage = engine_.plan().request.coordinate(comm::Axis::pp);
  w.core_share = core_share_;
  if (const auto usage = read_memory_usage()) w.resident_bytes = double(usage->rss_bytes());
  return w;
}

std::string Profile::units_text() const {
  const std::vector<std::string>& names = engine_.plan().train().unit_names;
  std::vector<std::pair<double, int>> longest;
  for (const auto& [unit, seconds] : units_)
    if (unit >= 0 && unit < std::ssize(names)) longest.emplace_back(seconds, unit);
  std::ranges::sort(longest, std::greater());
  std::string out = "units    of rank 0, ms a step:";
  for (size_t i = 0; i < std::min(kShownUnits, longest.size()); ++i)
    out += fmt::format("{} {} {:.3g}", i == 0 ? "" : ",", names[static_cast<size_t>(longest[i].second)],
                       1e3 * longest[i].first / double(measured_));
  return out + "\n";
}

std::string Profile::report() {
  if (std::exchange(told_, true)) return "";
  comm::Communicator& world = *engine_.communicators().world;
  if (measured_ == 0)
    return world.rank() == 0 ? fmt::format("profile  too few steps to measure: the first {} warm up\n", options_.warmup)
                             : "";
  RunFacts run = options_.run;
  run.steps = measured_, run.first_step = first_;
  const double filled = filled_ / double(measured_);
  run.tokens_per_step = std::llround(filled * double(run.tokens_per_step));
  run.samples_per_step = std::llround(filled * double(run.samples_per_step));
  run.flops_per_step *= filled, run.product_flops_per_step *= filled;
  const RankWindow mine = window();
  const std::string units = units_text();
  const std::vector<costs::TimedOperation> operations = timer_->operations();
  timer_.reset();

  constexpr int64_t kNumbers = sizeof(RankWindow) / sizeof(double);
  const int64_t ranks = world.size();
  const at::Tensor own = at::empty({kNumbers}, at::kDouble), all = at::empty({ranks * kNumbers}, at::kDouble);
  std::memcpy(own.data_ptr(), &mine, sizeof mine);
  world.all_gather(all, own, std::vector<int64_t>(static_cast<size_t>(ranks), kNumbers))->wait();
  const bool writes = !options_.folder.empty();
  std::string untold;
  const auto guarded = [&](const std::function<void()>& write) {
    if (!options_.guard) return write();
    if (const std::string line = options_.guard(write); !line.empty()) untold += line + "\n";
  };
  if (writes) guarded([&] { write_timeline(model_, engine_, last_step_, options_.folder / "profile.trace.json"); });
  if (world.rank() != 0) return "";
  std::vector<RankWindow> windows(static_cast<size_t>(ranks));
  std::memcpy(windows.data(), all.const_data_ptr(), windows.size() * sizeof mine);
  const std::string text =
      profile_text(run, windows, units,
                   costs::operations_text(operations, measured_, mine.in_steps / double(measured_), kShownOperations));
  if (!writes) return text;
  guarded([&] { base::write_file_atomic(options_.folder / "profile.txt", text); });
  guarded([&] { base::write_file_atomic(options_.folder / "profile.json", profile_json(run, windows)); });
  if (!untold.empty()) return text + untold;
  return text + fmt::format("files    {}, profile.txt, profile.trace.json (open it in Perfetto)\n",
                            (options_.folder / "profile.json").string());
}

}  // namespace trireme::observe
