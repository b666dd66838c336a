#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trireme/adapt/open_model.h"
#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/checkpoint/good.h"
#include "trireme/cli/command.h"
#include "trireme/cli/explain.h"
#include "trireme/cli/plan.h"
#include "trireme/cli/read_settings.h"
#include "trireme/cli/start.h"
#include "trireme/cli/training.h"
#include "trireme/config/problems.h"
#include "trireme/config/report.h"
#include "trireme/dialects/systems.h"
#include "trireme/model/quantized.h"
#include "trireme/observe/loss_curve.h"
#include "trireme/observe/memory_usage.h"
#include "trireme/observe/work_bar.h"
#include "trireme/settings/validate.h"
#include "trireme/train/cache_room.h"
#include "trireme/train/chosen_offload.h"
#include "trireme/train/inference.h"
#include "trireme/train/introduction.h"
#include "trireme/train/prompt_file.h"
#include "trireme/train/resume_settings.h"
#include "trireme/train/sample_reply.h"
#include "trireme/train/setup.h"

namespace trireme::cli {
namespace {

struct ExplainTopic {
  const char* name;
  const char* help;
  const char* usage;  // with options beside settings
};

constexpr ExplainTopic kExplained[] = {
    {"config", "every setting, its value, and where the value came from",
     "trireme explain config llama-5m --config configs/austen.yaml\n"
     "  Exit code 2 if these settings could not run.\n"},
    {"mesh", "which ranks communicate, what and how often, for any --devices",
     "trireme explain mesh llama-3-8b --devices 64 --mesh.tp 8\n"},
    {"schedule", "what every rank does when, in one step",
     "trireme explain schedule llama-3-8b --devices 8 --mesh.pp 4\n"},
    {"memory", "the planned peak of a rank by cause; nothing is allocated",
     "trireme explain memory llama-3-8b --devices 8\n"},
    {"generate", "the memory of trireme generate --prompts: weights, cache, work",
     "trireme explain generate llama-3-8b --generate.batch_size 64 --generate.cache_tokens 100000 --devices 2\n"},
    {"settings", "the reference of all settings",
     "trireme explain settings [GROUP or SETTING ...]\n"
     "  trireme explain settings train optimizer.lr\n"
     "  --markdown                     all of them, as docs/settings.md\n"
     "  --dialects                     keys of other systems, as docs/dialects.md\n"},
};

std::string explain_overview() {
  std::string text = "trireme explain TOPIC MODEL [settings]: shows what a run would do, without running it\n";
  for (const ExplainTopic& t : kExplained) text += fmt::format("  {:<9}  {}\n", t.name, t.help);
  return text +
         "trireme explain TOPIC --help lists the options of a topic; all take the settings of trireme pretrain.\n";
}

const ExplainTopic& topic_of(const std::string& name) {
  std::vector<std::string> names;
  for (const ExplainTopic& t : kExplained) {
    if (name == t.name) return t;
    names.emplace_back(t.name);
  }
  const std::string hint = is_setting(name) ? fmt::format("; trireme explain settings {} explains this setting", name)
                                            : base::did_you_mean(name, names);
  throw UsageError(fmt::format("error: there is no topic {}{}\n{}", name, hint, explain_overview()));
}

int explain_settings(Arguments words) {
  if (words.size() == 1 && words[0] == "--dialects") {
    fmt::print("{}", dialects::dialects_markdown());
    return 0;
  }
  const bool markdown = std::find(words.begin(), words.end(), "--markdown") != words.end();
  if (markdown && words.size() > 1)
    throw UsageError("error: explain settings --markdown writes all settings; leave the other words out");
  std::vector<std::string> names;
  for (const std::string& word : words)  // also accepts --train.max_norm
    names.push_back(word.substr(std::min(word.find_first_not_of('-'), word.size())));
  fmt::print("{}", markdown ? settings_reference_markdown() : settings_help(names));
  return 0;
}

// Refuses what a run refuses once it knows its model. No step is planned, so this takes next to no time.
void check_run(const ParsedSettings& parsed) {
  if (parsed.settings.model.name.empty()) return;
  const bool classifies = parsed.settings.task == train::Learning::classify;
  // Data may say how many labels there are.
  if (classifies && !model::config_of(parsed.settings.model).is_classifier()) return;
  ParsedSettings run = parsed;
  complete_plan(run);
  validate(run.settings, world_size(run.settings));
  train::check_model(run.settings, model::config_of(run.settings.model));
}

// The settings with what a task decides, such as the dropout that rewards leave out. What it refuses is told later.
ParsedSettings as_run(const ParsedSettings& parsed) try {
  ParsedSettings run = parsed;
  const Settings& s = parsed.settings;
  if (s.model.name.empty()) return run;
  if (s.task == train::Learning::classify && !model::config_of(s.model).is_classifier()) return run;  // data say labels
  complete_task(run);
  return run;
} catch (const UsageError&) {
  return parsed;
}

// Prints the table before it refuses: the table shows where a wrong value came from.
int explain_config(const ParsedSettings& parsed) {
  if (!parsed.accounts.empty()) fmt::print("{}\n", dialects::explain(parsed.accounts));
  fmt::print("{}", explain(as_run(parsed)));
  if (!parsed.accounts.empty())
    fmt::print("\nas Trireme's YAML (trireme convert_config writes it):\n{}", given_yaml(parsed));
  std::fflush(stdout);
  const Settings& settings = parsed.settings;
  if (!settings.model.name.empty()) {
    const model::ModelConfig config = model::config_of(settings.model);
    if (settings.task != train::Learning::classify) train::check_task(settings, config);  // whose labels data may have
  }
  refuse_unread(parsed);
  validate(settings, world_size(settings));
  check_run(parsed);
  return 0;
}

/// Tokens of a text, if neither prompts nor the settings say how many the cache holds; and of a prompt, if only
/// generate.max_new_tokens is given.
constexpr int64_t kUsualTokens = 2048, kUsualPrompt = 512;

/// What generate keeps in its cache, and a line about what was assumed.
struct Assumed {
  train::CacheWish wish;
  std::string line;
};

/// `counts_new`: generate.max_new_tokens is given.
Assumed assumed_texts(train::GenerateSettings g, bool counts_new, const std::string& model, const std::string& adapter,
                      const model::ModelConfig& config) {
  Assumed a;
  if (g.prompts) {
    if (!std::filesystem::is_directory(model))
      throw UsageError(
          fmt::format("generate.prompts are counted with a model's tokenizer, and {} is a shape without one; name a "
                      "model's folder, or leave generate.prompts out",
                      model));
    const auto tokenizer = train::checkpoint_tokenizer(model, config);
    std::vector<std::vector<int64_t>> tokens;
    const std::vector<train::Prompt> prompts = train::read_prompts(*g.prompts, "generate.prompts");
    train::name_template(g, prompts, model, adapter);
    for (const train::Prompt& prompt : prompts) {
      tokens.push_back(train::encode(prompt, *tokenizer, g));
      if (std::ssize(tokens.back()) > config.longest_generation())
        throw UsageError(fmt::format("{}:{}: the prompt has {} tokens, and {}; shorten it", *g.prompts, prompt.line,
                                     tokens.back().size(), config.generation_positions()));
    }
    a.wish = train::wish_to_write(config, tokens, g.samples, g.max_new_tokens, g.batch_size);
    a.line = fmt::format("counted for {} of {}", base::plural(std::ssize(tokens), "prompt"), *g.prompts);
  } else {
    const int64_t longest = config.longest_generation();
    const int64_t each = std::min(counts_new ? kUsualPrompt + g.max_new_tokens : kUsualTokens, longest);
    a.wish = {.room = {.texts = g.batch_size, .tokens = 512, .cache_tokens = g.batch_size * each},
              .needed_tokens = std::min(g.max_new_tokens, longest)};
    const std::string parts = !counts_new       ? ""
                              : each == longest ? ", all of the model's positions"
                                                : fmt::format(", of which {} are a prompt's", kUsualPrompt);
    if (!g.cache_tokens)
      a.line = fmt::format("counted for texts of {}{}; generate.prompts or generate.cache_tokens say what there is",
                           base::plural(each, "token"), parts);
  }
  a.wish.room.cache_tokens = g.cache_tokens.value_or(a.wish.room.cache_tokens);
  if (g.cache_tokens) check_longest_text(a.wish);
  return a;
}

void explain_generate(ParsedSettings& parsed, int rank) {
  Settings& settings = parsed.settings;
  refuse_gpus(settings, "generate");
  if (!parsed.given("strategy")) settings.strategy = plan::Strategy::shard_grad_op;
  const train::GenerateSettings& g = settings.generate;
  std::string folder = settings.model.name, adapter;
  train::PlacedModel placed;
  if (g.adapter || g.base || adapt::is_adapter_folder(checkpoint::newest_or_itself(folder))) {
    const adapt::ModelPlace place{.model = folder, .adapter = g.adapter.value_or(""), .base = g.base.value_or("")};
    placed = train::open_place(settings, place);
    folder = placed.model.path, adapter = adapt::adapter_of(place);
  } else {
    placed.config = model::config_of(settings.model);
  }
  const int64_t ranks = world_size(settings);
  require_rank(settings, rank);
  const Assumed assumed = assumed_texts(g, parsed.given("generate.max_new_tokens"), folder, adapter, placed.config);
  const generate::Room& room = assumed.wish.room;
  std::optional<observe::Waiting> waiting(std::in_place, "planning");
  const train::InferencePlan planned =
      train::plan_inference(settings, placed.config, ranks, rank, room, placed.adapters());
  waiting.reset();
  fmt::print("{}{} at a time; the cache holds {}\n", plan::render_memory(plan::memory_report(planned.plan)),
             base::plural(room.texts, "text"),
             base::plural((planned.plan.request.generation.pages - 1) * ops::kAttentionPage, "token"));
  if (!assumed.line.empty()) fmt::print("{}\n", assumed.line);
}

// A folder that is named is refused as a run refuses it; the default one is the run's, which may lie elsewhere.
void refuse_offload_folder(const ParsedSettings& parsed) {
  const schedule::OffloadSettings& offload = parsed.settings.offload;
  if (!offload.uses(schedule::Tier::disk) || !offload.path || !parsed.given("offload.path")) return;
  config::Problems problems;
  problems.add_if(schedule::check_offload_folder(*offload.path));
  problems.throw_if_any();
}

}  // namespace

std::string memory_text(const Settings& settings, int rank) {
  validate(settings, world_size(settings));
  at::set_num_threads(train::threads_of_a_rank(settings));
  std::optional<observe::Waiting> waiting(std::in_place, "planning");
  std::string text;
  const train::ChosenOffload offload =
      train::choose_offload(settings, model::config_of(settings.model), static_cast<int>(world_size(settings)));
  if (!offload.rungs.empty()) {
    text = plan::render_rungs(offload.rungs, *settings.offload.fit);
    text += "\n";
  }
  if (!offload.rungs.empty() && offload.rungs.back().own > *settings.offload.fit) {
    waiting.reset();
    fmt::print("{}", text);  // the table shows what is tried in vain; plan_of() refuses
    std::fflush(stdout);
  }
  if (!offload.distance.empty()) text += fmt::format("{} (offload.prefetch auto)\n\n", offload.distance);
  for (const std::string& remark : offload.remarks) text += fmt::format("warning: {}\n\n", remark);
  const Explained explained = plan_of(settings, rank);
  if (const std::string refusal = refused_on_gpus(explained.plan, settings); !refusal.empty())
    throw UsageError(refusal);
  const bool on_gpu = settings.accelerator == engine::Accelerator::cuda;
  text += fmt::format("{}\n{}\n", plan::render_memory(plan::memory_report(explained.plan)),
                      plan::render_states(explained.plan));
  if (!on_gpu)
    text += fmt::format(
        "Planned for {} a rank: each has scratch of its own in attention. launch.threads_per_rank says how many there "
        "are on another machine.\n",
        base::plural(at::get_num_threads(), "thread"));
  if (const int64_t bytes = plan::reference_bytes(explained.plan); bytes > 0)
    text += fmt::format("beside the plan: {} a rank for the reference (grpo.beta)\n", base::human_bytes(bytes));
  if (const int64_t bytes = train::most_sample_bytes(settings, explained.model->config); bytes > 0)
    text += fmt::format("beside the plan: up to {} of rank 0 for sample replies (eval.max_new_tokens)\n",
                        base::human_bytes(bytes));
  return text + train::outside_the_plan(observe::read_memory_usage(), at::get_num_threads(), on_gpu) + "\n";
}

int run_explain(Arguments arguments) {
  if (const auto code = answer_help(arguments, explain_overview())) return *code;
  const ExplainTopic& topic = topic_of(arguments[0]);
  const std::string name = topic.name;
  std::vector<std::string> rest(arguments.begin() + 1, arguments.end());
  ScheduleView view{.unicode = observe::terminal_shows_utf8()};
  std::vector<config::Section> own;  // options of the topic beside settings
  if (name == "schedule" || name == "memory" || name == "generate") own.push_back(section(view, name != "schedule"));
  if (std::ranges::any_of(rest, is_help)) {
    fmt::print("trireme explain {}: {}\n  {}", topic.name, topic.help, topic.usage);
    if (!own.empty()) fmt::print("\n{}", config::help_text(config::Table(own)));
    return 0;
  }
  if (name == "settings") return explain_settings(rest);
  ParsedSettings parsed = read_settings(rest, {.command = "explain " + name, .own = own});
  validate_places(own);
  train::place_run(parsed);
  train::take_over_run(parsed);
  if (name == "memory" || name == "schedule") complete_plan(parsed);
  if (name == "config") return explain_config(parsed);
  if (name == "mesh") {
    refuse_unread(parsed);
    const std::string text = mesh_text(parsed.settings);  // which refuses what needs no model
    check_run(parsed);
    fmt::print("{}", text);
  }
  if (name == "schedule") explain_schedule(parsed, view);
  if (name == "memory") refuse_offload_folder(parsed);
  if (name == "memory") fmt::print("{}", memory_text(parsed.settings, static_cast<int>(view.rank)));
  if (name == "generate") explain_generate(parsed, static_cast<int>(view.rank));
  return 0;
}

}  // namespace trireme::cli
