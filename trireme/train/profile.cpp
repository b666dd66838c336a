#include "trireme/train/profile.h"

#include <ATen/ATen.h>

#include <filesystem>

#include "trireme/base/files.h"
#include "trireme/schedule/render_timeline.h"

namespace trireme::train {

void write_profile(Session& s) {
  const plan::StepPlan& plan = s.engine->plan();
  const auto lists = plan::stage_lists(s.model, plan, true);
  std::vector<int64_t> counts;  // two times an action, by rank
  for (int rank = 0; rank < plan.request.mesh.world_size(); ++rank)
    counts.push_back(2 * std::ssize(lists[plan.request.mesh.coordinate(rank, comm::Axis::pp)].actions));
  at::Tensor mine = at::zeros({counts[s.environment.global_rank]}, at::kDouble);
  for (const engine::ActionTime& t : s.engine->timeline()) {
    mine.data_ptr<double>()[2 * t.action] = t.begin;
    mine.data_ptr<double>()[2 * t.action + 1] = t.end;
  }
  int64_t total = 0;
  for (int64_t count : counts) total += count;
  at::Tensor all = at::empty({total}, at::kDouble);
  s.world().all_gather(all, mine, counts)->wait();
  if (!s.is_first_rank()) return;

  schedule::Timeline timeline{.title = s.model.config.name + ", measured", .rows = {}};
  const double* times = all.data_ptr<double>();
  for (int rank = 0; rank < plan.request.mesh.world_size(); ++rank) {
    const plan::StepRequest who = plan.request.of_rank(rank);
    std::vector<schedule::Measured> measured;
    for (int64_t i = 0; i < counts[rank] / 2; ++i, times += 2)
      measured.push_back({static_cast<int>(i), times[0], times[1]});
    schedule::Timeline one = schedule::timeline_of_measured(lists[who.coordinate(comm::Axis::pp)], measured, rank,
                                                            plan::rank_groups(who).stages);
    for (schedule::Row& row : one.rows) timeline.rows.push_back(std::move(row));
  }
  const std::filesystem::path path = *s.settings.profile.schedule;
  const std::string extension = path.extension().string();
  base::write_file_atomic(path, extension == ".svg"   ? schedule::render_timeline_svg(timeline)
                                : extension == ".txt" ? schedule::render_timeline_text(timeline, {})
                                                      : schedule::render_timeline_trace(timeline));
}

}  // namespace trireme::train
