#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/cli/command.h"
#include "trireme/cli/explain_mesh.h"
#include "trireme/cli/explain_schedule.h"
#include "trireme/cli/explained.h"
#include "trireme/config/parse.h"
#include "trireme/config/report.h"
#include "trireme/train/resume_settings.h"

namespace trireme::cli {
namespace {

constexpr const char* kExplainUsage =
    "trireme explain config|mesh|schedule|memory|settings MODEL [settings]\n"
    "  config     every setting, its value and where the value came from\n"
    "  mesh       which ranks talk to each other, what about and how often, for any --devices\n"
    "  schedule   what all ranks do when in one step: a picture (--format text|svg|trace, --output FILE), or\n"
    "             one rank's actions in order (--format list, --rank N); --rate GFLOP/s and --bandwidth GB/s\n"
    "  memory     the planned peak of a rank (--rank N, default 0) by cause; nothing is allocated\n"
    "  settings   the reference of all settings (--markdown: as docs/settings.md)\n";

}  // namespace

int run_explain(Arguments arguments) {
  if (arguments.empty() || arguments[0] == "--help" || arguments[0] == "-h") {
    fmt::print("{}", kExplainUsage);
    return arguments.empty() ? 2 : 0;
  }
  const std::string& topic = arguments[0];
  const std::vector<std::string> topics = {"config", "mesh", "schedule", "memory", "settings"};
  if (std::find(topics.begin(), topics.end(), topic) == topics.end()) {
    const auto near = base::nearest(topic, topics);
    throw UsageError(fmt::format("error: there is nothing to explain about {}{}\n{}", topic,
                                 near ? fmt::format(" (did you mean {}?)", *near) : "", kExplainUsage));
  }
  if (topic == "settings") {
    const bool markdown = arguments.size() > 1 && arguments[1] == "--markdown";
    fmt::print("{}", markdown ? config::settings_reference_markdown() : config::help_text());
    return 0;
  }
  std::vector<std::string> rest(arguments.begin() + 1, arguments.end());
  ScheduleView view;
  if (topic == "schedule") view = take_schedule_flags(rest);
  if (topic == "memory") view.rank = take_rank_flag(rest);
  config::ParsedSettings parsed = config::parse(rest, {.command = "explain " + topic});
  if (parsed.help) {
    fmt::print("{}", kExplainUsage);
    return 0;
  }
  train::place_run(parsed);
  train::take_over_run(parsed);
  if (topic == "config") {
    fmt::print("{}", config::explain(parsed));
    return 0;
  }
  if (topic == "mesh") {
    fmt::print("{}", mesh_text(parsed.settings));
    return 0;
  }
  if (topic == "schedule") {
    explain_schedule(parsed.settings, view);
    return 0;
  }
  const Explained explained = plan_of(parsed.settings, view.rank);
  fmt::print("{}\n{}", plan::render_memory(plan::memory_report(explained.plan)), plan::render_states(explained.plan));
  fmt::print(
      "\nPlanned for {} a rank: each has scratch of its own in attention. launch.threads_per_rank says how many "
      "there are on another machine.\n",
      base::plural(at::get_num_threads(), "thread"));
  return 0;
}

}  // namespace trireme::cli
