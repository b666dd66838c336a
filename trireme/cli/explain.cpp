#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/cli/command.h"
#include "trireme/cli/explain_mesh.h"
#include "trireme/cli/explain_schedule.h"
#include "trireme/cli/explained.h"
#include "trireme/config/parse.h"
#include "trireme/config/report.h"
#include "trireme/config/validate.h"
#include "trireme/observe/memory_usage.h"
#include "trireme/train/introduction.h"
#include "trireme/train/resume_settings.h"
#include "trireme/train/setup.h"

namespace trireme::cli {
namespace {

struct Topic {
  const char* name;
  const char* help;
  const char* usage;  // and what it takes beside settings
};

constexpr Topic kExplained[] = {
    {"config", "every setting, its value and where the value came from",
     "trireme explain config llama-5m --config configs/austen.yaml\n"
     "  Exit code 2 where these settings could not be run.\n"},
    {"mesh", "which ranks talk to each other, what about and how often, for any --devices",
     "trireme explain mesh llama-3-8b --devices 64 --mesh.tp 8\n"},
    {"schedule", "what all ranks do when in one step",
     "trireme explain schedule llama-3-8b --devices 8 --mesh.pp 4\n"
     "  --format text|svg|trace|list   a picture; list: one rank's actions in order  [text]\n"
     "  --output FILE                  where it is written  [the terminal]\n"
     "  --rank N                       list: whose  [0]\n"
     "  --rate GFLOP/s                 what a rank computes  [100]\n"
     "  --bandwidth GB/s               what a message or collective moves  [10]\n"
     "  --width COLUMNS                of text, at least 60\n"},
    {"memory", "the planned peak of a rank by cause; nothing is allocated",
     "trireme explain memory llama-3-8b --devices 8\n"
     "  --rank N                       whose  [0]\n"},
    {"settings", "the reference of all settings",
     "trireme explain settings [GROUP or SETTING ...]\n"
     "  trireme explain settings train optimizer.lr\n"
     "  --markdown                     all of them, as docs/settings.md\n"},
};

std::string overview() {
  std::string text = "trireme explain TOPIC MODEL [settings]: says beforehand what a run would do\n";
  for (const Topic& t : kExplained) text += fmt::format("  {:<9}  {}\n", t.name, t.help);
  return text + "trireme explain TOPIC --help says what each takes; all take the settings of trireme pretrain.\n";
}

const Topic& topic_of(const std::string& name) {
  std::vector<std::string> names;
  for (const Topic& t : kExplained) {
    if (name == t.name) return t;
    names.emplace_back(t.name);
  }
  const auto near = base::nearest(name, names);
  throw UsageError(fmt::format("error: there is nothing to explain about {}{}\n{}", name,
                               near ? fmt::format(" (did you mean {}?)", *near) : "", overview()));
}

int explain_settings(Arguments words) {
  const bool markdown = std::find(words.begin(), words.end(), "--markdown") != words.end();
  if (markdown && words.size() > 1)
    throw UsageError("error: explain settings --markdown writes all settings; leave the other words out");
  std::vector<std::string> names;
  for (const std::string& word : words)  // --train.max_norm as one types it
    names.push_back(word.substr(std::min(word.find_first_not_of('-'), word.size())));
  fmt::print("{}", markdown ? config::settings_reference_markdown() : config::help_text(names));
  return 0;
}

// The table first: it shows what is wrong with what is then refused.
int explain_config(const config::ParsedSettings& parsed) {
  fmt::print("{}", config::explain(parsed));
  std::fflush(stdout);
  if (!parsed.settings.model.name.empty()) train::resolve_model(parsed.settings);
  config::validate(parsed.settings, config::world_size(parsed.settings));
  return 0;
}

void explain_memory(const config::Settings& settings, int rank) {
  const Explained explained = plan_of(settings, rank);
  fmt::print("{}\n{}", plan::render_memory(plan::memory_report(explained.plan)), plan::render_states(explained.plan));
  fmt::print(
      "\nPlanned for {} a rank: each has scratch of its own in attention. launch.threads_per_rank says how many "
      "there are on another machine.\n{}\n",
      base::plural(at::get_num_threads(), "thread"),
      train::outside_the_plan(observe::read_memory_usage(), at::get_num_threads()));
}

}  // namespace

int run_explain(Arguments arguments) {
  if (arguments.empty() || arguments[0] == "--help" || arguments[0] == "-h") {
    fmt::print("{}", overview());
    return arguments.empty() ? 2 : 0;
  }
  const Topic& topic = topic_of(arguments[0]);
  const std::string name = topic.name;
  std::vector<std::string> rest(arguments.begin() + 1, arguments.end());
  if (std::find_if(rest.begin(), rest.end(), [](const auto& w) { return w == "--help" || w == "-h"; }) != rest.end()) {
    fmt::print("trireme explain {}: {}\n  {}", topic.name, topic.help, topic.usage);
    return 0;
  }
  if (name == "settings") return explain_settings(rest);
  ScheduleView view;
  if (name == "schedule") view = take_schedule_flags(rest);
  if (name == "memory") view.rank = take_rank_flag(rest);
  config::ParsedSettings parsed = config::parse(rest, {.command = "explain " + name});
  train::place_run(parsed);
  train::take_over_run(parsed);
  if (name == "config") return explain_config(parsed);
  if (name == "mesh") fmt::print("{}", mesh_text(parsed.settings));
  if (name == "schedule") explain_schedule(parsed.settings, view);
  if (name == "memory") explain_memory(parsed.settings, view.rank);
  return 0;
}

}  // namespace trireme::cli
