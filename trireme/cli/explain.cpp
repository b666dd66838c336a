#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/cli/command.h"
#include "trireme/comm/mesh.h"
#include "trireme/config/choices.h"
#include "trireme/config/mesh_shape.h"
#include "trireme/config/mesh_traffic.h"
#include "trireme/config/parse.h"
#include "trireme/config/report.h"
#include "trireme/config/validate.h"
#include "trireme/plan/step_plan.h"
#include "trireme/schedule/render.h"
#include "trireme/train/setup.h"

namespace trireme::cli {
namespace {

constexpr const char* kUsage =
    "trireme explain config|mesh|schedule|memory|settings MODEL [settings]\n"
    "  config     every setting, its value and where the value came from\n"
    "  mesh       which ranks talk to each other, what about and how often, for any --devices\n"
    "  schedule   what a rank does in one step, in order, for any --devices\n"
    "  memory     the planned peak of a rank by cause; nothing is allocated\n"
    "  settings   the reference of all settings (--markdown: as docs/settings.md)\n";

struct Explained {
  std::unique_ptr<model::Model> model;  // the plan refers to it
  plan::StepPlan plan;
};

Explained plan_of(const config::Settings& settings) {
  const int64_t ranks = config::world_size(settings);
  config::validate(settings, ranks);
  const model::ModelConfig config = train::resolve_model(settings);
  const plan::StepRequest request = train::step_request(settings, config, 0, static_cast<int>(ranks));
  Explained e;
  e.model = std::make_unique<model::Model>(
      model::build_model(config, request.precision, request.parallel(), train::grouping(settings)));
  e.plan = plan::make_step_plan(*e.model, request);
  return e;
}

// "pp 2 x replicate 1 x shard 2 x cp 1 x tp 2 = 8 ranks, full_shard, ..."
std::string mesh_headline(const config::Settings& settings, const config::MeshShape& shape) {
  const int64_t ranks = shape.product();
  return fmt::format("mesh pp {} x replicate {} x shard {} x cp {} x tp {} = {}, {}; {} {} a step on each of {}\n",
                     shape.pp, shape.replicate, shape.shard, shape.cp, shape.tp, base::plural(ranks, "rank"),
                     config::name_of(settings.strategy), config::accumulation(settings, ranks),
                     config::accumulation(settings, ranks) == 1 ? "micro-batch" : "micro-batches",
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

std::string mesh_text(const config::Settings& settings) {
  const int64_t ranks = config::world_size(settings);
  config::validate(settings, ranks);
  const config::MeshShape shape = config::mesh_shape(settings, ranks);
  const comm::ProcessMesh mesh({.pp = static_cast<int>(shape.pp),
                                .replicate = static_cast<int>(shape.replicate),
                                .shard = static_cast<int>(shape.shard),
                                .cp = static_cast<int>(shape.cp),
                                .tp = static_cast<int>(shape.tp)},
                               static_cast<int>(ranks));
  std::string text = mesh_headline(settings, shape);
  const std::vector<config::AxisTraffic> rows = config::mesh_traffic(settings, ranks);
  size_t travels = 12, per_step = 16;  // at least the headings
  for (const config::AxisTraffic& row : rows) {
    travels = std::max(travels, row.travels.size());
    per_step = std::max(per_step, row.per_step.size());
  }
  if (!rows.empty())
    text += fmt::format("\n{:<9}  {:>5}  {:<{}}  {:<{}}  {}\n", "axis", "ranks", "what travels", travels,
                        "how often a step", per_step, "groups");
  for (const config::AxisTraffic& row : rows)
    text += fmt::format("{:<9}  {:>5}  {:<{}}  {:<{}}  {}\n", row.axis, row.size, row.travels, travels, row.per_step,
                        per_step, groups_text(mesh, comm::parse_axis(row.axis)));
  text += coordinates_text(mesh);
  for (const std::string& warning : config::warnings(settings, ranks)) text += fmt::format("\nwarning: {}\n", warning);
  return text;
}

}  // namespace

int run_explain(Arguments arguments) {
  if (arguments.empty() || arguments[0] == "--help" || arguments[0] == "-h") {
    fmt::print("{}", kUsage);
    return arguments.empty() ? 2 : 0;
  }
  const std::string& topic = arguments[0];
  const std::vector<std::string> topics = {"config", "mesh", "schedule", "memory", "settings"};
  if (std::find(topics.begin(), topics.end(), topic) == topics.end()) {
    const auto near = base::nearest(topic, topics);
    throw UsageError(fmt::format("error: there is nothing to explain about {}{}\n{}", topic,
                                 near ? fmt::format(" (did you mean {}?)", *near) : "", kUsage));
  }
  if (topic == "settings") {
    const bool markdown = arguments.size() > 1 && arguments[1] == "--markdown";
    fmt::print("{}", markdown ? config::settings_reference_markdown() : config::help_text());
    return 0;
  }
  const config::ParsedSettings parsed = config::parse(arguments.subspan(1), {.command = "explain " + topic});
  if (parsed.help) {
    fmt::print("{}", kUsage);
    return 0;
  }
  if (topic == "config") {
    fmt::print("{}", config::explain(parsed));
    return 0;
  }
  if (topic == "mesh") {
    fmt::print("{}", mesh_text(parsed.settings));
    return 0;
  }
  const Explained explained = plan_of(parsed.settings);
  const plan::StepPlan& plan = explained.plan;
  if (topic == "schedule") {
    fmt::print("rank 0 of {}\n{}", plan.request.mesh.world_size(), schedule::render_text(plan.train()));
  } else {
    fmt::print("{}", plan::render_memory(plan::memory_report(plan)));
  }
  return 0;
}

}  // namespace trireme::cli
