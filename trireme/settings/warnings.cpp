#include <fmt/format.h>

#include "trireme/base/text.h"
#include "trireme/config/choices.h"
#include "trireme/optim/settings_lr.h"
#include "trireme/schedule/pipeline.h"
#include "trireme/settings/derived.h"
#include "trireme/settings/validate.h"

namespace trireme {
namespace {

std::string count_of_micro_batches(int64_t count) {
  return fmt::format("{} micro-batch{}", count, count == 1 ? "" : "es");
}

// The rows of a step that learns from rewards follow from its prompts.
bool learns_from_answers(const Settings& settings) { return settings.task == train::Learning::rewards; }

void warn_of_idle_ranks(const Settings& settings, const MeshShape& mesh, std::vector<std::string>& found) {
  const int64_t ranks = mesh.data_parallel_ranks();
  const int64_t micro_batches = settings.train.global_batch_size / settings.train.micro_batch_size;
  const int64_t left = micro_batches % ranks;
  if (left == 0) return;
  const std::string way_out =
      learns_from_answers(settings)
          ? fmt::format("another grpo.mini_batch_size{} keeps all busy",
                        settings.train.micro_batch_size > 1 ? " or a smaller train.micro_batch_size" : "")
          : fmt::format(
                "train.global_batch_size {} keeps all busy",
                base::near_multiples(settings.train.global_batch_size, settings.train.micro_batch_size * ranks));
  found.push_back(
      fmt::format("{} of {} data-parallel ranks idle{} in the last of {} a step: {} {} not divide among them; {}",
                  ranks - left, ranks, ranks - left == 1 ? "s" : "", count_of_micro_batches(micro_batches / ranks + 1),
                  count_of_micro_batches(micro_batches), micro_batches == 1 ? "does" : "do", way_out));
}

void warn_of_idle_stages(const Settings& settings, const MeshShape& mesh, std::vector<std::string>& found) {
  if (mesh.pp == 1) return;
  const schedule::PipelineSchedule* schedule = schedule::find_pipeline_schedule(settings.pipeline.schedule);
  if (schedule == nullptr) return;
  const int64_t wanted = schedule->fills_with(static_cast<int>(mesh.pp));
  const int64_t have = settings.train.global_batch_size / settings.train.micro_batch_size / mesh.data_parallel_ranks();
  if (have >= wanted) return;
  const std::string way_out = learns_from_answers(settings)
                                  ? "a larger grpo.mini_batch_size or a smaller train.micro_batch_size fills it"
                                  : fmt::format("train.global_batch_size {} fills it",
                                                wanted * settings.train.micro_batch_size * mesh.data_parallel_ranks());
  found.push_back(
      fmt::format("a pipeline of {} ranks ({}) fills with {}, and a step has {}: ranks wait for each other; {}",
                  mesh.pp, settings.pipeline.schedule, count_of_micro_batches(wanted), have, way_out));
}

// The gradient of log p - log p of the reference is that of log p, whose mean over drawn tokens is 0.
void warn_of_a_distance_that_does_not_pull(const Settings& settings, std::vector<std::string>& found) {
  const train::GrpoSettings& g = settings.grpo;
  if (settings.task != train::Learning::rewards || g.beta == 0 || g.kl_loss_mode != model::KlLoss::kl ||
      g.use_bias_correction_kl)
    return;
  found.push_back(
      fmt::format("grpo.kl_loss_mode kl measures the distance to the reference and does not pull, so grpo.beta {:g} "
                  "adds noise only; take low_var_kl, or grpo.use_bias_correction_kl true",
                  g.beta));
}

void warn_of_a_rate_that_stays(const Settings& settings, std::vector<std::string>& found) {
  const train::TrainSettings& t = settings.train;
  if (!t.max_time || t.max_steps || t.max_tokens || t.epochs || !optim::needs_end(t.lr_decay) ||
      settings.optimizer.relative_step.value_or(false))
    return;
  found.push_back(
      fmt::format("train.max_time alone does not say how many steps there are, so the learning rate stays as it is "
                  "after the warm-up, and train.lr_decay {} does not lower it; give train.max_steps or "
                  "train.max_tokens too",
                  config::name_of(t.lr_decay)));
}

void warn_of_a_rate_that_only_rises(const Settings& settings, int64_t steps, std::vector<std::string>& found) {
  const int64_t warmup = warmup_steps(settings);
  if (steps <= 0 || warmup < steps || !optim::warms_up(settings.train.lr_decay) ||
      settings.optimizer.relative_step.value_or(false))
    return;
  const std::string run = base::plural(steps, "step");
  found.push_back(
      warmup == steps
          ? fmt::format("the warm-up takes all {} of the run, so the learning rate only rises; give a smaller "
                        "train.lr_warmup_steps",
                        run)
          : fmt::format("the warm-up of {} is longer than the run of {}, so the learning rate does not reach "
                        "optimizer.lr; give a smaller train.lr_warmup_steps",
                        base::plural(warmup, "step"), run));
}

}  // namespace

std::vector<std::string> warnings(const Settings& settings, int64_t world_size, std::optional<int64_t> steps) {
  std::vector<std::string> found;
  const MeshShape mesh = mesh_shape(settings, world_size);
  warn_of_idle_ranks(settings, mesh, found);
  warn_of_idle_stages(settings, mesh, found);
  warn_of_a_distance_that_does_not_pull(settings, found);
  warn_of_a_rate_that_stays(settings, found);
  warn_of_a_rate_that_only_rises(settings, steps.value_or(settings.train.max_steps.value_or(0)), found);
  if (settings.recompute.mode != schedule::Recompute::selective &&
      settings.recompute.values != schedule::RecomputeSettings{}.values) {
    found.emplace_back("recompute.values is read by recompute selective only");
  }
  return found;
}

}  // namespace trireme
