#include "trireme/train/profile.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <type_traits>
#include <vector>

#include "trireme/base/cgroup.h"
#include "trireme/base/files.h"
#include "trireme/costs/operation_table.h"
#include "trireme/observe/memory_usage.h"
#include "trireme/train/core_time.h"
#include "trireme/train/setup.h"
#include "trireme/train/step.h"

namespace trireme::train {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kProfileWarmup = 3;
constexpr size_t kShownUnits = 8, kShownOperations = 12;

static_assert(std::is_trivially_copyable_v<observe::RankWindow> && sizeof(observe::RankWindow) % sizeof(double) == 0);

/// What a rank's plan would take more if nothing was computed again; negative: nothing is.
int64_t bytes_without_recompute(const Session& s) {
  if (s.settings.recompute.mode == schedule::Recompute::none) return -1;
  Settings settings = s.settings;
  settings.recompute.mode = schedule::Recompute::none;
  settings.offload = s.engine->plan().request.offload;  // what offload.fit has chosen, with recomputation
  const model::ModelConfig config = model::config_of(settings.model);
  const plan::StepRequest request = step_request(settings, config, s.environment.global_rank, s.environment.world_size);
  const model::Model model = build_run_model(settings, config, request);
  return plan::make_step_plan(model, request).arena.total() - s.engine->plan().arena.total();
}

}  // namespace

Profile::Profile(Session& session, double peak_flops, int64_t evaluation_interval)
    : s_(session), core_share_(core_time(session.world(), at::get_num_threads())) {
  const Settings& c = s_.settings;
  const plan::StepPlan& plan = s_.engine->plan();
  const plan::StepRequest& r = plan.request;
  const int64_t step_tokens = s_.tokens_per_step();
  run_ = {.tokens_per_step = step_tokens,
          .samples_per_step = c.train.global_batch_size,
          .micro_batches = r.num_micro_batches,
          .micro_batch_tokens = r.shape.tokens(),
          .pipeline_ranks = r.size(comm::Axis::pp),
          .flops_per_step = s_.flops_per_token() * double(step_tokens),
          .product_flops_per_step = s_.product_flops_per_token() * double(step_tokens),
          .peak_flops = peak_flops,
          .pinned = c.launch.pin,
          .saves_beside = c.save.mode == checkpoint::SaveMode::async,
          .on_gpu = s_.device.is_cuda(),
          .data_workers = c.data.num_workers,
          .save_interval = c.train.save_interval.value_or(0),
          .evaluation_interval = evaluation_interval,
          .bytes_without_recompute = bytes_without_recompute(s_),
          .planned_bytes = plan.arena.resident(),
          .price = c.profile.price.value_or(0)};
}

void Profile::begin_step(int64_t step) {
  if (first_ == 0) first_ = step + kProfileWarmup, last_ = first_ + s_.settings.profile.steps - 1;
  if (told_ || step < first_) return;
  if (step == first_) {
    watch_ = base::Stopwatch();
    before_ = observe::read_host_usage();
    timer_.emplace(s_.device.is_cuda());
  }
  timer_->start();
  cpu_before_ = base::thread_cpu_seconds();
}

void Profile::note(const StepTime& step) {
  if (!timer_) return;
  timer_->stop();
  ++measured_;
  // What waits for peers and for data may sleep; other time off the cores was taken by someone else.
  const double on_core = base::thread_cpu_seconds() - cpu_before_;
  const auto waits = [&](base::Activity a) { return step.causes[static_cast<size_t>(a)]; };
  off_core_ +=
      std::max(0.0, step.seconds - on_core - waits(base::Activity::communication) - waits(base::Activity::data));
  mine_.in_steps += step.seconds;
  for (size_t i = 0; i < step.causes.size(); ++i) mine_.causes[i] += step.causes[i];
  mine_.hidden += step.hidden;
  if (const auto again = step.actions.find(schedule::ActionKind::recompute); again != step.actions.end())
    mine_.recompute += again->second;
  const auto& actions = s_.engine->plan().train().actions;
  for (const engine::ActionTime& t : s_.engine->timeline()) {
    const schedule::Action& a = actions[static_cast<size_t>(t.action)];
    if (schedule::is_computation(a.kind) && a.kind != schedule::ActionKind::step) units_[a.owner] += t.end - t.begin;
  }
}

void Profile::phase(std::string_view name, double seconds) {
  if (!timer_) return;
  if (name == "evaluate") mine_.evaluation += seconds;
  if (name == "save") mine_.saves += seconds;
}

std::string Profile::end_step(int64_t step) { return timer_ && step == last_ ? report() : ""; }

std::string Profile::finish() {
  if (told_) return "";
  return measured_ > 0 ? report() : "profile  too few steps to measure: the first three warm up";
}

observe::RankWindow Profile::window() const {
  observe::RankWindow w = mine_;
  const observe::HostUsage used = observe::read_host_usage() - before_;
  w.seconds = watch_.seconds();
  w.lacking = std::max(timer_->lacking(), off_core_);
  w.throttled = used.throttled_seconds, w.disk = used.disk_seconds;
  w.stolen = used.stolen_seconds / double(sysconf(_SC_NPROCESSORS_ONLN));
  w.major_faults = double(used.major_faults), w.swapped_bytes = double(used.swapped_bytes);
  w.threads = at::get_num_threads();
  w.rank = s_.environment.global_rank;
  w.stage = s_.engine->plan().request.coordinate(comm::Axis::pp);
  w.core_share = core_share_;
  if (const auto usage = observe::read_memory_usage()) w.resident_bytes = double(usage->rss_bytes());
  return w;
}

std::string Profile::units_text() const {
  const std::vector<std::string>& names = s_.engine->plan().train().unit_names;
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
  told_ = true;
  run_.steps = measured_, run_.first_step = first_;
  const observe::RankWindow mine = window();
  run_.bytes_left = base::available_memory().bytes / std::max(1, s_.environment.local_world_size);
  const std::string units = units_text();
  const std::vector<costs::TimedOperation> operations = timer_->operations();
  timer_.reset();

  constexpr int64_t kNumbers = sizeof(observe::RankWindow) / sizeof(double);
  const auto ranks = static_cast<int64_t>(s_.environment.world_size);
  const at::Tensor own = at::empty({kNumbers}, at::kDouble), all = at::empty({ranks * kNumbers}, at::kDouble);
  std::memcpy(own.data_ptr(), &mine, sizeof mine);
  s_.world().all_gather(all, own, std::vector<int64_t>(static_cast<size_t>(ranks), kNumbers))->wait();
  const fs::path folder = s_.settings.out_dir;
  write_timeline(s_, folder / "profile.trace.json");
  if (!s_.is_first_rank()) return "";
  std::vector<observe::RankWindow> windows(static_cast<size_t>(ranks));
  std::memcpy(windows.data(), all.const_data_ptr(), windows.size() * sizeof mine);
  const std::string text = observe::profile_text(
      run_, windows, units,
      costs::operations_text(operations, measured_, mine.in_steps / double(measured_), kShownOperations));
  base::write_file_atomic(folder / "profile.txt", text);
  base::write_file_atomic(folder / "profile.json", observe::profile_json(run_, windows));
  return text + fmt::format("files    {}, profile.txt, profile.trace.json (open it in Perfetto)",
                            (folder / "profile.json").string());
}

}  // namespace trireme::train
