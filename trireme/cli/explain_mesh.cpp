#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "trireme/base/text.h"
#include "trireme/cli/explain.h"
#include "trireme/comm/mesh.h"
#include "trireme/config/choices.h"
#include "trireme/schedule/pipeline.h"
#include "trireme/settings/derived.h"
#include "trireme/settings/mesh_traffic.h"
#include "trireme/settings/validate.h"
#include "trireme/train/setup.h"

namespace trireme::cli {
namespace {

// "pp 2 x replicate 1 x shard 2 x cp 1 x tp 2 = 8 ranks, full_shard, ..."
std::string mesh_headline(const Settings& settings, const MeshShape& shape) {
  const int64_t ranks = shape.product();
  return fmt::format("mesh pp {} x replicate {} x shard {} x cp {} x tp {} = {}, {}; {} a step on each of {}\n",
                     shape.pp, shape.replicate, shape.shard, shape.cp, shape.tp, base::plural(ranks, "rank"),
                     config::name_of(settings.strategy), describe_accumulation(settings, ranks),
                     base::plural(shape.data_parallel_ranks(), "data-parallel rank"));
}

std::string groups_text(const comm::ProcessMesh& mesh, comm::Axis axis) {
  constexpr size_t kShown = 4;
  const auto groups = mesh.groups({axis});
  std::vector<std::string> parts;
  for (const std::vector<int>& group : groups) {
    if (parts.size() == kShown) break;
    parts.push_back(group.size() <= kShown ? fmt::format("{}", group)
                                           : fmt::format("[{}, {}, ..., {}]", group[0], group[1], group.back()));
  }
  if (groups.size() > kShown) parts.push_back(fmt::format("... {} groups", groups.size()));
  return base::join(parts, " ");
}

std::string coordinates_text(const comm::ProcessMesh& mesh) {
  constexpr int kShown = 16;
  std::string text = "\nrank    pp  replicate  shard    cp    tp\n";
  for (int rank = 0; rank < std::min(mesh.world_size(), kShown); ++rank) {
    const comm::ProcessMesh::Coordinates c = mesh.coordinates(rank);
    text += fmt::format("{:>4}{:>6}{:>11}{:>7}{:>6}{:>6}\n", rank, c[0], c[1], c[2], c[3], c[4]);
  }
  if (mesh.world_size() > kShown) text += fmt::format(" ... {} ranks\n", mesh.world_size());
  return text;
}

}  // namespace

std::string mesh_text(const Settings& settings) {
  const int64_t ranks = world_size(settings);
  validate(settings, ranks);
  if (!settings.model.name.empty()) model::config_of(settings.model);
  const MeshShape shape = mesh_shape(settings, ranks);
  schedule::pipeline_schedule(settings.pipeline.schedule);  // refuses names that do not exist
  const comm::ProcessMesh mesh = train::resolve_mesh(settings, static_cast<int>(ranks));
  std::string text = mesh_headline(settings, shape);
  const std::vector<AxisTraffic> rows = mesh_traffic(settings, ranks);
  size_t travels = 12, per_step = 16;  // widths of the headings
  for (const AxisTraffic& row : rows) {
    travels = std::max(travels, row.travels.size());
    per_step = std::max(per_step, row.per_step.size());
  }
  if (!rows.empty())
    text += fmt::format("\n{:<9}  {:>5}  {:<{}}  {:<{}}  {}\n", "axis", "ranks", "what travels", travels,
                        "how often a step", per_step, "groups");
  for (const AxisTraffic& row : rows)
    text += fmt::format("{:<9}  {:>5}  {:<{}}  {:<{}}  {}\n", row.axis, row.size, row.travels, travels, row.per_step,
                        per_step, groups_text(mesh, comm::parse_axis(row.axis)));
  text += coordinates_text(mesh);
  for (const std::string& warning : warnings(settings, ranks)) text += fmt::format("\nwarning: {}\n", warning);
  return text;
}

}  // namespace trireme::cli
