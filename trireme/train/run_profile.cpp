#include "trireme/train/run_profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "trireme/base/cgroup.h"
#include "trireme/base/named_file.h"
#include "trireme/base/text.h"
#include "trireme/observe/timeline.h"
#include "trireme/train/setup.h"
#include "trireme/train/written_or_told.h"

namespace trireme::train {
namespace {

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

std::shared_ptr<observe::Profile> profile_of_run(Session& s, double peak_flops, int64_t evaluation_interval) {
  const Settings& c = s.settings;
  const int64_t step_tokens = s.tokens_per_step();
  const observe::RunFacts run{
      .tokens_per_step = step_tokens,
      .samples_per_step = c.train.global_batch_size,
      .micro_batch_tokens = s.engine->plan().request.shape.tokens(),
      .flops_per_step = s.flops_per_token() * double(step_tokens),
      .product_flops_per_step = s.product_flops_per_token() * double(step_tokens),
      .peak_flops = peak_flops,
      .pinned = c.launch.pin,
      .saves_beside = c.save.mode == checkpoint::SaveMode::async,
      .on_gpu = s.device.is_cuda(),
      .data_workers = c.data.num_workers,
      .save_interval = c.train.save_interval.value_or(0),
      .evaluation_interval = evaluation_interval,
      .bytes_without_recompute = bytes_without_recompute(s),
      .bytes_left = base::available_memory().bytes / std::max(1, s.environment.local_world_size),
      .price = c.profile.price.value_or(0)};
  const auto guard = [on_error = c.save.on_error](const std::function<void()>& write) {
    return written_or_told(on_error, write);
  };
  return std::make_shared<observe::Profile>(
      s.model, *s.engine,
      observe::ProfileOptions{.steps = c.profile.steps, .run = run, .folder = c.out_dir, .guard = guard});
}

std::vector<std::string> unmeasured(const Settings& settings, int64_t steps_left) {
  if (steps_left <= 0) return {};
  std::vector<std::string> sentences;
  const auto needs = [&](const char* key, const char* what, int64_t steps) {
    if (steps_left < steps)
      sentences.push_back(
          fmt::format("{0} {1} step {2} of a start, and this one has {3}; train longer, or leave {0} out", key, what,
                      steps, base::plural(steps_left, "step")));
  };
  if (settings.profile.schedule) needs("profile.schedule", "draws", kDrawnStep);
  if (settings.profile.measure) needs("profile", "measures from", observe::ProfileOptions().warmup + 1);
  return sentences;
}

// A picture is no reason to lose the steps.
std::string draw_step(Session& s, int64_t step) try {
  observe::write_timeline(s.model, *s.engine, s.engine->timeline(), base::named_file(*s.settings.profile.schedule));
  return fmt::format("profile  step {} in {}", step, *s.settings.profile.schedule);
} catch (const base::FileError& error) {
  return fmt::format("warn     {}; the run goes on without it", error.what());
}

}  // namespace trireme::train
