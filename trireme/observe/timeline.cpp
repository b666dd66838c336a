#include "trireme/observe/timeline.h"

#include <ATen/ATen.h>

#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/files.h"
#include "trireme/schedule/render_timeline.h"

namespace trireme::observe {

void write_timeline(const model::Model& model, engine::Engine& engine, const std::vector<engine::ActionTime>& mine,
                    const std::filesystem::path& path) {
  const plan::StepPlan& plan = engine.plan();
  comm::Communicator& world = *engine.communicators().world;
  const int ranks = plan.request.mesh.world_size();
  const auto lists = plan::stage_lists(model, plan, schedule::List::train);
  std::vector<int64_t> counts;  // two times an action, by rank
  for (int rank = 0; rank < ranks; ++rank)
    counts.push_back(2 * std::ssize(lists[plan.request.mesh.coordinate(rank, comm::Axis::pp)].actions));
  at::Tensor own = at::zeros({counts[static_cast<size_t>(world.rank())]}, at::kDouble);
  for (const engine::ActionTime& t : mine) {
    own.data_ptr<double>()[2 * t.action] = t.begin;
    own.data_ptr<double>()[2 * t.action + 1] = t.end;
  }
  at::Tensor all = at::empty({std::accumulate(counts.begin(), counts.end(), int64_t{0})}, at::kDouble);
  world.all_gather(all, own, counts)->wait();
  if (world.rank() != 0) return;

  schedule::Timeline timeline{.title = model.config.name + ", measured", .rows = {}};
  const double* times = all.data_ptr<double>();
  for (int rank = 0; rank < ranks; ++rank) {
    const plan::StepRequest who = plan.request.of_rank(rank);
    std::vector<schedule::Measured> measured;
    for (int64_t i = 0; i < counts[static_cast<size_t>(rank)] / 2; ++i, times += 2)
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

}  // namespace trireme::observe
