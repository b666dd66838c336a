#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/cli/command.h"
#include "trireme/config/parse.h"
#include "trireme/config/report.h"
#include "trireme/config/validate.h"
#include "trireme/plan/step_plan.h"
#include "trireme/schedule/render.h"
#include "trireme/train/setup.h"

namespace trireme::cli {
namespace {

constexpr const char* kUsage =
    "trireme explain config|schedule|memory|settings MODEL [settings]\n"
    "  config     every setting, its value and where the value came from\n"
    "  schedule   what a rank does in one step, in order, for any --devices\n"
    "  memory     the planned peak of a rank by cause; nothing is allocated\n"
    "  settings   the reference of all settings (--markdown: as docs/settings.md)\n";

plan::StepPlan plan_of(const config::Settings& settings) {
  const int64_t ranks = config::world_size(settings);
  config::validate(settings, ranks);
  const model::ModelConfig config = train::resolve_model(settings);
  const model::Model model = model::build_model(config, train::resolve_precision(settings));
  return plan::make_step_plan(model, train::step_request(settings, config, 0, static_cast<int>(ranks)));
}

}  // namespace

int run_explain(Arguments arguments) {
  if (arguments.empty() || arguments[0] == "--help" || arguments[0] == "-h") {
    fmt::print("{}", kUsage);
    return arguments.empty() ? 2 : 0;
  }
  const std::string& topic = arguments[0];
  const std::vector<std::string> topics = {"config", "schedule", "memory", "settings"};
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
  const plan::StepPlan plan = plan_of(parsed.settings);
  if (topic == "schedule") {
    fmt::print("rank 0 of {}; all ranks run the same list\n{}", plan.request.num_ranks,
               schedule::render_text(plan.train()));
  } else {
    fmt::print("{}", plan::render_memory(plan::memory_report(plan)));
  }
  return 0;
}

}  // namespace trireme::cli
