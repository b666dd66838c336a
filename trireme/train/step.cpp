#include "trireme/train/step.h"

#include <ATen/ATen.h>

#include <numeric>

#include "trireme/base/files.h"
#include "trireme/schedule/render_timeline.h"
#include "trireme/train/foresight.h"
#include "trireme/train/profile.h"
#include "trireme/train/step_watch.h"

namespace trireme::train {

double learning_rate(const Session& s, const StepTask& task, int64_t step) {
  const bool waits = s.loss_scale && s.loss_scale->options().rule == model::ScaleRule::deepspeed;
  return task.learning_rate(waits ? step - s.loss_scale->skipped() : step);
}

int64_t tokens_of_step(const Session& s, const StepTask& task, int64_t step) {
  const plan::StepRequest& r = s.engine->plan().request;
  const std::optional<int> used = task.used_micro_batches(step);
  return used ? int64_t{*used} * r.num_data_ranks() * r.shape.tokens() : s.tokens_per_step();
}

engine::StepResult take_step(Session& s, StepTask& task, int64_t step, const StepOptions& options) {
  const engine::StepInputs inputs{
      .load_batch = [&task, step](int micro_batch,
                                  const engine::BatchTensors& to) { task.load(step, micro_batch, to); },
      .supervised_tokens = task.supervised_tokens(step),
      .optimizer = s.optimizer(learning_rate(s, task, step), step),
      .max_norm = s.settings.train.max_norm,
      .seed = static_cast<uint64_t>(s.settings.seed),
      .loss_scale = s.loss_scale ? std::optional(s.loss_scale->scale()) : std::nullopt,
      .skipped = s.loss_scale ? s.loss_scale->skipped() : 0,
      .used_micro_batches = task.used_micro_batches(step),
      .give_up = options.give_up,
      .commit = options.commit};
  if (options.begins_together) s.world().barrier()->wait();
  if (s.profile) s.profile->begin_step(step);
  const StepWatch watch(s);
  const engine::StepResult result = s.engine->train_step(inputs);
  s.last_step = watch.read();
  if (s.foresight) s.foresight->note(s.last_step);
  if (s.profile) s.profile->note(s.last_step);
  if (s.loss_scale && result.committed) s.loss_scale->update(result.overflowed);
  return result;
}

void write_timeline(Session& s, const std::filesystem::path& path) {
  const plan::StepPlan& plan = s.engine->plan();
  const int ranks = plan.request.mesh.world_size();
  const auto lists = plan::stage_lists(s.model, plan, schedule::List::train);
  std::vector<int64_t> counts;  // two times an action, by rank
  for (int rank = 0; rank < ranks; ++rank)
    counts.push_back(2 * std::ssize(lists[plan.request.mesh.coordinate(rank, comm::Axis::pp)].actions));
  at::Tensor mine = at::zeros({counts[s.environment.global_rank]}, at::kDouble);
  for (const engine::ActionTime& t : s.engine->timeline()) {
    mine.data_ptr<double>()[2 * t.action] = t.begin;
    mine.data_ptr<double>()[2 * t.action + 1] = t.end;
  }
  at::Tensor all = at::empty({std::accumulate(counts.begin(), counts.end(), int64_t{0})}, at::kDouble);
  s.world().all_gather(all, mine, counts)->wait();
  if (!s.is_first_rank()) return;

  schedule::Timeline timeline{.title = s.model.config.name + ", measured", .rows = {}};
  const double* times = all.data_ptr<double>();
  for (int rank = 0; rank < ranks; ++rank) {
    const plan::StepRequest who = plan.request.of_rank(rank);
    std::vector<schedule::Measured> measured;
    for (int64_t i = 0; i < counts[rank] / 2; ++i, times += 2)
      measured.push_back({static_cast<int>(i), times[0], times[1]});
    schedule::Timeline one = schedule::timeline_of_measured(lists[who.coordinate(comm::Axis::pp)], measured, rank,
                                                            plan::rank_groups(who).stages);
    for (schedule::Row& row : one.rows) timeline.rows.push_back(std::move(row));
  }
  const std::string extension = path.extension().string();
  base::write_file_atomic(path, extension == ".svg"   ? schedule::render_timeline_svg(timeline)
                                : extension == ".txt" ? schedule::render_timeline_text(timeline, {})
                                                      : schedule::render_timeline_trace(timeline));
}

}  // namespace trireme::train
